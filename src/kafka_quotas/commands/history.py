"""Writing down what a run changes, and looking it up."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import StoreError, UsageError
from kafka_quotas.core.journal_entry import JournalEntry, new_entry_id
from kafka_quotas.core.plan import PlannedChange
from kafka_quotas.stores.journal import Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """Writes the changes of one run of `command` by `user` into the journal.

    All entries of a run share `entry_id`, so that they are undone together. A journal that can't be written costs a
    warning, never the change: `warn` takes that warning.
    """

    journal: Journal
    clock: Clock
    entry_id: str
    command: str
    user: str
    warn: Callable[[str], None]
    reason: str | None = None

    def record(
        self,
        store_url: str,
        changes: Iterable[PlannedChange],
        *,
        undo_at_ms: int | None = None,
        reverts: str | None = None,
    ) -> bool:
        """Whether the changes, which were made in a store, are in the journal now."""
        entry = JournalEntry(
            entry_id=self.entry_id,
            time_ms=self.clock.now_ms(),
            command=self.command,
            user=self.user,
            store_url=store_url,
            changes=tuple(changes),
            reason=self.reason,
            undo_at_ms=undo_at_ms,
            reverts=reverts,
        )
        try:
            self.journal.append(entry)
        except StoreError as error:
            lost = "" if undo_at_ms is None else ", nor that it is to be undone"
            self.warn(f"the change was made, but it is not in the journal{lost}: {error.message}")
            return False
        return True


def new_run_id(clock: Clock) -> str:
    """An id for the entries of one run."""
    return new_entry_id(clock.now_ms(), os.urandom(3))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryResult:
    """The entries of the journal, oldest first, and how many of its lines could not be read."""

    entries: tuple[JournalEntry, ...]
    damaged_lines: int


def history(journal: Journal, *, limit: int | None = None) -> HistoryResult:
    """The last `limit` entries (None: all).

    Raises `StoreError` where the journal can't be read.
    """
    content = journal.read()
    entries = content.entries if limit is None else content.entries[max(0, len(content.entries) - limit) :]
    return HistoryResult(entries=entries, damaged_lines=content.damaged_lines)


def find_entries(journal: Journal, entry_id: str) -> tuple[JournalEntry, ...]:
    """The entries of the run with this id, or with the one id that begins so; `last` is the newest run.

    Raises `UsageError` where there is none, or several begin so; `StoreError` where the journal can't be read.
    """
    entries = journal.read().entries
    if entry_id == "last" and entries:
        entry_id = entries[-1].entry_id
    ids = {entry.entry_id for entry in entries if entry.entry_id.startswith(entry_id)} if entry_id else set()
    found = {entry_id} if entry_id in ids else ids
    if not found:
        raise UsageError(f"the journal has no entry {entry_id!r}", hint="kafka-quotas revert --list shows them")
    if len(found) > 1:
        raise UsageError(f"several entries begin with {entry_id!r}", hint=f"for example {', '.join(sorted(found)[:3])}")
    return tuple(entry for entry in entries if entry.entry_id in found)
