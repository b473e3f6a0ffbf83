"""The journal: files of JSON lines on this machine that record each change, its store, its author and its reason.

    {"id": "20261121-151542-3f2a9c", "time": "2026-11-21T15:15:42.123Z", "command": "alter", "user": "ops",
     "store": "zk://...", "changes": [{"entity": {"user": "alice"}, "key": "producer_byte_rate", "old": null,
     "new": 1048576}], "reason": "ticket 42", "undo_at": "2026-11-21T17:15:42.123Z"}

Contract: each entry is one line, and one write to a file opened for appending, which lets several processes write at
once. A line that a full disk cut short damages no other. No entry is ever changed. A file of 16 MiB is put aside, and
of those the oldest is removed once there are more than seven and nothing in it is still to be undone. Reverting a
temporary change restores the value before it, the newest first, so that changes on top of one another end at the oldest
value. A change no longer needs a revert once an entry reverts it, or once this program makes a later, permanent change
to the same quota, which the journal then has.

Invariants: the files are `NAME`, `NAME.1` (the newest full one), `NAME.2` and so on, all of mode 0600. Reading never
creates one, and begins with the newest entry. A process that writes or renames holds an exclusive lock on the current
one, and a process that opens them for reading a shared one. `undo_at`, `reverts`, `reason`, `groups` and `undo_groups`
appear only if they are set, `confirmed` only if it is false, which means that the store may or may not have the
changes. The journal keeps a change whose old and new value are the same, because it cancels an earlier `undo_at`.
"""

import errno
import fcntl
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Annotated, BinaryIO, Final

from kafka_quotas.core.changes.plan import KeptGroups, PlannedChange, change_document, change_from, groups_in, text_in
from kafka_quotas.core.clock import Clock, format_instant, parse_instant
from kafka_quotas.core.described import Described, Instant, StoreAddress
from kafka_quotas.core.errors import KafkaQuotasError, StoreError, UnconfirmedError, UsageError
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
    reverts: Annotated[str | None, Described(text="the id of the entry that it undid")] = None
    confirmed: bool = True
    """False if the changes were sent and their result is unknown."""
    groups: Annotated[tuple[str, ...], Described(text="groups of clients that it changed")] = ()
    undo_groups: KeptGroups | None = None
    """The way back for these groups, None in entries of earlier versions."""

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
        "groups": entry.groups or None,
        "undo_groups": entry.undo_groups and asdict(entry.undo_groups),
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
            groups=tuple(text_in(name) for name in document.get("groups", ())),
            undo_groups=groups_in(document.get("undo_groups")),
        )
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, UsageError) as error:
        raise UsageError(f"no entry of a journal: {type(error).__name__}") from error


def _optional_text(value: object) -> str | None:
    return None if value is None else text_in(value)


def due_undos(entries: Sequence[JournalEntry], *, store_url: str, now_ms: float = math.inf) -> tuple[JournalEntry, ...]:
    """Return the entries to revert in a store by `now_ms`, newest first, with the changes to revert alone.

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


def changed_quotas(entries: Iterable[JournalEntry]) -> set[tuple[Entity, str]]:
    """Return the quotas that entries change, by entity and key."""
    return {quota for entry in entries for quota in entry.quotas}


def settled_ids(entries: Sequence[JournalEntry]) -> set[str]:
    """Return the ids of all entries that another entry has certainly reverted."""
    return {entry.settles for entry in entries if entry.settles is not None}


def stores_with_undos(entries: Sequence[JournalEntry], *, now_ms: int) -> tuple[str, ...]:
    """Return the sorted addresses of the stores with changes to revert at `now_ms`."""
    urls = sorted({entry.store_url for entry in entries if entry.undo_at_ms is not None})
    return tuple(url for url in urls if due_undos(entries, store_url=url, now_ms=now_ms))


_PIECE: Final = 256 * 1024
"""Bytes read at a time, from the end."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContent:
    """Entries of the journal."""

    entries: tuple[JournalEntry, ...]
    damaged_lines: int = 0


class Journal:
    """The journal in the file at `path`, which the first entry creates together with its folder."""

    def __init__(self, path: Path, *, full_bytes: int = FULL_BYTES, files_kept: int = FILES_KEPT) -> None:
        self.path = path
        self._full_bytes = full_bytes
        self._files_kept = files_kept

    def append(self, entry: JournalEntry) -> None:
        """Write an entry after the last one."""
        line = entry_line(entry).encode()
        try:
            self._put_aside()
            with self._writing() as descriptor:
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
            with self._reading() as files:
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
        with self._writing() as descriptor:
            if os.fstat(descriptor).st_size < self._full_bytes:
                return  # another process was faster
            self._rotate()
        older = self._older()
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
            for url in {entry.store_url for entry in entries}
            for undo in due_undos(entries, store_url=url)
        )

    def _older(self) -> list[Path]:
        return list(takewhile(Path.exists, map(self._numbered, count(1))))

    @contextmanager
    def _writing(self) -> Iterator[int]:
        """Open the current file and lock it for the block.

        Yields:
            The descriptor of the file, open for appending.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as stack:
            while True:
                descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                stack.callback(os.close, descriptor)
                _lock(descriptor, fcntl.LOCK_EX)
                if _is_at(descriptor, self.path):
                    yield descriptor
                    return

    def _rotate(self) -> None:
        """Rename the current file, whose lock the caller holds, and renumber the older ones."""
        for number, path in reversed(list(enumerate(self._older(), start=1))):
            path.replace(self._numbered(number + 1))
        self.path.replace(self._numbered(1))

    @contextmanager
    def _reading(self) -> Iterator[Sequence[BinaryIO]]:
        """Open all files for the block, newest first, as they are at one moment."""
        with ExitStack() as stack:
            current = self._locked_current(stack)
            files: list[BinaryIO] = [] if current is None else [current]
            files += [stack.enter_context(path.open("rb")) for path in self._older()]
            if not files:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
            if current is not None:
                _lock(current.fileno(), fcntl.LOCK_UN)
            yield files

    def _locked_current(self, stack: ExitStack) -> BinaryIO | None:
        """Return the current file under a lock against renaming, None while no new one exists yet."""
        while True:
            try:
                current = stack.enter_context(self.path.open("rb"))
            except FileNotFoundError:
                return None
            _lock(current.fileno(), fcntl.LOCK_SH)
            if _is_at(current.fileno(), self.path):
                return current

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalWriter:
    """A writer of one run's changes into the journal, for which a journal that fails costs a warning only."""

    journal: Journal
    clock: Clock
    entry_id: str
    """Shared by all entries of the run, which are reverted together."""
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
        confirmed: bool = True,
        groups: Sequence[str] = (),
        undo_groups: KeptGroups | None = None,
    ) -> bool:
        """Write the changes made in a store, or sent to it, and return whether the journal holds them."""
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
            groups=tuple(groups),
            undo_groups=undo_groups,
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
        """Write the changes that were made, and separately those without confirmation, but no refused ones.

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

    def temporary_quotas(self, store_url: str) -> set[tuple[Entity, str]]:
        """Return the quotas of a store, by entity and key, that the journal is to revert at some time."""
        try:
            entries = self.journal.since_oldest_pending()
        except StoreError as error:
            self.warn(f"it is not known whether an earlier change is temporary: {error.message}")
            return set()
        return changed_quotas(due_undos(entries, store_url=store_url))


def new_run_id(clock: Clock) -> str:
    """Return an id for the entries of one run."""
    return new_entry_id(clock.now_ms(), os.urandom(3))


LAST: Final = "last"
"""Names the newest run that changed the store in use."""


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
