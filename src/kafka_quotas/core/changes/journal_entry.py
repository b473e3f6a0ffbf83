"""The changes of one run, as a line of the journal.

    {"id": "20261121-151542-3f2a9c", "time": "2026-11-21T15:15:42.123Z", "command": "alter", "user": "ops",
     "store": "zk://...", "changes": [{"entity": {"user": "alice"}, "key": "producer_byte_rate", "old": null,
     "new": 1048576}], "reason": "ticket 42", "undo_at": "2026-11-21T17:15:42.123Z"}

Invariants: one entry is one line. `undo_at`, `reverts` and `reason` appear only if they are set, `confirmed` only if
it is false, which means that the store may or may not have the changes. The journal keeps a change whose old and new
value are the same, because it cancels an earlier `undo_at`.
"""

import json
from dataclasses import dataclass

from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.changes.plan_file import change_document, change_from, text_in
from kafka_quotas.core.clock import format_instant, parse_instant
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.model.entity import Entity


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """The changes that one run made in one store, when, by whom and why."""

    entry_id: str
    time_ms: int
    command: str
    user: str
    store_url: str
    changes: tuple[PlannedChange, ...]
    reason: str | None = None
    undo_at_ms: int | None = None
    """The time to revert the changes; None: they stay."""
    reverts: str | None = None
    """The id of the entry that these changes revert."""
    confirmed: bool = True
    """False if the changes were sent and their result is unknown."""

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
        "undo_at": None if entry.undo_at_ms is None else format_instant(entry.undo_at_ms),
        "reverts": entry.reverts,
        "confirmed": None if entry.confirmed else False,
    }
    document = {
        "id": entry.entry_id,
        "time": format_instant(entry.time_ms),
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
