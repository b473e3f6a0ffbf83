"""What is replayed: proposals, how throttled clients behave, the windows of the brokers; and how types are judged."""

from dataclasses import dataclass
from enum import StrEnum

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.charges import columns_read
from kafka_quotas.pipeline.buckets.proposal import Proposal, ProposedQuotas, told_apart_by
from kafka_quotas.pipeline.kernels.admission import FETCH, RECORD, STRICT
from kafka_quotas.pipeline.kernels.limiters import LimiterRule


class Model(StrEnum):
    """How throttled clients behave.

    OPEN: requests come when they were recorded, whatever happens. CLOSED: whoever draws on a bucket is one client that
    waits out each delay before its next request, and repeats what was refused.
    """

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """Proposals (of different names), the models to replay them by, and the windows.

    `spans`: tell as well when whom each proposal held back, which costs a pass for each.
    """

    proposals: tuple[Proposal, ...]
    models: tuple[Model, ...] = (Model.OPEN, Model.CLOSED)
    window: QuotaWindow = DEFAULT_WINDOW
    controller_window: QuotaWindow = DEFAULT_WINDOW
    spans: bool = False

    def rule(self, quota_type: QuotaType, model: Model) -> LimiterRule:
        """How a quota type is judged: fetches are taken back where refused, mutations are refused strictly."""
        tokens = quota_type is QuotaType.CONTROLLER_MUTATION
        operation = STRICT if tokens else FETCH if quota_type is QuotaType.FETCH else RECORD
        return LimiterRule(
            operation=operation,
            tokens=tokens,
            bounded=quota_type is QuotaType.REQUEST,
            closed=model is Model.CLOSED,
            window=self.controller_window if tokens else self.window,
        )

    def quotas(self, quota_type: QuotaType) -> list[ProposedQuotas]:
        """The proposals for a quota type, in their order."""
        return [ProposedQuotas(each, quota_type) for each in self.proposals]

    def limits(self, quota_type: QuotaType) -> bool:
        """Whether any proposal has a quota of the type."""
        return any(each.limits for each in self.quotas(quota_type))

    def columns(self) -> tuple[str, ...]:
        """The columns of events that the replay reads."""
        return columns_read(each for each in QuotaType if self.limits(each))

    def told_apart_by(self) -> tuple[str, ...]:
        """The columns of events that keep together, where they are equal, whoever may share a bucket."""
        return told_apart_by(self.proposals)
