"""The journal entries to revert, the inverse of a change, and what a store held before its changes.

Contract: reverting a temporary change restores the value before it, the newest first, so that changes on top of one
another end at the oldest value. A change no longer needs a revert once an entry reverts it, or once this program makes
a later, permanent change to the same quota, which the journal then has.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_quotas.core.changes.journal_entry import JournalEntry
from kafka_quotas.core.changes.plan import Content, PlannedChange, same_value
from kafka_quotas.core.model.entity import Entity


@dataclass(frozen=True, slots=True, kw_only=True)
class Revert:
    """The changes of one run to revert, as they were made."""

    entry_id: str
    changes: tuple[PlannedChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InverseChange:
    """The inverse of some changes."""

    to_make: tuple[PlannedChange, ...]
    """The changes to make."""
    changed_since: tuple[tuple[PlannedChange, float | None], ...]
    """The changes whose quotas have another value now, with the values found."""
    back_already: tuple[PlannedChange, ...]
    """The changes whose quotas are back at the old value."""


def merged_changes(entries: Iterable[JournalEntry]) -> tuple[PlannedChange, ...]:
    """Return the changes of several entries as one per quota, with its first old and its last new value."""
    merged: dict[tuple[Entity, str], PlannedChange] = {}
    for entry in entries:
        for change in entry.changes:
            before = merged.get((change.entity, change.key))
            old = change.old if before is None else before.old
            merged[change.entity, change.key] = PlannedChange(
                entity=change.entity, key=change.key, old=old, new=change.new
            )
    return tuple(merged.values())


def inverse_of(changes: Iterable[PlannedChange], stored: Content, *, force: bool = False) -> InverseChange:
    """Return the inverse of the changes, with `force` also of quotas that have another value by now."""
    to_make, changed_since, back_already = [], [], []
    for change in changes:
        found = stored.get(change.entity, {}).get(change.key)
        if same_value(found, change.old):
            back_already.append(change)
        elif force or same_value(found, change.new):
            to_make.append(PlannedChange(entity=change.entity, key=change.key, old=found, new=change.old))
        else:
            changed_since.append((change, found))
    return InverseChange(to_make=tuple(to_make), changed_since=tuple(changed_since), back_already=tuple(back_already))


def contents_between(
    stored: Content, newest_first: Iterable[JournalEntry], *, store_url: str, first_ms: int, last_ms: int
) -> tuple[tuple[int, Content], ...]:
    """Return what a store held between two times, each content with the time from which on it did.

    An unconfirmed change counts as made where the store had its new value afterwards.

    Args:
        stored: What the store holds now.
        newest_first: The entries of the journal.
        store_url: The address of the store, as the journal has it.
        first_ms: The first time in ms since the epoch, from which on the first content is returned.
        last_ms: The last time in ms since the epoch.
    """
    content: dict[Entity, Mapping[str, float]] = dict(stored)
    found: list[tuple[int, Content]] = []
    for entry in newest_first:
        if entry.time_ms <= first_ms:
            break
        if entry.store_url == store_url:
            if entry.time_ms <= last_ms:
                found.append((entry.time_ms, dict(content)))
            for change in reversed(entry.changes):
                quotas = dict(content.get(change.entity, {}))
                if entry.confirmed or same_value(quotas.get(change.key), change.new):
                    quotas.pop(change.key, None)
                    content[change.entity] = quotas if change.old is None else {**quotas, change.key: change.old}
    found.append((first_ms, content))
    return tuple(reversed(found))


def due_undos(entries: Sequence[JournalEntry], *, store_url: str, now_ms: int) -> tuple[Revert, ...]:
    """Return the changes to revert in a store at `now_ms`, newest first.

    A quota with a second temporary change that is not yet due waits for that one.
    """
    undos: list[Revert] = []
    held: set[tuple[Entity, str]] = set()  # quotas that a later change, still in force, has set
    reverted: dict[str, set[tuple[Entity, str]]] = {}
    for entry in reversed([entry for entry in entries if entry.store_url == store_url]):
        quotas = entry.quotas
        if entry.reverts is not None:
            if entry.settles is not None:  # else it is tried again, and settled once the quota is found back
                reverted.setdefault(entry.settles, set()).update(quotas)
            continue
        in_force = quotas - reverted.get(entry.entry_id, set())
        is_due = entry.undo_at_ms is not None and entry.undo_at_ms <= now_ms
        undone = in_force - held if is_due else set()
        if undone:
            changes = tuple(change for change in entry.changes if (change.entity, change.key) in undone)
            undos.append(Revert(entry_id=entry.entry_id, changes=changes))
        held |= in_force - undone
    return tuple(undos)


def settled_ids(entries: Sequence[JournalEntry]) -> set[str]:
    """Return the ids of all entries that another entry has certainly reverted."""
    return {entry.settles for entry in entries if entry.settles is not None}


def stores_with_undos(entries: Sequence[JournalEntry], *, now_ms: int) -> tuple[str, ...]:
    """Return the sorted addresses of the stores with changes to revert at `now_ms`."""
    urls = sorted({entry.store_url for entry in entries if entry.undo_at_ms is not None})
    return tuple(url for url in urls if due_undos(entries, store_url=url, now_ms=now_ms))
