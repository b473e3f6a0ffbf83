"""`kafka-quotas alter`: the options, the changes that they ask for, and the report of the result.

Invariants: a key is named once; every key is one of Kafka's own, a draft's or misspelt name is refused with the right
one; values carry units and are exact.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import typer

from kafka_quotas.cli.completion.values import OF_ITSELF, complete_keys
from kafka_quotas.cli.framework.commands import ORDER, EntityCommand, as_command
from kafka_quotas.cli.framework.option_groups import flag, option, option_group
from kafka_quotas.cli.framework.store_choice import STORE_VARIABLE, StoreChoice
from kafka_quotas.cli.options.entity import EntityOptions, entity_of, selected_parts
from kafka_quotas.cli.options.stores import ChangesView, For, Reason, StoreOptions, Yes, parse_for_ms, recorder_for
from kafka_quotas.cli.output.listing import TABLE_VIEW, View, columns, listed
from kafka_quotas.cli.output.render import (
    DEFAULT_ROWS,
    change_cells,
    plain_value,
    print_listing,
    shown_cell,
    warn,
    write,
)
from kafka_quotas.commands.quotas.alter import AlterResult
from kafka_quotas.commands.quotas.alter import alter as run_alter
from kafka_quotas.commands.quotas.quota_checks import Severity
from kafka_quotas.core.changes.plan import key_rank
from kafka_quotas.core.clock import format_instant
from kafka_quotas.core.errors import InvalidQuotaError, UsageError
from kafka_quotas.core.formats.documents import read_property_pairs
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, STORED_KEYS, QuotaKey, suggest_key
from kafka_quotas.core.model.value_format import parse_quota_value

_HOW_TO_CHOOSE = f"--bootstrap-server, --zookeeper, --store, --context or the variable {STORE_VARIABLE} choose another"
_COLUMNS = columns("key, old>, new>")
_FEW = 5


@option_group("Change")
class _AlterOptions:
    add_config: list[str] | None = option(
        "--add-config KEY=VALUE,...",
        help="Quotas to set, with units: producer_byte_rate=10MiB,consumer_byte_rate=2M. KEY=unlimited sets the "
        "largest value, which is an exemption. May be repeated.",
        autocompletion=OF_ITSELF["--add-config"],
    )
    add_config_file: Path | None = option(
        "--add-config-file FILE", help="A file of KEY=VALUE lines with quotas to set."
    )
    delete_config: list[str] | None = option(
        "--delete-config KEY,...",
        help="Quotas to remove: the entity falls to the next level. May be repeated.",
        autocompletion=complete_keys,
    )
    dry_run: bool = flag("--dry-run", help="Check everything, here and at the broker, and write nothing.")
    no_wait: bool = flag("--no-wait", help="Don't read a change back from Kafka until it is visible.")
    allow_invalid: bool = flag(
        "--allow-invalid", help="With a zk:// store: check by ZooKeeper's own rules alone, which let 0 pass."
    )
    for_: For = None
    reason: Reason = None
    yes: Yes = False

    def changes(self) -> dict[str, float | None]:
        """Return each key's new value in the unit of the key, None to remove it, in the order of listings.

        With `--allow-invalid` a value may be any double.
        """
        asked: list[tuple[str, float | None]] = [
            (key.name, _value(key, text, allow_invalid=self.allow_invalid))
            for key, text in _assignments(self.add_config or (), self.add_config_file)
        ]
        asked += [(name, None) for name in _names(self.delete_config or ())]
        changes = dict(asked)
        if len(changes) < len(asked):
            name = next(name for at, (name, _) in enumerate(asked) if name in dict(asked[:at]))
            raise UsageError(f"{name} is named twice", hint="set or remove each key once per command")
        if not changes:
            raise UsageError(
                "nothing to change", hint="--add-config KEY=VALUE sets a quota, --delete-config KEY removes one"
            )
        return dict(sorted(changes.items(), key=lambda change: key_rank(change[0])))


@as_command(EntityCommand)
def alter(
    ctx: typer.Context,
    *,
    named: EntityOptions,
    wanted: _AlterOptions,
    store: StoreOptions,
    output: ChangesView = TABLE_VIEW,
) -> None:
    """Set or remove quotas of one entity.

    The entity is a user, a client-id, a pair of both, an address, or a default of these. All changes are made together
    or not at all. The limits hold per broker, not per cluster. A topic or a broker has a threshold, which the daemon
    holds.
    """
    entity = entity_of(selected_parts(named, ctx.meta[ORDER]))
    choice = store.choose()
    if wanted.allow_invalid and not choice.address.kind.takes_invalid:
        raise UsageError(
            "--allow-invalid is for zk:// stores",
            hint="Kafka in KRaft mode, and the local store, which follows it, refuse such values themselves",
        )
    recorder, for_ms = recorder_for("alter", reason=wanted.reason), parse_for_ms(wanted.for_)
    choice.confirm_change(yes=wanted.yes or wanted.dry_run)
    changes = wanted.changes()
    with closing(choice.open(allow_invalid=wanted.allow_invalid, wait=not wanted.no_wait)) as opened:
        dry_run = wanted.dry_run
        result = run_alter(opened, entity=entity, changes=changes, dry_run=dry_run, recorder=recorder, for_ms=for_ms)
    _report(result, choice, output)


def _report(result: AlterResult, choice: StoreChoice, output: View) -> None:
    if output.is_table:
        for change in result.changes:
            entity, key, old, new = change_cells(change)
            became = f"unchanged, {new}" if change.is_unchanged else f"{old} -> {new}"
            dry = "dry run: " if result.dry_run else ""
            write(f"{dry}{entity} in {shown_cell(choice.place)}: {key} {became}", sys.stdout)
        if result.radius is not None:
            from kafka_quotas.cli.output.plan_view import print_radius  # noqa: PLC0415 - only a dry run pays for it

            print_radius(result.radius, limit=output.limit_or(DEFAULT_ROWS))
    else:
        rows = [(each.key, plain_value(each.key, each.old), plain_value(each.key, each.new)) for each in result.changes]
        print_listing(listed("alter", result, _COLUMNS, rows), output)
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


def _print_findings(result: AlterResult) -> None:
    for finding in result.findings[:_FEW]:
        severity = "note" if finding.severity is Severity.NOTE else "warning"
        whose = "" if finding.entity == result.entity else f"{finding.about}: "
        write(f"{severity}: {whose}{shown_cell(finding.sentence)}\nhint: {shown_cell(finding.remedy)}", sys.stderr)
    more = len(result.findings) - _FEW
    if more > 0:
        write(f"note: {more} more; `kafka-quotas doctor` lists them{' after the change' * result.dry_run}", sys.stderr)


_EXAMPLE = "for example producer_byte_rate=10MiB,consumer_byte_rate=20MiB"


def _assignments(add: Sequence[str], add_file: Path | None) -> Iterator[tuple[QuotaKey, str]]:
    for text in add:
        for piece in _pieces("--add-config", text):
            name, equals, value = piece.partition("=")
            if not equals:
                in_figure = piece.isdecimal() and "," in text
                hint = "write figures without separators of thousands: 1000 or 1k" if in_figure else _EXAMPLE
                raise UsageError(f"not KEY=VALUE: {piece!r}", hint=hint)
            # kafka-configs takes brackets around values and drops them
            yield _known_key(name.strip()), value.strip().removeprefix("[").removesuffix("]")
    if add_file is not None:
        for name, value in read_property_pairs(add_file):
            yield _known_key(name), value


def _names(delete: Sequence[str]) -> Iterator[str]:
    for text in delete:
        for name in _pieces("--delete-config", text):
            if name in STORED_KEYS or suggest_key(name, STORED_KEYS) is None:
                yield name  # a name unlike any key may be stored all the same, and must be removable
            else:
                _known_key(name)


def _pieces(option: str, text: str) -> list[str]:
    pieces = [piece.strip() for piece in text.split(",")]
    if len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    if not all(pieces):
        raise UsageError(f"{option} has an empty part: {text!r}", hint="is the shell variable behind it set?")
    return pieces


def _known_key(name: str) -> QuotaKey:
    key = STORED_KEYS.get(name)
    if key is None:
        meant = suggest_key(name, STORED_KEYS)
        hint = f"did you mean {meant.name}?" if meant else f"the keys are {', '.join(QUOTA_KEYS)}"
        raise InvalidQuotaError(f"unknown quota key: {name!r}", hint=hint)
    return key


def _value(key: QuotaKey, text: str, *, allow_invalid: bool) -> float:
    if not text.strip():
        raise InvalidQuotaError(
            f"{key.name} has no value",
            hint=f"is the shell variable behind it set? --delete-config {key.name} removes the quota",
        )
    try:
        return parse_quota_value(key, text)
    except InvalidQuotaError:
        if not allow_invalid:
            raise
        from kafka_quotas.core.java import parse_double  # noqa: PLC0415 - only --allow-invalid needs it

        return parse_double(text)
