"""The usage of each quota by client, over recorded traffic."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.runner import EventsRequest, EventsWatcher, RecordedEvents, open_events

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRequest:
    """The events, the quotas in force, the brokers' window, and the target for the tables."""

    events: EventsRequest
    quotas: Proposal
    window: QuotaWindow = DEFAULT_WINDOW
    out: str | None = None
    """Folder for the tables, None for none."""
    limit: int | None = None
    """Most rows in the result, None for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageResult:
    """The recorded events, and the buckets nearest to their limits."""

    events: RecordedEvents
    ranked: "pa.Table"
    """Buckets by `UsageTables.ranked`."""
    rows: int
    """Number of all buckets."""


def usage(request: UsageRequest, watcher: EventsWatcher) -> UsageResult:
    """Sum up recorded events, and write the tables where a folder is named.

    Raises:
        UsageError: The folder has no events.
        KafkaQuotasError: A file can't be read or written.
    """
    with open_events(request.events, watcher) as events:
        from kafka_quotas.pipeline.usage import job  # noqa: PLC0415 - loads the kernels
        from kafka_quotas.pipeline.usage.task import UsagePlan  # noqa: PLC0415

        plan = UsagePlan(quotas=request.quotas, seconds=events.recorded.seconds, window=request.window)
        tables = job.usage(events, plan)
        with events.errors("ranking what was used"):
            rows, ranked = tables.count(), tables.ranked(request.limit)
        if request.out is not None:
            with events.errors(f"writing the tables of the usage to {request.out}"):
                tables.write(request.out)
    return UsageResult(events=events.recorded, ranked=ranked, rows=rows)
