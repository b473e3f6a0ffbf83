"""The plan of a replay: proposals, how throttled clients behave, and the rule of each quota type."""

from dataclasses import dataclass
from enum import StrEnum

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.charges import columns_read
from kafka_quotas.pipeline.buckets.proposal import Proposal, ProposedQuotas, partition_columns
from kafka_quotas.pipeline.kernels.admission import FETCH, RECORD, STRICT
from kafka_quotas.pipeline.kernels.limiters import LimiterRule


class Model(StrEnum):
    """How throttled clients behave.

    OPEN: requests arrive when they were recorded, throttled or not. CLOSED: the clients of a bucket are one client that
    waits out each delay before its next request, and repeats refused requests.
    """

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """The proposals (of different names) to replay, the models to replay them by, and the windows."""

    proposals: tuple[Proposal, ...]
    models: tuple[Model, ...] = (Model.OPEN, Model.CLOSED)
    window: QuotaWindow = DEFAULT_WINDOW
    """Window of the brokers' rates."""
    controller_window: QuotaWindow = DEFAULT_WINDOW
    """Window of the controller's mutation quota."""
    throttle_spans: bool = False
    """Whether to record when each proposal throttled each bucket, which costs a pass for each."""

    def rule(self, quota_type: QuotaType, model: Model) -> LimiterRule:
        """Return the rule of a quota type: refused fetches are taken back, mutations are refused strictly."""
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
        """Return the proposals for a quota type, in their order."""
        return [ProposedQuotas(each, quota_type) for each in self.proposals]

    def limits(self, quota_type: QuotaType) -> bool:
        """Check whether any proposal has a quota of the type."""
        return any(each.limits for each in self.quotas(quota_type))

    def columns(self) -> tuple[str, ...]:
        """Return the columns of events that the replay reads."""
        return columns_read(each for each in QuotaType if self.limits(each))

    def partition_columns(self) -> tuple[str, ...]:
        """Return the columns whose equal values keep clients that may share a bucket in one task."""
        return partition_columns(self.proposals)
