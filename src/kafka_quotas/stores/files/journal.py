"""The journal: files of JSON lines on this machine that record each change, its store, its author and its reason.

Contract: each entry is one write to a file opened for appending, which lets several processes write at once. A line
that a full disk cut short damages no other. No entry is ever changed. A file of 16 MiB is put aside, and of those the
oldest is removed once there are more than seven and nothing in it is still to be undone.

Invariants: the files are `NAME`, `NAME.1` (the newest full one), `NAME.2` and so on, all of mode 0600. Reading never
creates one, and begins with the newest entry. A process that writes or renames holds an exclusive lock on the current
one, and a process that opens them for reading a shared one.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, islice, takewhile
from pathlib import Path
from typing import BinaryIO, Final

from kafka_quotas.core.changes.journal_entry import JournalEntry, due_undos, entry_from, entry_line, stores_with_undos
from kafka_quotas.core.errors import StoreError, UsageError
from kafka_quotas.core.model.entity import Entity

_PIECE: Final = 256 * 1024
"""Bytes read at a time, from the end."""


class JournalFiles:
    """The files of the journal at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def older(self) -> list[Path]:
        """Return the existing full files, newest first."""
        return list(takewhile(Path.exists, map(self._numbered, count(1))))

    @contextmanager
    def writing(self) -> Iterator[int]:
        """Open the current file and lock it for the block.

        Yields:
            The descriptor of the file, open for appending.
        """
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as stack:
            while True:
                descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                stack.callback(os.close, descriptor)
                _lock(descriptor, fcntl.LOCK_EX)
                if _is_at(descriptor, self._path):
                    yield descriptor
                    return

    def rotate(self) -> None:
        """Rename the current file, whose lock the caller holds, and renumber the older ones."""
        for number, path in reversed(list(enumerate(self.older(), start=1))):
            path.replace(self._numbered(number + 1))
        self._path.replace(self._numbered(1))

    @contextmanager
    def reading(self) -> Iterator[Sequence[BinaryIO]]:
        """Open all files for the block, newest first, as they are at one moment."""
        with ExitStack() as stack:
            current = self._locked_current(stack)
            files: list[BinaryIO] = [] if current is None else [current]
            files += [stack.enter_context(path.open("rb")) for path in self.older()]
            if not files:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._path))
            if current is not None:
                _lock(current.fileno(), fcntl.LOCK_UN)
            yield files

    def _locked_current(self, stack: ExitStack) -> BinaryIO | None:
        """Return the current file under a lock against renaming, None while no new one exists yet."""
        while True:
            try:
                current = stack.enter_context(self._path.open("rb"))
            except FileNotFoundError:
                return None
            _lock(current.fileno(), fcntl.LOCK_SH)
            if _is_at(current.fileno(), self._path):
                return current

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def lines_from_end(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file without line ends, the last first, blank ones left out."""
    position = file.seek(0, os.SEEK_END)
    pieces: list[bytes] = []  # of the line that is not whole yet, its end first
    while position > 0:
        begin = max(0, position - _PIECE)
        file.seek(begin)
        head, *whole = file.read(position - begin).split(b"\n")
        position = begin
        if not whole:
            pieces.append(head)
            continue
        pieces.append(whole.pop())
        whole.append(b"".join(reversed(pieces)))
        pieces = [head]
        yield from (line for line in reversed(whole) if line.strip())
    rest = b"".join(reversed(pieces))
    if rest.strip():
        yield rest


def _lock(descriptor: int, operation: int) -> None:
    """Lock the file, where its kind of file has locks, for the journal may be `/dev/null`."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        return


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


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
    damaged_lines: int = 0


class Journal:
    """The journal in the file at `path`, which the first entry creates together with its folder."""

    def __init__(self, path: Path, *, full_bytes: int = FULL_BYTES, files_kept: int = FILES_KEPT) -> None:
        self.path = path
        self._files = JournalFiles(path)
        self._full_bytes = full_bytes
        self._files_kept = files_kept

    def append(self, entry: JournalEntry) -> None:
        """Write an entry after the last one."""
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
    try:
        return entry_from(line.decode())
    except (UsageError, UnicodeDecodeError):
        return None


def _ends_inside_a_line(descriptor: int) -> bool:
    """Return whether the last line was cut short, which calls for a line end before the next one."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
