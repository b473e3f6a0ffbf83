"""How planned changes, the clients they affect, and what is left alone are shown."""

import math
import re
import sys
from collections.abc import Sequence

from kafka_quotas.cli.output.listing import Cell, Column, Table, columns
from kafka_quotas.cli.output.render import change_cells, plain_text, print_table, short_key, shown_cell, write
from kafka_quotas.commands.declarative.apply import DeclaredPlan, DiffResult
from kafka_quotas.commands.declarative.groups import GroupPlan
from kafka_quotas.core.changes.blast_radius import Affected, BlastRadius, ClientQuotas
from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.formats.nodes import Diagnostic
from kafka_quotas.core.groups.group_changes import NOBODY, GroupChange, MovedClient
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.value_format import format_count, format_limit, format_quota

CHANGE_COLUMNS = columns("mark!, entity, key!, old>, new>")
_RADIUS_COLUMNS = columns("client, quota!, before>!, after>!, gets!, set on")
_MOVED_COLUMNS = columns("client, group before, group after, least limits that differ")
_FEW = 5
_OPEN_ROWS = 20
"""The most rows of a table in a comment that is not folded."""
_LESS, _MORE = "less", "more"
_VERBS = {"+": "add", "~": "change", "-": "remove"}


Changes = Sequence[PlannedChange | GroupChange]


def changes_table(changes: Changes, *, limit: int = 0) -> Table:
    """List the changes for people, at most `limit` of them (0: all)."""
    shown = changes[:limit] if limit else changes
    return Table.of(CHANGE_COLUMNS, change_rows(shown), _cut(len(changes), len(shown)))


def change_rows(changes: Changes) -> list[Sequence[Cell]]:
    """Return a row for each change."""
    return [(_mark(each), *change_cells(each)) for each in changes]


def _radius_table(radius: BlastRadius, *, limit: int = 0) -> Table:
    shown = radius.affected[:limit] if limit else radius.affected
    more = _cut(len(radius.affected), len(shown))
    rows = []
    for each in shown:
        before, after = each.before.entity, each.after.entity
        was = "" if before is None or before == after else f"was {before}"
        limits = (_limit_text(each, each.before), _limit_text(each, each.after))
        set_on = ", ".join(filter(None, ("" if after is None else str(after), was)))
        rows.append((str(each.client), short_key(each.key), *limits, _tendency(each), set_on))
    caption = f"for whom the effective quota changes, per broker{f' ({more})' if more else ''}"
    return Table.of(_RADIUS_COLUMNS, rows, caption)


def summary(changes: Changes, radius: BlastRadius, groups: GroupPlan) -> str:
    """Return a plan in one line: what is added, changed and removed, and clients that get less or more."""
    marks = [*map(_mark, changes)]
    tendencies = [_tendency(each) for each in radius.affected]
    counts = ", ".join(f"{marks.count(mark)} to {verb}" for mark, verb in _VERBS.items())
    clients = f"{format_count(tendencies.count(_LESS), 'client')} tightened, {tendencies.count(_MORE)} loosened"
    moved = f"; groups of {format_count(len(groups.moved.clients), 'client')} differ" if groups.changes else ""
    return f"{counts}; {clients}{moved}"


def print_radius(radius: BlastRadius, groups: GroupPlan | None = None, *, limit: int = 0) -> None:
    """Print the affected clients, or that there are none."""
    moved, names_left_out = NOBODY if groups is None else groups.moved
    if radius.affected:
        write("", sys.stdout)
        print_table(_radius_table(radius, limit=limit), sys.stdout)
    if moved:
        write("", sys.stdout)
        print_table(_moved_table(moved, limit=limit), sys.stdout)
    if not radius.affected and not moved:
        write("no known client's effective quota changes", sys.stdout)
    if radius.combinations_left_out:
        count = radius.combinations_left_out
        write(f"note: {count} combinations of a user and a client-id were not looked at", sys.stderr)
    if names_left_out:
        write(f"note: {names_left_out} users, client-ids and pairs were not looked up in groups", sys.stderr)


def _moved_table(moved: Sequence[MovedClient], *, limit: int) -> Table:
    shown = moved[:limit] if limit else moved
    rows = [
        (
            ", ".join(f"{kind} {name}" for kind, name in each.client.items()),
            each.before or "none",
            each.after or "none",
            ", ".join(
                f"{short_key(key)} {format_limit(key, before)} -> {format_limit(key, after)}"
                for key, before, after in each.limits
            ),
        )
        for each in shown
    ]
    return Table.of(_MOVED_COLUMNS, rows, _cut(len(moved), len(shown)))


