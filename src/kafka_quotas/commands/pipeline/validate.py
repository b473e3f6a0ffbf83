"""The comparison of the replay with what brokers did, from recorded traffic and the quotas in force."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.pipeline.engine.runner import EventsRequest, EventsWatcher, RecordedEvents, open_events
from kafka_quotas.pipeline.validate.check import ValidatePlan

if TYPE_CHECKING:
    from kafka_quotas.pipeline.validate.job import Validation


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationResult:
    """The recorded events, and the comparison."""

    events: RecordedEvents
    validation: "Validation"


def validate(
    request: EventsRequest, plan: ValidatePlan, watcher: EventsWatcher, *, limit: int | None = None
) -> ValidationResult:
    """Compare recorded events with their replay.

    `limit` is the greatest number of buckets in the result, None for all.

    Raises:
        UsageError: The folder has no events.
        KafkaQuotasError: A file can't be read.
    """
    with open_events(request, watcher) as events:
        from kafka_quotas.pipeline.validate import job  # noqa: PLC0415 - loads the kernels

        with events.errors("summing up what was compared"):
            found = job.validate(events, plan, limit=limit)
    return ValidationResult(events=events.recorded, validation=found)
