"""`kafka-quotas watch`: changes of a store as they happen."""

import sys
import time
from contextlib import closing
from typing import Annotated

import typer

from kafka_quotas.cli.framework.commands import EntityCommand
from kafka_quotas.cli.framework.option_groups import option_info
from kafka_quotas.cli.options.entity import ShortFilter, selected_filter
from kafka_quotas.cli.options.stores import ListingView, StoreOptions
from kafka_quotas.cli.output.listing import TABLE_VIEW, Listing, columns, listed
from kafka_quotas.cli.output.render import RowStream, change_cells, check_columns, warn, write
from kafka_quotas.commands.quotas.watch import RETRY_S, SeenChange
from kafka_quotas.commands.quotas.watch import watch as run_watch
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.value_format import format_count, parse_duration_ms

app = typer.Typer(add_completion=False)

Duration = Annotated[str | None, option_info("--duration DURATION", help="Stop after, for example, 90s or 2h.")]

_COLUMNS = columns("time, entity, key, change")


@app.command(cls=EntityCommand)
def watch(
    *,
    named: ShortFilter,
    duration: Duration = None,
    store: StoreOptions,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Print changes of a store as they happen: whose quota, which one, old and new value.

    Without an entity all changes are printed, those of groups as well. Stores don't record who made a change; what this
    tool changed is in its journal (revert --list). A Kafka store is polled every half second, so changes in quick
    succession appear as one. JSON is one document per line. It ends after --limit changes.
    """
    check_columns(output, "change", _COLUMNS)
    duration_s = _seconds(duration)
    choice = store.choose()
    with closing(choice.open_existing()) as opened:

        def began(entities: int) -> None:
            found = format_count(entities, "entity", separator=",")
            write(f"note: watching {opened.url}, which has quotas of {found}", sys.stderr)
            sys.stderr.flush()

        rows = RowStream(output)
        for each in run_watch(
            opened,
            count=output.limit or None,
            duration_s=duration_s,
            clock=SystemClock(),
            monotonic_s=time.monotonic,
            pause=time.sleep,
            began=began,
            lost=lambda error: warn(f"the store is lost, and asked again every {RETRY_S:g} s: {error.message}"),
            quota_filter=selected_filter(named),
        ):
            rows.print_row(_listing(each))


def _seconds(duration: str | None) -> float | None:
    if duration is None:
        return None
    length_ms = parse_duration_ms(duration)
    if length_ms <= 0:
        raise UsageError(f"--duration {duration} is too short", hint="for example 90s or 2h")
    return float(length_ms / 1000)


def _listing(seen: SeenChange) -> Listing:
    entity, key, old, new = change_cells(seen)
    return listed("change", seen, _COLUMNS, [(seen.time, entity, key, f"{old} -> {new}")])
