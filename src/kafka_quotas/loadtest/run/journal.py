"""The journal of one run: its changes outside the process, written before it makes them, for a revert; and its quotas.

    {"kind": "run", "schema": "kafka-quotas.load-journal/1", "run": "3f..", "scenario": "isolation", ...}
    {"kind": "topics", "prefix": "kafka-quotas-3f..-"}
    {"kind": "quotas", "changes": [{"entity": {..}, "key": "..", "old": null, "new": 5000000}]}
    {"kind": "folder", "path": "/tmp/kafka-quotas-.."}

Invariants: a line is on the disk before the run makes the change that it announces. The run locks the file as long as
it lives, so that nobody reverts what it still needs, and deletes it when everything is reverted. A truncated last line
announces a change that was never made.
"""

import fcntl
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import IO, Any, Final

from kafka_quotas.core.changes.plan import PlannedChange, change_document, change_from
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaKey,
    Unit,
)
from kafka_quotas.core.model.value_format import format_byte_rate, format_quota_value
from kafka_quotas.core.resolution.effective import ANONYMOUS, EffectiveQuota, EffectiveQuotas
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.stores.store import QuotaEntry, Store, alterations_of, content_of, errors_of

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
        self.write("topics", prefix=prefix)
        self.owed[prefix] += 1

    def quotas(self, changes: Sequence[PlannedChange]) -> None:
        """Announce changes of quotas, settled as `QUOTAS`."""
        if changes:
            self.write("quotas", changes=[change_document(change) for change in changes])
            self.owed[QUOTAS] += 1

    def folder(self, path: Path) -> None:
        """Announce a folder that only this run needs, settled under its path."""
        self.write("folder", path=str(path))
        self.owed[str(path)] += 1

    def settle(self, what: str) -> None:
        """Remove one announcement of what is reverted from those that are owed."""
        self.owed -= Counter((what,))

    def write(self, kind: str, **line: Any) -> None:
        """Write a line of a kind."""
        try:
            self._file.write(json.dumps({"kind": kind, **line}, ensure_ascii=False).encode() + b"\n")
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
        journal.write("run", schema=JOURNAL_SCHEMA, **asdict(header))
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
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield _unfinished(path, file.read())


def _unfinished(path: Path, content: bytes) -> UnfinishedRun:
    # Without a first line there is no announcement, and so no change.
    header = RunHeader(run=path.stem, scenario="", started_ms=0, bootstrap="", store="", command_config=None)
    changes: list[PlannedChange] = []
    named: dict[str, list[str]] = {"prefix": [], "path": []}
    try:
        for line in content.split(b"\n")[:-1]:  # after the last line end is nothing, or a truncated line
            document = load_json(line)
            match document["kind"]:
                case "run":
                    header = _header(document)
                case "quotas":
                    changes += map(change_from, document["changes"])
                case "topics" | "folder" as kind:
                    name = "prefix" if kind == "topics" else "path"
                    named[name].append(str(document[name]))
    except (KeyError, TypeError, ValueError, AttributeError, KafkaQuotasError) as error:
        raise RunJournalError(
            f"the journal {path} is damaged: {type(error).__name__} {error}",
            hint="read it, put back by hand what it lists, and remove it",
        ) from error
    prefixes, folders = map(tuple, named.values())
    return UnfinishedRun(path=path, header=header, changes=tuple(changes), prefixes=prefixes, folders=folders)


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


LOCAL_ADDRESS = "127.0.0.1"
"""Assumed address of the clients of a run, whose connection quota applies to them."""

KEY_OF = {
    Workload.PRODUCE: PRODUCER_BYTE_RATE,
    Workload.CONSUME: CONSUMER_BYTE_RATE,
    Workload.REQUESTS: REQUEST_PERCENTAGE,
    Workload.MUTATE: CONTROLLER_MUTATION_RATE,
    Workload.CONNECT: CONNECTION_CREATION_RATE,
}
"""The quota that limits each workload most directly."""


InForce = Mapping[tuple[ClientName, QuotaKey], EffectiveQuota]
"""Quotas that apply to the clients of a run, by client and key, without limits that mean unlimited."""


