"""The journal of one run: what it changes outside itself, written down before it is done, so that it can be undone.

    {"kind": "run", "schema": "kafka-quotas.load-journal/1", "run": "3f..", "scenario": "isolation", ...}
    {"kind": "topics", "prefix": "kafka-quotas-3f..-"}
    {"kind": "quotas", "changes": [{"entity": {..}, "key": "..", "old": null, "new": 5000000}]}
    {"kind": "folder", "path": "/tmp/kafka-quotas-.."}

Invariants: a line is on the disk before what it announces is done; the file is locked by its run as long as that
lives, so that nobody undoes what is still needed; it is gone when all is undone. A last line that was cut short
announced something that was never done.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.changes.plan_file import change_document, change_from
from kafka_quotas.core.errors import KafkaQuotasError

JOURNAL_SCHEMA: Final = "kafka-quotas.load-journal/1"
QUOTAS: Final = "quotas"
"""The name under which changes of quotas are settled."""
_SUFFIX: Final = ".jsonl"


class RunJournalError(KafkaQuotasError):
    """A journal could not be written or read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """Which run a journal is of, and where it makes its changes.

    `bootstrap` is what administers topics (empty: none are made that outlive the run), `store_url` where quotas are
    changed. `command_config` is the file of client properties for both, None without one.
    """

    run: str
    scenario: str
    started_ms: int
    bootstrap: str
    store_url: str
    command_config: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """What a journal says is to be undone: quotas in the order of their changes, prefixes of topics, folders."""

    path: Path
    place: RunPlace
    changes: tuple[PlannedChange, ...]
    prefixes: tuple[str, ...]
    folders: tuple[str, ...]


class RunJournal:
    """A journal that is being written. `owed` is what was announced and is not settled yet."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self.path = path
        self.owed: set[str] = set()

    def topics(self, prefix: str) -> None:
        """Nothing; topics with this prefix may be made from now on. Settled under the prefix."""
        self._write({"kind": "topics", "prefix": prefix})
        self.owed.add(prefix)

    def quotas(self, changes: Sequence[PlannedChange]) -> None:
        """Nothing; these changes may be made from now on. Settled as `QUOTAS`."""
        if not changes:
            return
        self._write({"kind": "quotas", "changes": [change_document(change) for change in changes]})
        self.owed.add(QUOTAS)

    def folder(self, path: Path) -> None:
        """Nothing; the folder holds what only this run needs. Settled under its path."""
        self._write({"kind": "folder", "path": str(path)})
        self.owed.add(str(path))

    def settle(self, what: str) -> None:
        """Nothing; what was announced under this name is undone."""
        self.owed.discard(what)

    def begin(self, place: RunPlace) -> None:
        """Nothing; the first line is written."""
        self._write(
            {
                "kind": "run",
                "schema": JOURNAL_SCHEMA,
                "run": place.run,
                "scenario": place.scenario,
                "started_ms": place.started_ms,
                "bootstrap": place.bootstrap,
                "store": place.store_url,
                "command_config": place.command_config,
            }
        )

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
def open_journal(folder: Path, place: RunPlace) -> Iterator[RunJournal]:
    """A new journal in the folder, locked while the context lasts. It stays behind if anything is still owed then.

    Raises `RunJournalError` where it can't be written.
    """
    path = folder / f"{place.run}{_SUFFIX}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = path.open("xb", buffering=0)
    except OSError as error:
        raise RunJournalError(
            f"can't make the journal {path}: {error.strerror or error}", hint="name another folder with --journal-dir"
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.chmod(0o600)
        journal = RunJournal(file, path)
        journal.begin(place)
        _sync_folder(folder)
        try:
            yield journal
        finally:
            if not journal.owed:
                path.unlink(missing_ok=True)


def default_journal_folder() -> Path:
    """Where journals of runs are: `load-test` in the user's state folder."""
    from platformdirs import user_state_path  # noqa: PLC0415 - only a run or a restore needs it

    return user_state_path("kafka-quotas", appauthor=False) / "load-test"


def journals(folder: Path) -> tuple[Path, ...]:
    """The journals in the folder, sorted by name."""
    return tuple(sorted(folder.glob(f"*{_SUFFIX}"))) if folder.is_dir() else ()


@contextmanager
def left_behind(path: Path) -> Iterator[Unfinished | None]:
    """What a journal says is to be undone, locked while the context lasts; None where its run still lives.

    Raises `RunJournalError` where it can't be read.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise RunJournalError(f"can't read the journal {path}: {error.strerror or error}") from error
    with file:
        yield _unfinished(path, file.read()) if _is_ours(file) else None


def _is_ours(file: IO[bytes]) -> bool:
    """Whether the lock was to be had, so that the journal's run is no more."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unfinished(path: Path, content: bytes) -> Unfinished:
    place: RunPlace | None = None
    changes: list[PlannedChange] = []
    prefixes: list[str] = []
    folders: list[str] = []
    try:
        for line in content.split(b"\n")[:-1]:  # behind the last line end is nothing, or a line cut short
            document = json.loads(line)
            match document["kind"]:
                case "run":
                    place = _place(document)
                case "quotas":
                    changes += [change_from(change) for change in document["changes"]]
                case "topics":
                    prefixes.append(str(document["prefix"]))
                case "folder":
                    folders.append(str(document["path"]))
    except (KeyError, TypeError, ValueError, AttributeError, KafkaQuotasError) as error:
        raise RunJournalError(
            f"the journal {path} is damaged: {type(error).__name__} {error}",
            hint="look what it says, put that back by hand, and remove it",
        ) from error
    if place is None:  # nothing was announced, so nothing was done
        place = RunPlace(run=path.stem, scenario="", started_ms=0, bootstrap="", store_url="", command_config=None)
    return Unfinished(path=path, place=place, changes=tuple(changes), prefixes=tuple(prefixes), folders=tuple(folders))


def _place(document: Mapping[str, Any]) -> RunPlace:
    if document["schema"] != JOURNAL_SCHEMA:
        raise ValueError(f"it is {document['schema']!r}, not {JOURNAL_SCHEMA}")
    return RunPlace(
        run=str(document["run"]),
        scenario=str(document["scenario"]),
        started_ms=int(document["started_ms"]),
        bootstrap=str(document["bootstrap"]),
        store_url=str(document["store"]),
        command_config=document["command_config"],
    )


def _sync_folder(folder: Path) -> None:
    """Nothing; the folder's entry of the new file is on the disk too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
