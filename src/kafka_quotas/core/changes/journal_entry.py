"""The changes of one run as a line of the journal, and their reverts.

    {"id": "20261121-151542-3f2a9c", "time": "2026-11-21T15:15:42.123Z", "command": "alter", "user": "ops",
     "store": "zk://...", "changes": [{"entity": {"user": "alice"}, "key": "producer_byte_rate", "old": null,
     "new": 1048576}], "reason": "ticket 42", "undo_at": "2026-11-21T17:15:42.123Z"}

Contract: reverting a temporary change restores the value before it, the newest first, so that changes on top of one
another end at the oldest value. A change no longer needs a revert once an entry reverts it, or once this program makes
a later, permanent change to the same quota, which the journal then has.

Invariants: one entry is one line. `undo_at`, `reverts` and `reason` appear only if they are set, `confirmed` only if
it is false, which means that the store may or may not have the changes. The journal keeps a change whose old and new
value are the same, because it cancels an earlier `undo_at`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from kafka_quotas.core.changes.plan import Content, PlannedChange, change_document, change_from, same_value, text_in
from kafka_quotas.core.clock import format_instant, parse_instant
from kafka_quotas.core.described import Described, Instant, StoreAddress
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.model.entity import Entity


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """The changes that one run made in one store, when, by whom and why."""

    entry_id: str
    time_ms: int
    command: str
    user: Annotated[str, Described(text="who made the change")]
    store_url: StoreAddress
    changes: tuple[PlannedChange, ...]
    reason: str | None = None
    undo_at_ms: int | None = None
    """The time to revert the changes; None: they stay."""
    reverts: Annotated[str | None, Described(text="the id of the entry that it undid")] = None
    confirmed: bool = True
    """False if the changes were sent and their result is unknown."""

    @property
    def time(self) -> Instant:
        """The time of the changes as text."""
        return format_instant(self.time_ms)

    @property
    def undo_at(self) -> Annotated[str | None, Described(text="when it is to be undone; null for never")]:
        """The time to revert the changes as text."""
        return None if self.undo_at_ms is None else format_instant(self.undo_at_ms)

    @property
    def quotas(self) -> set[tuple[Entity, str]]:
        """The changed quotas by entity and key."""
        return {(change.entity, change.key) for change in self.changes}

    @property
    def settles(self) -> str | None:
        """The id of the entry that this one certainly reverts."""
        return self.reverts if self.confirmed else None


def new_entry_id(now_ms: int, random: bytes) -> str:
    """Return an id that sorts by time, made unique by three bytes, such as `20261121-151542-3f2a9c`."""
    day, _, time = format_instant(now_ms).partition("T")
    return f"{day.replace('-', '')}-{time[:8].replace(':', '')}-{random.hex()}"


def entry_line(entry: JournalEntry) -> str:
    """Return the entry as one line of JSON, line end included."""
    optional = {
        "reason": entry.reason,
        "undo_at": entry.undo_at,
        "reverts": entry.reverts,
        "confirmed": None if entry.confirmed else False,
    }
    document = {
        "id": entry.entry_id,
        "time": entry.time,
        "command": entry.command,
        "user": entry.user,
        "store": entry.store_url,
        "changes": [change_document(change) for change in entry.changes],
        **{name: value for name, value in optional.items() if value is not None},
    }
    return json.dumps(document) + "\n"


def entry_from(line: str) -> JournalEntry:
    """Return the entry in a line, or raise a `UsageError` for a damaged one."""
    try:
        document = load_json(line)
        undo_at = document.get("undo_at")
        return JournalEntry(
            entry_id=text_in(document["id"]),
            time_ms=parse_instant(document["time"]),
            command=text_in(document["command"]),
            user=text_in(document["user"]),
            store_url=text_in(document["store"]),
            changes=tuple(change_from(change) for change in document["changes"]),
            reason=_optional_text(document.get("reason")),
            undo_at_ms=None if undo_at is None else parse_instant(undo_at),
            reverts=_optional_text(document.get("reverts")),
            confirmed=document.get("confirmed") is not False,
        )
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, UsageError) as error:
        raise UsageError(f"no entry of a journal: {type(error).__name__}") from error


def _optional_text(value: object) -> str | None:
    return None if value is None else text_in(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class InverseChange:
    """The inverse of some changes."""

    to_make: tuple[PlannedChange, ...]
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


def due_undos(entries: Sequence[JournalEntry], *, store_url: str, now_ms: int) -> tuple[JournalEntry, ...]:
    """Return the entries to revert in a store at `now_ms`, newest first, with the changes to revert alone.

    A quota with a second temporary change that is not yet due waits for that one.
    """
    undos: list[JournalEntry] = []
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
            undos.append(replace(entry, changes=changes))
        held |= in_force - undone
    return tuple(undos)


def settled_ids(entries: Sequence[JournalEntry]) -> set[str]:
    """Return the ids of all entries that another entry has certainly reverted."""
    return {entry.settles for entry in entries if entry.settles is not None}


def stores_with_undos(entries: Sequence[JournalEntry], *, now_ms: int) -> tuple[str, ...]:
    """Return the sorted addresses of the stores with changes to revert at `now_ms`."""
    urls = sorted({entry.store_url for entry in entries if entry.undo_at_ms is not None})
    return tuple(url for url in urls if due_undos(entries, store_url=url, now_ms=now_ms))
