"""`kafka-quotas migrate` and `watch`: all quotas of one store copied into another, and changes as they happen."""

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated

from kafka_quotas.cli.framework.commands import EntityCommand, as_command
from kafka_quotas.cli.framework.option_groups import flag, option_group, option_info, required
from kafka_quotas.cli.framework.store_choice import choose_known_store
from kafka_quotas.cli.options.entity import ShortFilter, selected_filter
from kafka_quotas.cli.options.stores import ChangesView, ListingView, Reason, StoreOptions, Yes, recorder_for
from kafka_quotas.cli.output.listing import TABLE_VIEW, Cell, Table, columns, listed
from kafka_quotas.cli.output.render import (
    DEFAULT_ROWS,
    RowStream,
    change_cells,
    check_columns,
    print_listing,
    print_table,
    progress_bar,
    warn,
    write,
)
from kafka_quotas.commands.quotas.migrate import MigratedQuota, MigrationOutcome, MigrationResult
from kafka_quotas.commands.quotas.migrate import migrate as run_migrate
from kafka_quotas.commands.quotas.watch import RETRY_S
from kafka_quotas.commands.quotas.watch import watch as run_watch
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.errors import UsageError, VerdictError
from kafka_quotas.core.model.value_format import format_count, format_quota, parse_duration_ms

_COLUMNS = columns("entity, key!, from>, to>, outcome, reason")
_LISTED = (
    MigrationOutcome.MIGRATED,
    MigrationOutcome.REFUSED,
    MigrationOutcome.DIFFERENT,
    MigrationOutcome.ONLY_THERE,
)
"""What the table lists, in its order: what moves, what does not, and what is no part of it."""
_WOULD = {MigrationOutcome.MIGRATED: "would be migrated", MigrationOutcome.REFUSED: "would be refused"}


@option_group("Source and target")
class _MigrateOptions:
    source: str = required(
        "--from URL", help="The store to copy, or context:NAME, which has its login. It is only read."
    )
    target: str = required("--to URL", help="The store to copy into, or context:NAME.")
    dry_run: bool = flag("--dry-run", help="Let the target check everything, compare, and write nothing.")
    allow_invalid: bool = flag(
        "--allow-invalid", help="Into a zk:// store: copy also values such as 0, which ZooKeeper accepts."
    )


def migrate(
    *, asked: _MigrateOptions, reason: Reason = None, yes: Yes = False, output: ChangesView = TABLE_VIEW
) -> None:
    """Copy all quotas of one store into another, and compare the two afterwards.

    Quotas that the target rejects are listed with the reason, and the exit code is 1; the rest is copied. Anything
    else in the target is left alone. Running it again does what is left.
    """
    target = choose_known_store(asked.target, environment={})  # whose variables are about one store, not about two
    target.confirm_change(yes=yes or asked.dry_run)
    with (
        closing(choose_known_store(asked.source, environment={}).open_existing()) as read,
        closing(target.open(allow_invalid=asked.allow_invalid)) as written,
        progress_bar("migrating") as progress,
    ):
        recorder = recorder_for("migrate", reason=reason or f"migrate from {read.url}")
        result = run_migrate(read, written, dry_run=asked.dry_run, recorder=recorder, progress=progress)
    if output.is_table:
        _print_tables(result, output.limit_or(DEFAULT_ROWS))
    else:
        print_listing(listed("migration", result, _COLUMNS, _rows(result, result.quotas)), output)
    for warning in result.warnings:
        warn(warning)
    if not result.complete:
        failed = (MigrationOutcome.REFUSED, MigrationOutcome.DIFFERENT)
        missing = f"{sum(quota.outcome in failed for quota in result.quotas)} of {result.source.quotas} quotas"
        verb = "would not be" if result.dry_run else "are not"
        raise VerdictError(
            f"{missing} {verb} in {result.target_url} as they are in {result.source_url}",
            hint="set by hand what can't be copied: `unlimited` for no limit, a low limit in place of 0",
        )


def _print_tables(result: MigrationResult, limit: int) -> None:
    listed = [quota for outcome in _LISTED for quota in result.quotas if quota.outcome is outcome]
    if listed:
        shown = listed[:limit] if limit else listed
        print_table(Table.of(_COLUMNS, _rows(result, shown)), sys.stdout)
        if len(shown) < len(listed):
            write(f"the first {len(shown)} of {len(listed)}; --limit 0 shows all", sys.stdout)
        write("", sys.stdout)
    after = "to, after (dry run)" if result.dry_run else "to, after"
    counts = (("from", result.source), ("to, before", result.target_before), (after, result.target_after))
    sides = [(side, count.entities, count.quotas) for side, count in counts]
    print_table(Table.of("side, entities>, quotas>", sides), sys.stdout)
    write(f"\n{_summary(result)}", sys.stdout)


def _summary(result: MigrationResult) -> str:
    parts = [
        f"{number} {_word(outcome, result)}"
        for outcome in MigrationOutcome
        if (number := sum(quota.outcome is outcome for quota in result.quotas))
    ]
    return f"{result.source_url} to {result.target_url}: {', '.join(parts) or 'no quotas'}."


def _word(outcome: MigrationOutcome, result: MigrationResult) -> str:
    return _WOULD.get(outcome, outcome.value) if result.dry_run else outcome.value


def _rows(result: MigrationResult, quotas: Sequence[MigratedQuota]) -> list[Sequence[Cell]]:
    return [
        (
            str(quota.entity),
            quota.key,
            format_quota(quota.key, quota.source),
            format_quota(quota.key, quota.target),
            _word(quota.outcome, result),
            None if quota.error is None else quota.error.message,
        )
        for quota in quotas
    ]


Duration = Annotated[str | None, option_info("--duration DURATION", help="Stop after, for example, 90s or 2h.")]

_CHANGE_COLUMNS = columns("time, entity, key, change")


@as_command(EntityCommand)
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
    check_columns(output, "change")
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
            entity, key, old, new = change_cells(each)
            rows.print_row(listed("change", each, _CHANGE_COLUMNS, [(each.time, entity, key, f"{old} -> {new}")]))


def _seconds(duration: str | None) -> float | None:
    if duration is None:
        return None
    length_ms = parse_duration_ms(duration)
    if length_ms <= 0:
        raise UsageError(f"--duration {duration} is too short", hint="for example 90s or 2h")
    return float(length_ms / 1000)
