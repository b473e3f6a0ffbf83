"""The files of a journal: the current one and full older ones, each read by lines from its end.

Invariants: the files are `NAME`, `NAME.1` (the newest full one), `NAME.2` and so on, all of mode 0600. A process that
writes or renames holds an exclusive lock on the current one, and a process that opens them for reading a shared one.
"""

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import BinaryIO, Final

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

        Raises:
            OSError: The file can't be opened.
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
        """Open all files for the block, newest first, as they are at one moment.

        Raises:
            FileNotFoundError: There is no journal.
            OSError: A file can't be read.
        """
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
    """Return whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
