"""The comparison of the replay with what brokers did, from recorded traffic and the quotas in force."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.engine.runner import EventsRequest, EventsWatcher, RecordedEvents, open_events

if TYPE_CHECKING:
    from kafka_quotas.pipeline.buckets.proposal import Proposal
    from kafka_quotas.pipeline.validate.job import Validation


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateRequest:
    """The recorded events, the quotas in force at that time, and the tolerance."""

    events: EventsRequest
    quotas: "Proposal"
    tolerance: float = 0.1
    """Tolerated difference by the observed figure, from 0."""
    window: QuotaWindow = DEFAULT_WINDOW
    controller_window: QuotaWindow = DEFAULT_WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationResult:
    """The recorded events, and the comparison."""

    events: RecordedEvents
    validation: "Validation"


def validate(request: ValidateRequest, watcher: EventsWatcher) -> ValidationResult:
    """Compare recorded events with their replay.

    Raises:
        UsageError: The folder has no events, or the tolerance is below 0.
        KafkaQuotasError: A file can't be read.
    """
    if not request.tolerance >= 0:
        raise UsageError(f"the tolerance must be 0 or more, not {request.tolerance}", hint="--tolerance 0.1 is 10 %")
    with open_events(request.events, watcher) as events:
        from kafka_quotas.pipeline.validate import job  # noqa: PLC0415 - loads the kernels

        plan = job.ValidatePlan(
            quotas=request.quotas,
            seconds=events.recorded.seconds,
            tolerance=request.tolerance,
            window=request.window,
            controller_window=request.controller_window,
        )
        found = job.validate(events, plan)
    return ValidationResult(events=events.recorded, validation=found)
