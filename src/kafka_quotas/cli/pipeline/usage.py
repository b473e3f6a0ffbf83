"""`kafka-quotas pipeline usage`: who used how much of which quota."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option_info
from kafka_quotas.cli.options.stores import ListingView, StoreOrContext
from kafka_quotas.cli.options.windows import ClientWindow
from kafka_quotas.cli.output.listing import TABLE_VIEW, Cell, Listing, columns, listed
from kafka_quotas.cli.output.render import print_listing, write
from kafka_quotas.cli.pipeline.options import (
    Data,
    EngineOptions,
    Quotas,
    bucket_text,
    note_changes,
    nulls_for_shared,
    proposal_in_force,
    rates,
    recorded_events,
    rows_limit,
)
from kafka_quotas.pipeline.engine.events import RecordedEvents
from kafka_quotas.pipeline.engine.job import require_libraries
from kafka_quotas.pipeline.engine.sql import ResultRun
from kafka_quotas.pipeline.tables.schemas import USAGE_PROFILE

if TYPE_CHECKING:
    import pyarrow as pa

Out = Annotated[
    str | None,
    option_info(
        "--out DIR",
        rich_help_panel=OUTPUT_HEADING,
        help="Write the Delta tables usage and usage_profile there, a folder or URL; the same days are replaced.",
    ),
]

_NAMES = USAGE_PROFILE.column_names[1 : USAGE_PROFILE.column_names.index("bytes")]
"""The key, the limit and the profile of a bucket."""
_COLUMNS = columns(
    "broker>!, quota!, bucket, p50>!, p95>!, p99>!, max>!, limit>!, used>!, active>!, burst>!, throttled>!"
)


def usage(
    *,
    data: Data,
    quotas: Quotas = None,
    store: StoreOrContext,
    windows: ClientWindow,
    out: Out = None,
    engine: EngineOptions,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Show who used how much of which quota, by Kafka's own rate (11 samples of 1 s by default).

    A row is a quota bucket at a broker: percentiles of its rate over the seconds with traffic, the limit in force and
    the share of it that the 99th percentile is, the share of seconds with traffic, the largest second by the mean one,
    and the share of active seconds with a throttle time.
    """
    require_libraries()
    from kafka_quotas.pipeline.jobs.usage import job  # noqa: PLC0415 - loads the kernels

    in_force, window = proposal_in_force(quotas, store, engine.events(data)), windows.settings().client
    with recorded_events(engine, data) as (events, _):
        used = job.usage(events, job.UsagePlan(quotas=in_force, seconds=events.recorded.seconds, window=window))
        with events.errors("ranking what was used"):
            listing = _listing(events.recorded, used.ranked(rows_limit(output)), used.count(), in_force.name)
        if out is not None:
            with events.errors(f"writing the tables of the usage to {out}"):
                used.write(out, ResultRun.of(in_force.name, events.recorded.last_ms))
    print_listing(listing, output)
    note_changes(quotas, in_force, events.recorded)
    if out is not None:
        write(f"note: the tables usage and usage_profile are in {out}", sys.stderr)


def _listing(events: RecordedEvents, ranked: "pa.Table", buckets: int, source: str) -> Listing:
    shown = [nulls_for_shared({name: row[name] for name in _NAMES}) for row in ranked.to_pylist()]
    left = f", {buckets - len(shown)} more: --limit 0" if buckets > len(shown) else ""
    caption = f"{events.count:,} events in {events.seconds:,} s, {buckets:,} buckets{left}; limits of {source}"
    return listed(
        "pipeline-usage",
        {"events": events.count, "seconds": events.seconds, "quotas": source, "buckets": shown},
        _COLUMNS,
        [_cells(row) for row in shown],
        caption=caption,
    )


def _cells(row: dict[str, Any]) -> list[Cell]:
    quota_type, quota = row["quota_type"], row["quota"]
    return [
        str(row["broker_id"]),
        quota_type,
        bucket_text(row["user"], row["client_id"]),
        *rates(quota_type, *(row[name] for name in ("p50", "p95", "p99", "max")), quota),
        f"{row['p99'] / quota:.0%}" if quota else "",
        f"{row['active_share']:.1%}",
        f"{row['burst_ratio']:.3g}",
        f"{row['throttled_share']:.1%}",
    ]
