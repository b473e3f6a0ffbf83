"""Writing down what a run changes, and looking it up."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.changes.journal_entry import JournalEntry, new_entry_id
from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.clock import Clock, parse_instant
from kafka_quotas.core.errors import KafkaQuotasError, StoreError, UnconfirmedError, UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.files.journal import Journal

_WHOLE_ID: Final = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-[0-9a-f]{6}")
_CLOCK_STEP_MS: Final = 3_600_000
"""So far this machine's clock may have been set back during a run without hiding its first entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalWriter:
    """Writes the changes of one run of a command into the journal.

    A journal that can't be written costs a warning, never the change.
    """

    journal: Journal
    clock: Clock
    entry_id: str
    """Shared by all entries of the run, which are reverted together."""
    command: str
    user: str
    warn: Callable[[str], None]
    """Receives that warning."""
    reason: str | None = None

    def record(
        self,
        store_url: str,
        changes: Iterable[PlannedChange],
        *,
        undo_at_ms: int | None = None,
        reverts: str | None = None,
        confirmed: bool = True,
    ) -> bool:
        """Write the changes that were made in a store, or with `confirmed` False sent to it.

        Returns:
            Whether the journal holds them now.
        """
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
            confirmed=confirmed,
        )
        try:
            self.journal.append(entry)
        except StoreError as error:
            lost = "" if undo_at_ms is None else ", nor that it is to be undone"
            done = "made" if confirmed else "sent"
            self.warn(f"the change was {done}, but it is not in the journal{lost}: {error.message}")
            return False
        return True

    def record_outcomes(
        self,
        store_url: str,
        changes: Iterable[PlannedChange],
        errors: Mapping[Entity, KafkaQuotasError],
        *,
        undo_at_ms: int | None = None,
        reverts: str | None = None,
    ) -> bool:
        """Write the outcome of changes: those that were made, and separately those without confirmation.

        Args:
            store_url: The store that was changed.
            changes: All that was asked for, or is to be settled.
            errors: Why an entity failed. Refused changes are not written.
            undo_at_ms: When the journal schedules the revert, in milliseconds since the epoch, None for never.
            reverts: The id of the entry that the changes revert.

        Returns:
            Whether there was anything to write, and all of it is in the journal now.
        """
        made, unconfirmed = [], []
        for change in changes:
            error = errors.get(change.entity)
            if error is None:
                made.append(change)
            elif isinstance(error, UnconfirmedError):
                unconfirmed.append(change)
        written = [
            self.record(store_url, part, undo_at_ms=undo_at_ms, reverts=reverts, confirmed=part is made)
            for part in (made, unconfirmed)
            if part
        ]
        return bool(written) and all(written)


def new_run_id(clock: Clock) -> str:
    """Return an id for the entries of one run."""
    return new_entry_id(clock.now_ms(), os.urandom(3))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryResult:
    """The entries of the journal, oldest first, and how many of its lines could not be read."""

    entries: tuple[JournalEntry, ...]
    damaged_lines: int


def history(journal: Journal, *, limit: int | None = None) -> HistoryResult:
    """Return the last `limit` entries (None: all).

    Raises:
        StoreError: The journal can't be read.
    """
    content = journal.read(limit=limit)
    return HistoryResult(entries=content.entries, damaged_lines=content.damaged_lines)


def find_entries(journal: Journal, entry_id: str) -> tuple[JournalEntry, ...]:
    """Return the entries of the run with this id, or with the only id that has this prefix.

    `last` means the newest run.

    Raises:
        UsageError: No id has this prefix, or several do.
        StoreError: The journal can't be read.
    """
    found: list[JournalEntry] = []
    wanted, begin_ms = entry_id, _begin_ms(entry_id)
    for entry in journal.newest_first() if entry_id else ():
        if wanted == "last":
            wanted = entry.entry_id
            begin_ms = _begin_ms(wanted)
        if begin_ms is not None and entry.time_ms < begin_ms - _CLOCK_STEP_MS:
            break  # whatever comes now was written before that run began
        if entry.entry_id.startswith(wanted):
            found.append(entry)
    ids = {entry.entry_id for entry in found}
    if not found:
        raise UsageError(f"the journal has no entry {entry_id!r}", hint="kafka-quotas revert --list shows them")
    if len(ids) > 1 and wanted not in ids:
        raise UsageError(f"several entries begin with {entry_id!r}", hint=f"for example {', '.join(sorted(ids)[:3])}")
    return tuple(entry for entry in reversed(found) if entry.entry_id == wanted or wanted not in ids)


def _begin_ms(entry_id: str) -> int | None:
    """Return when the run of a whole id began (milliseconds since the epoch), None for any other text."""
    match = _WHOLE_ID.fullmatch(entry_id)
    if match is None:
        return None
    try:
        return parse_instant("{}-{}-{}T{}:{}:{}Z".format(*match.groups()))
    except ValueError:
        return None
