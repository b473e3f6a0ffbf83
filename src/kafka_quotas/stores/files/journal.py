"""The journal: files of JSON lines on this machine that record each change, its store, its author and its reason.

Contract: each entry is one write to a file opened for appending, which lets several processes write at once. A line
that a full disk cut short damages no other. No entry is ever changed. A file of 16 MiB is put aside, and of those the
oldest is removed once there are more than seven and nothing in it is still to be undone. Invariants: the files belong
to the user alone (mode 0600). Reading never creates one, and begins with the newest entry.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from kafka_quotas.core.changes.journal_entry import JournalEntry, entry_from, entry_line
from kafka_quotas.core.changes.revert import due_undos, stores_with_undos
from kafka_quotas.core.errors import StoreError, UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.files.journal_files import JournalFiles, lines_from_end

FULL_BYTES: Final = 16 * 1024 * 1024
"""Size at which a file is put aside; 100,000 changes take about 20 MB."""
FILES_KEPT: Final = 7
"""Full files beside the current one, enough to undo a run that changes 400,000 quotas."""
_MARKS: Final = (b'"undo_at": ', b'"reverts": ')
"""Texts in the lines of entries that are to be undone, and of those that undo them."""
_END_OF_TIME_MS: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContent:
    """Entries of the journal."""

    entries: tuple[JournalEntry, ...]
    """The entries, in the order in which they were written."""
    damaged_lines: int = 0
    """The number of lines that could not be parsed."""


class Journal:
    """The journal in the file at `path`, which the first entry creates together with its folder."""

    def __init__(self, path: Path, *, full_bytes: int = FULL_BYTES, files_kept: int = FILES_KEPT) -> None:
        self.path = path
        self._files = JournalFiles(path)
        self._full_bytes = full_bytes
        self._files_kept = files_kept

    def append(self, entry: JournalEntry) -> None:
        """Write an entry after the last one.

        Raises:
            StoreError: The entry can't be written, or not whole.
        """
        line = entry_line(entry).encode()
        try:
            self._put_aside()
            with self._files.writing() as descriptor:
                if _ends_inside_a_line(descriptor):
                    line = b"\n" + line
                written = os.write(descriptor, line)
        except OSError as error:
            raise StoreError(f"cannot write the journal {self.path}: {error.strerror or error}") from error
        if written < len(line):
            raise StoreError(f"cannot write the journal {self.path}: the disk is full")

    def read(self, *, limit: int | None = None, of: Callable[[str], bool] = lambda _: True) -> JournalContent:
        """Return the last `limit` entries (None: all) of the chosen stores, and the number of damaged lines."""
        damaged: list[bytes] = []
        newest = list(islice((each for each in self.newest_first(damaged) if of(each.store_url)), limit))
        return JournalContent(entries=tuple(reversed(newest)), damaged_lines=len(damaged))

    def newest_first(self, damaged: list[bytes] | None = None) -> Iterator[JournalEntry]:
        """Yield the entries from the newest on, and collect damaged lines in `damaged`."""
        for line in self._lines():
            entry = _entry(line)
            if entry is not None:
                yield entry
            elif damaged is not None:
                damaged.append(line)

    def since_oldest_pending(self) -> tuple[JournalEntry, ...]:
        """Return the entries from the oldest one that may still have to be undone, in their order.

        None of them has to be undone where the result is empty. Only lines with a mark of `_MARKS` are parsed to find
        it.
        """
        reverted: dict[str, set[tuple[Entity, str]]] = {}
        length = 0
        for number, line in enumerate(self._lines(), start=1):
            entry = _entry(line) if any(mark in line for mark in _MARKS) else None
            if entry is None:
                continue
            if entry.settles is not None:
                reverted.setdefault(entry.settles, set()).update(entry.quotas)
            elif entry.undo_at_ms is not None and entry.quotas - reverted.get(entry.entry_id, set()):
                length = number
        found = (_entry(line) for line in islice(self._lines(), length))
        return tuple(reversed([entry for entry in found if entry is not None]))

    def _lines(self) -> Iterator[bytes]:
        try:
            with self._files.reading() as files:
                for file in files:
                    yield from lines_from_end(file)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot read the journal {self.path}: {error.strerror or error}") from error

    def _put_aside(self) -> None:
        """Put a full current file aside, and remove the oldest file that is not needed."""
        try:
            if self.path.stat().st_size < self._full_bytes:
                return
        except FileNotFoundError:
            return
        with self._files.writing() as descriptor:
            if os.fstat(descriptor).st_size < self._full_bytes:
                return  # another process was faster
            self._files.rotate()
        older = self._files.older()
        if len(older) > self._files_kept and not self._is_needed(older[-1]):
            older[-1].unlink(missing_ok=True)

    def _is_needed(self, path: Path) -> bool:
        """Return whether something in an old file is still to be undone."""
        with path.open("rb") as file:
            ids = {entry.entry_id for line in lines_from_end(file) if _MARKS[0] in line and (entry := _entry(line))}
        if not ids:
            return False
        entries = self.since_oldest_pending()
        return any(
            undo.entry_id in ids
            for url in stores_with_undos(entries, now_ms=_END_OF_TIME_MS)
            for undo in due_undos(entries, store_url=url, now_ms=_END_OF_TIME_MS)
        )


def default_journal_path() -> Path:
    """Return the default path of the journal: `journal.jsonl` in the user's state folder."""
    from platformdirs import user_state_path  # noqa: PLC0415 - only who writes or reads the journal needs it

    return user_state_path("kafka-quotas", appauthor=False) / "journal.jsonl"


def _entry(line: bytes) -> JournalEntry | None:
    """Return the entry in a line, None where it is damaged."""
    try:
        return entry_from(line.decode())
    except (UsageError, UnicodeDecodeError):
        return None


def _ends_inside_a_line(descriptor: int) -> bool:
    """Return whether the last line was cut short, which calls for a line end before the next one."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
