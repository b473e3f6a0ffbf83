"""The journal: a file of JSON lines on this machine that says what was changed, in which store, by whom and why.

Contract: an entry is appended by one write to a file opened for appending, so several processes may write at once; a
line that a full disk cut short damages no other. Nothing is ever changed or removed.
Invariants: the file belongs to the user alone (mode 0600); reading never makes it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from kafka_quotas.core.errors import StoreError, UsageError
from kafka_quotas.core.journal_entry import JournalEntry, entry_from, entry_line


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContent:
    """The entries in the order in which they were written, and how many lines could not be read."""

    entries: tuple[JournalEntry, ...]
    damaged_lines: int = 0


class Journal:
    """The journal in the file at `path`; file and folder are made with the first entry."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, entry: JournalEntry) -> None:
        """Nothing; the entry is in the file.

        Raises `StoreError` where it can't be written, or not whole.
        """
        line = entry_line(entry).encode()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if _ends_inside_a_line(descriptor):
                    line = b"\n" + line
                written = os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError(f"cannot write the journal {self.path}: {error.strerror or error}") from error
        if written < len(line):
            raise StoreError(f"cannot write the journal {self.path}: the disk is full")

    def read(self) -> JournalContent:
        """What the journal holds; nothing where there is no file.

        Raises `StoreError` where it can't be read.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return JournalContent(entries=())
        except OSError as error:
            raise StoreError(f"cannot read the journal {self.path}: {error.strerror or error}") from error
        entries, damaged = [], 0
        for line in content.split(b"\n"):
            if not line.strip():
                continue
            try:
                entries.append(entry_from(line.decode()))
            except (UsageError, UnicodeDecodeError):
                damaged += 1
        return JournalContent(entries=tuple(entries), damaged_lines=damaged)


def default_journal_path() -> Path:
    """Where the journal is when nothing else was chosen: `journal.jsonl` in the user's state folder."""
    from platformdirs import user_state_path  # noqa: PLC0415 - only who writes or reads the journal needs it

    return user_state_path("kafka-quotas", appauthor=False) / "journal.jsonl"


def _ends_inside_a_line(descriptor: int) -> bool:
    """Whether the last line was cut short, so that the next one must not be glued to it."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