def quotas_in_force(entries: Iterable[QuotaEntry], names: Sequence[ClientName]) -> InForce:
    """Return the quotas that apply to each client under every key, given all entries of a store."""
    resolver = EffectiveQuotas(entries)
    from_here = resolver.for_ip(LOCAL_ADDRESS)
    return {
        (name, quota.key): replace(quota, limit=None) if (quota.limit or 0) >= quota.key.unlimited else quota
        for name in names
        for quota in (*resolver.for_client(name.user or ANONYMOUS, name.client_id or ""), from_here)
    }


def stored_in_force(
    store: Store, names: Sequence[ClientName], changed: Iterable[tuple[Entity, Mapping[str, float]]] = ()
) -> InForce:
    """Return the quotas that apply to each client by a store, once those of some entities are changed."""
    content = content_of(store)
    for entity, values in changed:
        content[entity] = {**content.get(entity, {}), **values}
    return quotas_in_force(itertools.starmap(QuotaEntry, content.items()), names)


def differences(before: InForce, after: InForce) -> tuple[str, ...]:
    """Return the limits that differ, one line for all clients with the same change."""
    changed: dict[tuple[QuotaKey, float | None, float | None], list[ClientName]] = {}
    for (name, key), quota in after.items():
        old = before[name, key].limit
        if quota.limit != old:
            changed.setdefault((key, old, quota.limit), []).append(name)
    return tuple(
        f"{key.name} of {names[0].label}: {_shown(key, old)} became {_shown(key, new)}"
        + (f" (and of {len(names) - 1} others)" if len(names) > 1 else "")
        for (key, old, new), names in changed.items()
    )


def _shown(key: QuotaKey, limit: float | None) -> str:
    if limit is None:
        return "no limit"
    return format_byte_rate(limit) if key.unit is Unit.BYTES_PER_SECOND else format_quota_value(key, limit)


Wanted = Iterable[tuple[Entity, Mapping[str, float | None]]]
"""Entities with the wanted values of their keys, None to remove a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertedQuotas:
    """The outcome of a revert, by change."""

    restored: tuple[PlannedChange, ...] = ()
    unchanged: tuple[PlannedChange, ...] = ()
    foreign: tuple[PlannedChange, ...] = ()
    """Changed by somebody else, and left alone."""


def changes_to(store: Store, wanted: Wanted) -> tuple[PlannedChange, ...]:
    """Return the changes that give the keys their wanted values, without the keys that have them already."""
    stored = content_of(store)
    return tuple(
        PlannedChange(entity=entity, key=key, old=old, new=new)
        for entity, values in wanted
        for key, new in values.items()
        if (old := stored.get(entity, {}).get(key)) != new
    )


def make_changes(store: Store, changes: Iterable[PlannedChange]) -> None:
    """Store every change."""
    alterations = alterations_of(changes)
    for error in errors_of(store.alter(alterations) if alterations else ()).values():
        raise error


def revert_changes(store: Store, changes: Iterable[PlannedChange]) -> RevertedQuotas:
    """Revert the changes that are still in force and return the outcome.

    A key that was changed several times is reverted to its value before the first of its changes.
    """
    firsts: dict[tuple[Entity, str], PlannedChange] = {}
    made: dict[tuple[Entity, str], set[float | None]] = {}
    for change in changes:
        quota = (change.entity, change.key)
        firsts.setdefault(quota, change)
        made.setdefault(quota, set()).add(change.new)
    stored = content_of(store)
    restored: list[PlannedChange] = []
    unchanged: list[PlannedChange] = []
    foreign: list[PlannedChange] = []
    for quota, first in firsts.items():
        current = stored.get(first.entity, {}).get(first.key)
        (unchanged if current == first.old else restored if current in made[quota] else foreign).append(first)
    make_changes(store, (replace(change, old=change.new, new=change.old) for change in restored))
    return RevertedQuotas(restored=tuple(restored), unchanged=tuple(unchanged), foreign=tuple(foreign))
