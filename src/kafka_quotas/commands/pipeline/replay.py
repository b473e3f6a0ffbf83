"""The effect of proposed quotas on recorded traffic."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_quotas.pipeline.engine.runner import (
    EventsRequest,
    EventsWatcher,
    Job,
    OpenEvents,
    RecordedEvents,
    open_events,
)

if TYPE_CHECKING:
    from kafka_quotas.pipeline.replay.plan import ReplayPlan
    from kafka_quotas.pipeline.replay.tables import ReplayTables


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The events, the proposals, and the target for the tables."""

    events: EventsRequest
    plan: "ReplayPlan"
    out: Path | None = None
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
        tables = replayed(events, request.plan)
    if request.out is not None:
        from kafka_quotas.pipeline.tables.arrow import write_tables  # noqa: PLC0415 - loads Arrow

        spans = {"throttle_spans": tables.spans} if request.plan.spans else {}
        write_tables(request.out, {"entities": tables.entities, "whatif": tables.whatif, **spans})
    return ReplayResult(events=events.recorded, tables=tables)


def replayed(events: OpenEvents, plan: "ReplayPlan") -> "ReplayTables":
    """Replay open events and return the tables."""
    from kafka_quotas.pipeline.replay.tables import replay_tables  # noqa: PLC0415 - loads Arrow and the kernels

    return replay_tables(events.run(_job(plan)), plan)


def _job(plan: "ReplayPlan") -> Job:
    from kafka_quotas.pipeline.replay.task import replay_task  # noqa: PLC0415 - loads the kernels

    return Job(
        name="replay",
        told_apart_by=plan.told_apart_by(),
        columns=plan.columns(),
        task=lambda slices: replay_task(slices, plan),
        on_files=lambda session, files: _on_spark().replay_files(session, files, plan),
        on_rows=lambda frame: _on_spark().replay_rows(frame, plan),
        found=lambda found: _on_spark().replay_found(found),
    )


def _on_spark() -> Any:
    """Import the module of the job on Spark."""
    from kafka_quotas.pipeline.replay import spark as replay_spark  # noqa: PLC0415 - loads PySpark

    return replay_spark
