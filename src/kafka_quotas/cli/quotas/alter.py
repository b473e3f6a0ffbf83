"""`kafka-quotas alter`: the options, and the report of the result."""

import sys
from contextlib import closing
from pathlib import Path

import typer

from kafka_quotas.cli.completion.values import complete_assignments, complete_keys
from kafka_quotas.cli.framework.commands import ORDER, EntityCommand
from kafka_quotas.cli.framework.option_groups import option, option_group
from kafka_quotas.cli.framework.store_choice import STORE_VARIABLE, StoreChoice
from kafka_quotas.cli.options.config import parse_changes
from kafka_quotas.cli.options.entity import OneEntity, entity_of, selected_parts
from kafka_quotas.cli.options.journal import For, Reason, parse_for_ms, recorder_for
from kafka_quotas.cli.options.stores import ListingView, StoreOptions, Yes
from kafka_quotas.cli.output.document import listed
from kafka_quotas.cli.output.render import (
    TABLE_VIEW,
    Listing,
    View,
    columns,
    print_listing,
    shown_cell,
    warn,
    write,
)
from kafka_quotas.cli.output.selection import DEFAULT_ROWS, check_columns
from kafka_quotas.cli.output.values import change_cells, plain_value
from kafka_quotas.commands.quotas.alter import AlterResult
from kafka_quotas.commands.quotas.alter import alter as run_alter
from kafka_quotas.commands.quotas.quota_checks import Severity
from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.clock import format_instant
from kafka_quotas.core.errors import UsageError

app = typer.Typer(add_completion=False)

_HOW_TO_CHOOSE = f"--bootstrap-server, --zookeeper, --store, --context or the variable {STORE_VARIABLE} choose another"
_COLUMNS = columns("key, old>, new>")
_FEW = 5


@option_group("Change")
class AlterOptions:
    """The options of `alter` about what changes, and how."""

    add_config: list[str] | None = option(
        "--add-config KEY=VALUE,...",
        help="Quotas to set, with units: producer_byte_rate=10MiB,consumer_byte_rate=2M. KEY=unlimited sets the "
        "largest value, which is an exemption. May be repeated.",
        autocompletion=complete_assignments,
    )
    add_config_file: Path | None = option(
        "--add-config-file FILE", help="A file of KEY=VALUE lines with quotas to set."
    )
    delete_config: list[str] | None = option(
        "--delete-config KEY,...",
        help="Quotas to remove: the entity falls to the next level. May be repeated.",
        autocompletion=complete_keys,
    )
    dry_run: bool = option(
        "--dry-run", default=False, help="Check everything, here and at the broker, and write nothing."
    )
    no_wait: bool = option("--no-wait", default=False, help="Don't read a change back from Kafka until it is visible.")
    allow_invalid: bool = option(
        "--allow-invalid",
        default=False,
        help="With a zk:// store: check by ZooKeeper's own rules alone, which let 0 pass.",
    )
    for_: For = None
    reason: Reason = None
    yes: Yes = False


@app.command(cls=EntityCommand)
def alter(
    ctx: typer.Context, *, named: OneEntity, wanted: AlterOptions, store: StoreOptions, output: ListingView = TABLE_VIEW
) -> None:
    """Set or remove quotas of one entity.

    The entity is a user, a client-id, a pair of both, an address, or a default of these. All changes are made together
    or not at all. The limits hold per broker, not per cluster. A topic or a broker has a threshold, which the daemon
    holds.
    """
    entity = entity_of(selected_parts(named, ctx.meta[ORDER]))
    choice = store.choose()
    _check_allow_invalid(choice, wanted.allow_invalid)
    check_columns(output, "alter", _COLUMNS)
    recorder, for_ms = recorder_for("alter", reason=wanted.reason), parse_for_ms(wanted.for_)
    choice.confirm_change(yes=wanted.yes or wanted.dry_run)
    changes = parse_changes(
        add=wanted.add_config or (),
        add_file=wanted.add_config_file,
        delete=wanted.delete_config or (),
        allow_invalid=wanted.allow_invalid,
    )
    with closing(choice.open(allow_invalid=wanted.allow_invalid, wait=not wanted.no_wait)) as opened:
        result = run_alter(
            opened,
            entity=entity,
            changes=changes,
            dry_run=wanted.dry_run,
            recorder=recorder,
            for_ms=for_ms,
            settings=choice.settings(),
        )
    _report(result, choice, output)


def _check_allow_invalid(choice: StoreChoice, allow_invalid: bool) -> None:
    if allow_invalid and not choice.address.kind.takes_invalid:
        raise UsageError(
            "--allow-invalid is for zk:// stores",
            hint="Kafka in KRaft mode, and the local store, which follows it, refuse such values themselves",
        )


def _report(result: AlterResult, choice: StoreChoice, output: View) -> None:
    if output.is_table and not output.columns:
        for change in result.changes:
            write(_line(change, result, choice), sys.stdout)
        if result.radius is not None:
            from kafka_quotas.cli.output.plan_view import print_radius  # noqa: PLC0415 - only a dry run pays for it

            print_radius(result.radius, limit=output.limit_or(DEFAULT_ROWS))
    else:
        print_listing(_listing(result), output)
    if result.dry_run:
        by_broker = "here and by the broker (validate-only)"
        checked = by_broker if result.checked_by_broker else "here only, no broker was asked"
        write(f"note: checked {checked}; nothing was written", sys.stderr)
    if result.undo_at_ms is not None:
        write(f"note: to be undone at {format_instant(result.undo_at_ms)}", sys.stderr)
        write("hint: `kafka-quotas revert --due` does it, run every minute by cron for example", sys.stderr)
    for warning in result.warnings:
        warn(warning)
    _print_findings(result)
    if not choice.chosen:
        write(f"note: this is a file on this machine, no broker was changed; {_HOW_TO_CHOOSE}", sys.stderr)


def _line(change: PlannedChange, result: AlterResult, choice: StoreChoice) -> str:
    whom = f"{'dry run: ' if result.dry_run else ''}{change.entity} in {shown_cell(choice.place)}"
    _, key, old, new = change_cells(change)
    if change.is_unchanged:
        return f"{whom}: {key} unchanged, {new}"
    return f"{whom}: {key} {old} -> {new}"


def _print_findings(result: AlterResult) -> None:
    """Print what is odd about the change, that about its own entity without naming it again."""
    for finding in result.findings[:_FEW]:
        severity = "note" if finding.severity is Severity.NOTE else "warning"
        whose = "" if finding.entity == result.entity else f"{finding.about}: "
        write(f"{severity}: {whose}{shown_cell(finding.sentence)}\nhint: {shown_cell(finding.remedy)}", sys.stderr)
    more = len(result.findings) - _FEW
    if more > 0:
        write(f"note: {more} more; `kafka-quotas doctor` lists them{' after the change' * result.dry_run}", sys.stderr)


def _listing(result: AlterResult) -> Listing:
    rows = [(each.key, plain_value(each.key, each.old), plain_value(each.key, each.new)) for each in result.changes]
    return listed("alter", result, _COLUMNS, rows, items="changes")