def print_unmanaged(found: DeclaredPlan) -> None:
    """Note on standard error what is stored but not declared, and what is declared but not owned."""
    undeclared = [left.entity for left in found.unmanaged if not left.declared]
    if undeclared:
        write(f"note: left alone, not declared: {_some(undeclared)}; --prune removes them", sys.stderr)
    for left in [left for left in found.unmanaged if left.declared][:_FEW]:
        keys = ", ".join(left.keys)
        write(f"note: left alone on {left.entity}: {keys}; --prune or a value of null removes it", sys.stderr)
    if found.groups.unmanaged:
        names = [Entity.of(group=name) for name in found.groups.unmanaged]
        write(f"note: left alone, not declared or not named by --selector: {_some(names)}", sys.stderr)
    if found.not_owned:
        write(f"note: left alone, declared but not named by --selector: {_some(found.not_owned)}", sys.stderr)
    if found.unused_values:
        write(f"note: no entry asks for the values {', '.join(found.unused_values)}", sys.stderr)
    print_left_out(found.left_out)


def print_left_out(left_out: Sequence[Diagnostic]) -> None:
    """Note on standard error what other tools' files have that Kafka has no quota for."""
    for each in left_out:
        write(f"note: left out: {shown_cell(f'{each.location}: {each.message}')}", sys.stderr)


def markdown_comment(result: DiffResult, *, limit: int) -> str:
    """Return a diff as a comment for a pull request: what changes and for whom, folded if it is long.

    Names are code, so that none is a link, a mention or markup.
    """
    changes, radius, address = result.changes, result.radius, _code(result.store_url)
    groups = result.declared.groups
    if not changes:
        return f"### Kafka quotas: nothing changes\n\nThey are as in {address}."
    counts, _, clients = summary(changes, radius, groups).partition("; ")
    changed = [
        (_VERBS[str(mark)], _code(entity), _code(key), *(_code(each) if key == "member" else each for each in values))
        for mark, entity, key, *values in changes_table(changes, limit=limit).rows
    ]
    whom = [
        (_code(client), *cells, winner and _code(winner))
        for client, *cells, winner in _radius_table(radius, limit=limit).rows
    ]
    parts = [
        f"### Kafka quotas: {counts}",
        f"Compared with {address}; {clients}.",
        _folded("Changes", "change!, entity, quota, old>, new>", changed, len(changes)),
    ]
    if radius.affected:
        title = "Clients whose effective quota changes, per broker"
        parts.append(_folded(title, _RADIUS_COLUMNS, whom, len(radius.affected)))
    moved = groups.moved.clients
    if moved:
        rows = [
            (_code(client), _code(before), _code(after), limits)
            for client, before, after, limits in _moved_table(moved, limit=limit).rows
        ]
        parts.append(_folded("Clients whose group or its limits change", _MOVED_COLUMNS, rows, len(moved)))
    elif not radius.affected:
        parts.append("No known client's effective quota changes.")
    left = [_code(str(each.entity)) for each in result.declared.unmanaged if not each.declared]
    if left:
        parts.append(f"Left alone, not declared: {', '.join(left[:_FEW])}{' and others' * (len(left) > _FEW)}.")
    return "\n\n".join(parts)


def _folded(title: str, marked: str | Sequence[Column], rows: Sequence[Sequence[Cell]], total: int) -> str:
    more = f"\n\n{_cut(total, len(rows))}" if len(rows) < total else ""
    text = f"{plain_text(Table.of(marked, rows), style='pipe')}{more}"
    if total <= _OPEN_ROWS:
        return f"**{title}**\n\n{text}"
    return f"<details><summary><b>{title}</b> ({total})</summary>\n\n{text}\n\n</details>"


def _code(cell: Cell) -> str:
    text = shown_cell(cell)
    if not text:
        return ""
    ticks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{ticks} {text} {ticks}" if "`" in text else f"`{text}`"


def _mark(change: PlannedChange | GroupChange) -> str:
    if change.old is None:
        return "+"
    return "-" if change.new is None else "~"


def _limit_text(affected: Affected, quotas: ClientQuotas) -> str:
    return "unlimited" if quotas.limit is None else format_quota(affected.key, quotas.limit)


def _tendency(affected: Affected) -> str:
    before, after = (math.inf if each.limit is None else each.limit for each in (affected.before, affected.after))
    return _LESS if after < before else _MORE if after > before else "as much"


def _cut(total: int, shown: int) -> str | None:
    return f"the first {shown} of {total}; --limit 0 shows all" if shown < total else None


def _some(entities: Sequence[Entity]) -> str:
    more = [f"and {len(entities) - _FEW} more"] if len(entities) > _FEW else []
    return "; ".join([*map(str, entities[:_FEW]), *more])
