"""`kafka-quotas pipeline replay`: what proposed quotas would have done to recorded traffic."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import flag, option, option_group
from kafka_quotas.cli.options.stores import ListingView, StoreOrContext
from kafka_quotas.cli.options.windows import WindowOptions
from kafka_quotas.cli.output.listing import TABLE_VIEW, Cell, Listing, columns, listed
from kafka_quotas.cli.output.render import print_listing, write
from kafka_quotas.cli.pipeline.options import (
    Data,
    EngineOptions,
    bucket_text,
    nulls_for_shared,
    proposal_in_force,
    proposal_of_store,
    rates,
    recorded_events,
    rows_limit,
    unseen_members,
)
from kafka_quotas.core.clock import format_instant
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import shown_name
from kafka_quotas.core.resolution.quota_resolver import GROUP_MARKS, bucket_of_tags
from kafka_quotas.pipeline.buckets.proposal import DEFAULT_STEPS, DefaultScope, Proposal, parse_sweep
from kafka_quotas.pipeline.engine.events import RecordedEvents
from kafka_quotas.pipeline.engine.job import require_libraries
from kafka_quotas.pipeline.engine.sql import ResultRun

if TYPE_CHECKING:
    from kafka_quotas.pipeline.jobs.replay import Outcomes, ReplayPlan

_MODEL_WORDS = {
    "open": "open: requests come as they were recorded",
    "closed": "closed: a bucket is one client that waits out each delay",
}


class Models(StrEnum):
    """The choices of `--model`."""

    OPEN = "open"
    CLOSED = "closed"
    BOTH = "both"


MoreFiles = Annotated[list[str] | None, typer.Argument(metavar="FILE", help="More files of quotas, as after --quotas.")]
_COLUMNS = columns(
    "proposal, model!, broker>!, quota!, bucket, limit>!, events>!, throttled>!, p50 s>!, p99 s>!, "
    "longest s>!, achieved>!, first!"
)


@option_group("Replay")
class ReplayOptions:
    """The options about what is proposed, and how it is replayed."""

    quotas: list[str] | None = option(
        "--quotas FILE...",
        help="Proposed quotas, one proposal for each file, as apply takes them; journal: the quotas that were in force "
        "at the time of each event, by the store and this machine's journal of its changes.",
    )
    sweep: list[str] | None = option(
        "--sweep KEY=LOW..HIGH",
        help=f"A default quota through {DEFAULT_STEPS} values of a range, or KEY=A,B,C, each value a proposal; on top "
        "of the first --quotas, if there is one.",
    )
    default_of: DefaultScope = option(
        "--default-of",
        default=DefaultScope.PAIR,
        help="Whose default --sweep sets: of each user, each client-id, or each pair of both.",
    )
    spans: bool = flag(
        "--spans",
        help="Write the table throttle_spans to --out too: whom each proposal would have held back, and when.",
    )
    out: str | None = option(
        "--out DIR",
        rich_help_panel=OUTPUT_HEADING,
        help="Write the Delta table whatif there, a folder or URL; the same day is replaced.",
    )
    model: Models = option(
        "--model", default=Models.BOTH, help="open: requests come as recorded; closed: throttled clients wait; or both."
    )


def replay(
    *,
    data: Data,
    more_files: MoreFiles = None,
    asked: ReplayOptions,
    store: StoreOrContext,
    windows: WindowOptions,
    engine: EngineOptions,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Replay recorded events under proposed quotas: who is throttled, when, and for how long.

    Without --quotas and --sweep, the quotas in the store are replayed, with its groups of clients. A row is a quota
    bucket, or a group, at a broker under a proposal; every row says by which model. Each quota type is replayed on its
    own.
    """
    require_libraries()
    from kafka_quotas.pipeline.jobs import replay as job  # noqa: PLC0415 - loads the kernels

    out, spans = asked.out, asked.spans
    if spans and out is None:
        raise UsageError("--spans writes a table", hint="say where: --out DIR")
    settings, request = windows.settings(), engine.events(data)
    files = [proposal_in_force(path, store, request) for path in (*(asked.quotas or ()), *(more_files or ()))]
    proposals = _proposals(files, asked.sweep or [], asked.default_of)
    if not proposals:
        proposals = [proposal_of_store(store)]
    plan = job.ReplayPlan(
        proposals=tuple(proposals),
        models=tuple(job.Model) if asked.model is Models.BOTH else (job.Model(asked.model.value),),
        window=settings.client,
        controller_window=settings.controller,
        throttle_spans=spans,
    )
    with recorded_events(engine, data) as (events, _):
        outcomes = job.replay(events, plan)
        with events.errors("ranking what was replayed"):
            listing = _listing(events.recorded, outcomes, plan, rows_limit(output))
        if out is not None:
            with events.errors(f"writing the tables of the replay to {out}"):
                names = ", ".join(each.name for each in proposals)
                outcomes.write(out, ResultRun.of(names, events.recorded.last_ms), has_spans=spans)
    print_listing(listing, output)
    for each in {text: None for proposal in proposals for text in unseen_members(proposal.groups, DefaultScope.PAIR)}:
        write(f"warning: {each}", sys.stderr)
    if not listing.table.rows:
        reason = "no recorded event falls under a proposed quota" if events.recorded.count else "there are no events"
        write(f"note: nothing was replayed: {reason}", sys.stderr)
    if out is not None:
        written = "tables whatif and throttle_spans are" if spans else "table whatif is"
        write(f"note: the {written} in {out}", sys.stderr)


