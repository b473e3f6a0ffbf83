"""The effect of proposed quotas on recorded traffic."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.pipeline.engine.runner import EventsRequest, EventsWatcher, RecordedEvents, open_events

if TYPE_CHECKING:
    from kafka_quotas.pipeline.replay.job import ReplayTables
    from kafka_quotas.pipeline.replay.task import ReplayPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The events, the proposals, and the target for the tables."""

    events: EventsRequest
    plan: "ReplayPlan"
    out: str | None = None
    """Folder for `entities` and `whatif`, and `throttle_spans` if the plan asks for it; None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The replayed events, and the tables."""

    events: RecordedEvents
    tables: "ReplayTables"


def replay(request: ReplayRequest, watcher: EventsWatcher) -> ReplayResult:
    """Replay recorded events, and write the tables where a folder is named.

    Raises:
        UsageError: The folder has no events.
        KafkaQuotasError: A file can't be read or written.
    """
    with open_events(request.events, watcher) as events:
        from kafka_quotas.pipeline.replay import job  # noqa: PLC0415 - loads the kernels
        from kafka_quotas.pipeline.tables.arrow import write_tables  # noqa: PLC0415 - loads Arrow

        tables = job.replay(events, request.plan)
    if request.out is not None:
        spans = {"throttle_spans": tables.throttle_spans} if request.plan.throttle_spans else {}
        write_tables(request.out, {"entities": tables.entities, "whatif": tables.whatif, **spans})
    return ReplayResult(events=events.recorded, tables=tables)
