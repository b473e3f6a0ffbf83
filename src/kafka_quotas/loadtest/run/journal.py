"""The journal of one run: its changes outside the process, written before it makes them, for a revert.

    {"kind": "run", "schema": "kafka-quotas.load-journal/1", "run": "3f..", "scenario": "isolation", ...}
    {"kind": "topics", "prefix": "kafka-quotas-3f..-"}
    {"kind": "quotas", "changes": [{"entity": {..}, "key": "..", "old": null, "new": 5000000}]}
    {"kind": "folder", "path": "/tmp/kafka-quotas-.."}

Invariants: a line is on the disk before the run makes the change that it announces. The run locks the file as long as
it lives, so that nobody reverts what it still needs, and deletes it when everything is reverted. A truncated last line
announces a change that was never made.
"""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Any, Final

from kafka_quotas.core.changes.plan import PlannedChange, change_document, change_from
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.formats.documents import load_json

JOURNAL_SCHEMA: Final = "kafka-quotas.load-journal/1"
QUOTAS: Final = "quotas"
"""Name for `settle` of the changes of quotas."""
_SUFFIX: Final = ".jsonl"
_UNLOCKED_SUFFIX: Final = ".new"


class RunJournalError(KafkaQuotasError):
    """A failure to write or read a journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """The run of a journal, and the cluster and store that the run changes."""

    run: str
    scenario: str
    started_ms: int
    bootstrap: str
    """Cluster whose topics the run administers, empty where no topic outlives the run."""
    store: str
    command_config: str | None
    """File of client properties for both, None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedRun:
    """The changes in a journal that are not reverted."""

    path: Path
    header: RunHeader
    changes: tuple[PlannedChange, ...]
    """Changes of quotas, in the order in which they were made."""
    prefixes: tuple[str, ...]
    folders: tuple[str, ...]


class RunJournal:
    """The open journal of a run in progress, with what is announced and not settled in `owed`."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self.path = path
        self.owed: Counter[str] = Counter()

    def topics(self, prefix: str) -> None:
        """Announce topics with this prefix, settled under the prefix."""
        self._write({"kind": "topics", "prefix": prefix})
        self.owed[prefix] += 1

    def quotas(self, changes: Sequence[PlannedChange]) -> None:
        """Announce changes of quotas, settled as `QUOTAS`."""
        if not changes:
            return
        self._write({"kind": "quotas", "changes": [change_document(change) for change in changes]})
        self.owed[QUOTAS] += 1

    def folder(self, path: Path) -> None:
        """Announce a folder that only this run needs, settled under its path."""
        self._write({"kind": "folder", "path": str(path)})
        self.owed[str(path)] += 1

    def settle(self, what: str) -> None:
        """Remove one announcement of what is reverted from those that are owed."""
        self.owed -= Counter((what,))

    def begin(self, header: RunHeader) -> None:
        """Write the first line, which names the run."""
        self._write({"kind": "run", "schema": JOURNAL_SCHEMA, **asdict(header)})

    def _write(self, line: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RunJournalError(
                f"can't write the journal {self.path}: {error.strerror or error}",
                hint="without it nothing could be put back after a crash, so nothing was changed",
            ) from error


@contextmanager
def open_journal(folder: Path, header: RunHeader) -> Iterator[RunJournal]:
    """Create a journal in the folder and lock it while the context lasts.

    At the end of the context the file is deleted, or kept if anything is still owed.

    Raises:
        RunJournalError: If the journal can't be written.
    """
    path = folder / f"{header.run}{_SUFFIX}"
    unlocked = path.with_suffix(_UNLOCKED_SUFFIX)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = unlocked.open("xb", buffering=0)
    except OSError as error:
        raise RunJournalError(
            f"can't make the journal {path}: {error.strerror or error}", hint="name another folder with --journal-dir"
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unlocked.chmod(0o600)
        journal = RunJournal(file, path)
        journal.begin(header)
        # Only now a restore can find it: one that locked it first would take the run for dead and delete its journal.
        unlocked.rename(path)
        _sync_folder(folder)
        try:
            yield journal
        finally:
            if not journal.owed:
                path.unlink(missing_ok=True)


def default_journal_folder() -> Path:
    """Return the folder for journals: `load-test` in the user's state folder."""
    from platformdirs import user_state_path  # noqa: PLC0415 - only a run or a restore needs it

    return user_state_path("kafka-quotas", appauthor=False) / "load-test"


def journals(folder: Path) -> tuple[Path, ...]:
    """Return the journals in the folder, sorted by name."""
    return tuple(sorted(folder.glob(f"*{_SUFFIX}"))) if folder.is_dir() else ()


@contextmanager
def unfinished_run(path: Path) -> Iterator[UnfinishedRun | None]:
    """Lock a journal while the context lasts and yield what is to be reverted.

    Yields:
        None if the journal's run is still alive.

    Raises:
        RunJournalError: If the journal can't be read.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise RunJournalError(f"can't read the journal {path}: {error.strerror or error}") from error
    with file:
        yield _unfinished(path, file.read()) if _is_ours(file) else None


def _is_ours(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unfinished(path: Path, content: bytes) -> UnfinishedRun:
    header: RunHeader | None = None
    changes: list[PlannedChange] = []
    prefixes: list[str] = []
    folders: list[str] = []
    try:
        for line in content.split(b"\n")[:-1]:  # after the last line end is nothing, or a truncated line
            document = load_json(line)
            match document["kind"]:
                case "run":
                    header = _header(document)
                case "quotas":
                    changes += [change_from(change) for change in document["changes"]]
                case "topics":
                    prefixes.append(str(document["prefix"]))
                case "folder":
                    folders.append(str(document["path"]))
    except (KeyError, TypeError, ValueError, AttributeError, KafkaQuotasError) as error:
        raise RunJournalError(
            f"the journal {path} is damaged: {type(error).__name__} {error}",
            hint="read it, put back by hand what it lists, and remove it",
        ) from error
    if header is None:  # without a first line there is no announcement, and so no change
        header = RunHeader(run=path.stem, scenario="", started_ms=0, bootstrap="", store="", command_config=None)
    return UnfinishedRun(
        path=path, header=header, changes=tuple(changes), prefixes=tuple(prefixes), folders=tuple(folders)
    )


def _header(document: Mapping[str, Any]) -> RunHeader:
    if document["schema"] != JOURNAL_SCHEMA:
        raise ValueError(f"it is {document['schema']!r}, not {JOURNAL_SCHEMA}")
    return RunHeader(**{field.name: document[field.name] for field in fields(RunHeader)})


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
