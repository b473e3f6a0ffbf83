"""The usage of each quota by client, over recorded traffic."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.runner import (
    EventsRequest,
    EventsWatcher,
    Job,
    OpenEvents,
    RecordedEvents,
    open_events,
)

if TYPE_CHECKING:
    from kafka_quotas.pipeline.usage.tables import UsageTables
    from kafka_quotas.pipeline.usage.task import UsagePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRequest:
    """The events, the quotas in force, the brokers' window, and the target for the tables."""

    events: EventsRequest
    quotas: Proposal
    window: QuotaWindow = DEFAULT_WINDOW
    out: Path | None = None
    """Folder for the tables, None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageResult:
    """The recorded events, and the tables."""

    events: RecordedEvents
    tables: "UsageTables"


def usage(request: UsageRequest, watcher: EventsWatcher) -> UsageResult:
    """Sum up recorded events, and write the tables where a folder is named.

    Raises:
        UsageError: The folder has no events.
        KafkaQuotasError: A file can't be read or written.
    """
    with open_events(request.events, watcher) as events:
        from kafka_quotas.pipeline.tables.arrow import write_tables  # noqa: PLC0415 - loads Arrow
        from kafka_quotas.pipeline.usage.task import UsagePlan  # noqa: PLC0415 - loads the kernels

        tables = use(events, UsagePlan(quotas=request.quotas, seconds=events.recorded.seconds, window=request.window))
    if request.out is not None:
        named = {"entities": tables.entities, "usage": tables.usage, "usage_profile": tables.profiles}
        write_tables(request.out, named)
    return UsageResult(events=events.recorded, tables=tables)


def use(events: OpenEvents, plan: "UsagePlan") -> "UsageTables":
    """Sum up open events and return the tables."""
    from kafka_quotas.pipeline.usage.tables import usage_tables  # noqa: PLC0415 - loads Arrow

    return usage_tables(events.run(_job(plan)))


def _job(plan: "UsagePlan") -> Job:
    from kafka_quotas.pipeline.tables.event_slices import COLUMNS  # noqa: PLC0415 - loads Arrow
    from kafka_quotas.pipeline.usage.task import usage_task  # noqa: PLC0415 - loads the kernels

    return Job(
        name="usage",
        told_apart_by=plan.told_apart_by(),
        columns=COLUMNS,
        task=lambda slices: usage_task(slices, plan),
        on_files=lambda session, files: _on_spark().usage_files(session, files, plan),
        on_rows=lambda frame: _on_spark().usage_rows(frame, plan),
        found=lambda found: _on_spark().usage_found(found),
    )


def _on_spark() -> Any:
    """Import the module of the job on Spark."""
    from kafka_quotas.pipeline.usage import spark as usage_spark  # noqa: PLC0415 - loads PySpark

    return usage_spark