def _proposals(files: list[Proposal], sweeps: list[str], default: DefaultScope) -> list[Proposal]:
    proposals = list(files)
    base = proposals[0] if proposals else None
    for text in sweeps:
        proposals += parse_sweep(text, default, base)
    names = [each.name for each in proposals]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is proposed twice", hint="give every file and every sweep once")
    return proposals


def _listing(events: RecordedEvents, outcomes: "Outcomes", plan: "ReplayPlan", limit: int | None) -> Listing:
    rows, throttled = outcomes.counts()
    shown = outcomes.ranked(limit)
    found = [_names_or_group(row) for row in shown.to_pylist()]
    left = f", {rows - shown.num_rows} rows more: --limit 0" if rows > shown.num_rows else ""
    counted = f"{events.count:,} events, {throttled:,} of {rows:,} rows throttled"
    models = "; ".join(_MODEL_WORDS[each] for each in plan.models)
    return listed(
        "pipeline-replay",
        {
            "events": events.count,
            "models": [each.value for each in plan.models],
            "rows": found,
        },
        _COLUMNS,
        [_cells(row) for row in found],
        caption=f"{counted}{left}\n{models}",
    )


def _names_or_group(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with null in place of the names that clients share, and with its group if it is of one."""
    mark, group = row["user"], row["client_id"]
    if bucket_of_tags(mark, group)[0] not in GROUP_MARKS:
        return nulls_for_shared(row) | {"group": None}
    return row | {"user": None, "client_id": None, "group": group}


def _cells(row: dict[str, Any]) -> list[Cell]:
    quota_type, events, throttled = row["quota_type"], row["n"], row["throttled_n"]
    return [
        row["scenario"],
        row["model"],
        str(row["broker_id"]),
        quota_type,
        bucket_text(row["user"], row["client_id"]) if row["group"] is None else f"group {shown_name(row['group'])}",
        *(["unlimited"] if row["quota"] is None else rates(quota_type, row["quota"])),
        f"{events:,}",
        f"{throttled / events:.1%}" if events else "",
        *(f"{row[name] / 1000:.3g}" if throttled else "" for name in ("p50_ms", "p99_ms", "max_ms")),
        *rates(quota_type, row["achieved_rate"]),
        "" if row["first_ms"] is None else format_instant(row["first_ms"]),
    ]
