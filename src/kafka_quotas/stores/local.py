"""The local store: quotas in one SQLite file, without a server, the default where no cluster is named.

Contract: KRaft's rules and our refusals decide which alterations are accepted. Beside Kafka's quotas the store holds
thresholds of topics and brokers, and refuses those of topics that add up to more than a broker's total. The accepted
alterations of one call are written in one transaction, and so are all groups, which are one document. The first write
creates the file, whole or not at all, and reading never does. Writers exclude each other by `BEGIN IMMEDIATE`, and
readers never wait (WAL). The next transaction notices that a file was deleted or replaced.

Invariants: `application_id` marks a file as ours, `user_version` numbers the schema. One row holds the revision, which
grows with every change of content, and a random id, which distinguishes a new file at the same path from the old one.
"""

import json
import os
import resource
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_from_bytes

from kafka_quotas.core.errors import (
    InvalidQuotaError,
    KafkaQuotasError,
    StoreError,
    StoreRefusedError,
    StoreUnreachableError,
    UsageError,
)
from kafka_quotas.core.model.entity import Entity, QuotaFilter, single_entity
from kafka_quotas.core.model.quota_key import ThresholdSettings, is_threshold_entity
from kafka_quotas.stores.address import StoreKind, StoreSettings, timeouts
from kafka_quotas.stores.store import NEVER_WRITTEN, Alteration, Polling, QuotaEntry, Snapshot, Store

if TYPE_CHECKING:
    from kafka_quotas.core.groups.group import Group

APPLICATION_ID: Final = 0x4B514F54
SCHEMA_VERSION: Final = 1
_SCHEMA: Final = (
    """CREATE TABLE quota (
        entity TEXT NOT NULL,
        key TEXT NOT NULL,
        value REAL NOT NULL,
        PRIMARY KEY (entity, key)
    ) WITHOUT ROWID""",
    "CREATE TABLE store (id TEXT NOT NULL, revision INTEGER NOT NULL)",
    "INSERT INTO store VALUES (lower(hex(randomblob(8))), 0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_GROUPS_TABLE: Final = "CREATE TABLE IF NOT EXISTS client_groups (document TEXT NOT NULL)"
"""Made by the first groups, so that a store without any is as older releases made it."""
_NEXT_REVISION: Final = "UPDATE store SET revision = revision + 1"
_RETRY_S: Final = 0.01
_NO_ACCESS: Final = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
_NO_SPACE: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
"""Errors of opening where the files of the write-ahead log can't grow."""


class LocalFile:
    """One SQLite file, for any number of threads and processes, which wait `timeout_s` for a lock."""

    def __init__(self, path: Path, *, timeout_s: float, make_folder: bool) -> None:
        self.path = path
        self._timeout_s = timeout_s
        self._make_folder = make_folder
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._closed = False
        self._no_space = False

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """Open a read transaction, which sees one moment of the file.

        Yields:
            The connection, None where no quota was ever stored.
        """
        with self._lock, _translated(self.path):
            connection = self._current()
            if connection is None or _is_blank(connection, self.path):
                yield None
                return
            with _transaction(connection, "BEGIN"):
                yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that holds the one write lock.

        The transaction is committed at the end of the block, or rolled back after an error.
        """
        with self._lock, _translated(self.path):
            connection = self._current() or self._create()
            if self._no_space:
                raise _full(self.path)
            if _is_blank(connection, self.path):
                self._make_tables(connection)
            with _transaction(connection, "BEGIN IMMEDIATE"):
                yield connection

    def close(self) -> None:
        """Release the connection, and refuse to open others."""
        with self._lock:
            self._closed = True
            self._release()

    def _release(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._identity = None
        self._no_space = False

    def _current(self) -> sqlite3.Connection | None:
        """Return the connection to the file that is at the path now, None where there is no file."""
        if self._closed:
            raise StoreError(f"the store was closed: local:{self.path}")
        try:
            status = os.stat(self.path)  # noqa: PTH116 - Path.stat() is the same call, twice as slow
        except FileNotFoundError:
            self._release()
            return None
        # SQLite would continue with the inode that it opened, after the file was deleted or replaced.
        identity = (status.st_dev, status.st_ino)
        if self._no_space:  # by now there may be some
            self._release()
        if self._connection is None or identity != self._identity:
            if self._connection is not None:
                self._release()
                # Beside a file that replaced an open one SQLite would apply the old log.
                if self._has_log():
                    log = f"{self.path.name}-wal and {self.path.name}-shm"
                    raise StoreError(
                        f"the local store was replaced while it was in use: {self.path}",
                        hint=f"stop what uses it, remove {log} beside it, start again",
                    )
            self._connection = self._opened()
            self._identity = identity
        return self._connection

    def _create(self) -> sqlite3.Connection:
        if self._make_folder:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        elif not self.path.parent.is_dir():
            raise StoreUnreachableError(
                f"the folder of the local store does not exist: {self.path.parent}",
                hint=f"make it: mkdir -p {self.path.parent}",
            )
        self._put_new_file()
        connection = self._current()
        if connection is None:
            raise StoreUnreachableError(f"the local store vanished while it was opened: {self.path}")
        return connection

    def _put_new_file(self) -> None:
        """Put a store without quotas at the path, whole or not at all, unless another process was faster."""
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            with closing(self._connect("rwc", new)) as connection:
                self._make_tables(connection)
            try:
                os.link(new, self.path)
            except FileExistsError:
                pass
            except OSError:  # a file system without links
                if not self.path.exists():
                    new.rename(self.path)
        finally:
            for end in ("", "-wal", "-shm", "-journal"):
                new.with_name(new.name + end).unlink(missing_ok=True)

    def _opened(self) -> sqlite3.Connection:
        """Return a connection to the existing file, read-only where no file can be written beside it."""
        connection = self._connect("rw")
        try:
            connection.execute("PRAGMA schema_version").fetchone()
        except sqlite3.OperationalError as error:
            connection.close()
            if _primary_code(error) not in (*_NO_ACCESS, *_NO_SPACE) or self._has_log():
                raise
            self._no_space = _primary_code(error) in _NO_SPACE
            # A write-ahead-log file wants a shared-memory file beside it, which can't be made here. With no log
            # left to read, the file alone is the whole content.
            return self._connect("ro&immutable=1")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _has_log(self) -> bool:
        log = self.path.with_name(self.path.name + "-wal")
        return log.exists() and log.stat().st_size > 0

    def _connect(self, mode: str, path: Path | None = None) -> sqlite3.Connection:
        return sqlite3.connect(
            # Path.as_uri loads urllib.request from Python 3.14 on, and with it the whole of HTTP.
            f"file://{quote_from_bytes(os.fsencode(path or self.path))}?mode={mode}",
            uri=True,
            timeout=self._timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        """Make a store of a blank file, with a write-ahead log, so that readers never wait for a writer."""

        def switched() -> bool:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if _primary_code(error) != sqlite3.SQLITE_BUSY:
                    raise
                return False
            return True

        # SQLite does not wait for its lock here, so two processes that create the file at once have to try again.
        Polling(_RETRY_S).until(switched, timeout_s=self._timeout_s)
        with _transaction(connection, "BEGIN IMMEDIATE"):
            if _is_blank(connection, self.path):
                for statement in _SCHEMA:
                    connection.execute(statement)


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_blank(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file has no content yet, and refuse one of something else or of a newer release."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if application_id == APPLICATION_ID:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise StoreRefusedError(
                f"the local store {path} was written by a newer kafka-quotas (schema {version})",
                hint="upgrade kafka-quotas, or choose another file with --store local:PATH",
            )
        return False
    if application_id == 0 and connection.execute("PRAGMA schema_version").fetchone()[0] == 0:
        return True
    raise StoreRefusedError(
        f"not a quota store but some other SQLite database: {path}", hint="choose another file with --store local:PATH"
    )


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _store_error(path, error) from error
    except OSError as error:
        raise StoreUnreachableError(
            f"cannot open the local store {path}: {error.strerror or error}",
            hint="choose another file with --store local:PATH",
        ) from error


def _primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code (the low byte of the extended one), 0 where the error has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _store_error(path: Path, error: sqlite3.Error) -> StoreError:
    match _primary_code(error):
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return StoreError(
                f"the local store is damaged or no store at all: {path}",
                hint="move the file away to start afresh, or try: sqlite3 FILE .recover",
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StoreRefusedError(
                f"the local store is read-only: {path}", hint="check who may write to the file and to its folder"
            )
        case sqlite3.SQLITE_FULL:
            return _full(path)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreError(
                f"another process kept the local store locked, nothing was changed: {path}",
                hint="try again; a program that holds a transaction open on the file blocks every writer",
            )
        case sqlite3.SQLITE_CANTOPEN:
            return StoreUnreachableError(
                f"cannot open the local store: {path}",
                hint="check that it is a file, and that file and folder may be read",
            )
        case _:
            return StoreError(f"the local store failed: {error} ({path})", hint=_hint_at_disk())


def _hint_at_disk() -> str:
    most_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if most_bytes != resource.RLIM_INFINITY:  # SQLite calls it an error of the disk as well
        return f"this process may not write files of more than {most_bytes} bytes; ulimit -f raises that"
    return "check the space left on its disk, and that the disk is sound"


def _full(path: Path) -> StoreError:
    return StoreError(f"no space left for the local store, nothing was changed: {path}", hint="free some space")


def excessive(
    alterations: Sequence[Alteration], stored: Callable[[], Iterable[QuotaEntry]]
) -> Mapping[Entity, InvalidQuotaError]:
    """Return the refused alterations of thresholds, with the reason by entity.

    Nothing is refused where all of them together fit, so that a total and the thresholds below it can be raised in any
    order in one call. Otherwise each is applied in turn, and those that do not fit are refused. `stored` is called only
    for a threshold among the alterations.
    """
    thresholds = [each for each in alterations if is_threshold_entity(each.entity)]
    content = {entity: quotas for entity, quotas in stored() if is_threshold_entity(entity)} if thresholds else {}
    if _refusal(_changed_by(content, thresholds)) is None:
        return {}
    refused: dict[Entity, InvalidQuotaError] = {}
    for alteration in thresholds:
        changed = _changed_by(content, [alteration])
        refusal = _refusal(changed)
        if refusal is None:
            content = changed
        else:
            refused[alteration.entity] = refusal
    return refused


def _changed_by(
    content: Mapping[Entity, Mapping[str, float]], alterations: Iterable[Alteration]
) -> dict[Entity, Mapping[str, float]]:
    changed = dict(content)
    for each in alterations:
        merged = {**changed.get(each.entity, {}), **each.changes}
        changed[each.entity] = {key: value for key, value in merged.items() if value is not None}
    return changed


def _refusal(content: Mapping[Entity, Mapping[str, float]]) -> InvalidQuotaError | None:
    try:
        ThresholdSettings.of(content.items())
    except InvalidQuotaError as error:
        return error
    return None


_DEFAULTS = StoreSettings()


class LocalStore(Store):
    """Quotas in the SQLite file at `path`, whose folder the first change creates too with `make_folder`."""

    kind = StoreKind.LOCAL
    interval_s = 0.05

    def __init__(
        self,
        path: Path,
        *,
        settings: StoreSettings = _DEFAULTS,
        make_folder: bool = False,
        polling: Polling | None = None,
    ) -> None:
        super().__init__(f"local:{path}", polling=polling)
        self._file = LocalFile(path, timeout_s=timeouts(settings).call_s, make_folder=make_folder)

    def _read(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        with self._file.reading() as connection:
            return _entries(connection, single_entity(quota_filter))

    def _write(self, accepted: Sequence[Alteration], *, validate_only: bool) -> list[KafkaQuotasError | None]:
        if validate_only:
            with self._file.reading() as reading:
                excess = excessive(accepted, lambda: _entries(reading))
        else:
            with self._file.writing() as connection:
                excess = excessive(accepted, lambda: _entries(connection))
                before = connection.total_changes
                for alteration in accepted:
                    if alteration.entity not in excess:
                        _apply(connection, alteration)
                if connection.total_changes != before:
                    connection.execute(_NEXT_REVISION)
        return [excess.get(alteration.entity) for alteration in accepted]

    def _read_groups(self) -> "tuple[Group, ...]":
        with self._file.reading() as connection:
            return self._groups(connection)

    def _write_groups(self, groups: "tuple[Group, ...]", expected: "tuple[Group, ...]") -> None:
        from kafka_quotas.core.groups.group_changes import groups_text  # noqa: PLC0415 - few stores have any

        with self._file.writing() as connection:
            found = self._groups(connection)
            if found == groups:
                return
            if found != expected:
                raise StoreRefusedError(
                    f"the groups have changed since they were read, nothing was changed: {self.url}",
                    hint="run it again",
                )
            connection.execute(_GROUPS_TABLE)
            connection.execute("DELETE FROM client_groups")
            connection.execute("INSERT INTO client_groups VALUES (?)", (groups_text(groups),))
            connection.execute(_NEXT_REVISION)

    def _groups(self, connection: sqlite3.Connection | None) -> "tuple[Group, ...]":
        table = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'client_groups'"
        if connection is None or connection.execute(table).fetchone() is None:
            return ()
        from kafka_quotas.core.groups.group_changes import groups_from  # noqa: PLC0415 - as above

        try:
            return groups_from(connection.execute("SELECT document FROM client_groups").fetchone()[0], self.url)
        except (UsageError, TypeError) as error:
            hint = f"remove them: sqlite3 {self._file.path} 'DROP TABLE client_groups'"
            raise StoreError(f"the groups of {self.url} are damaged: {error}", hint=hint) from error

    def _changed(self, since: str | None) -> Snapshot | None:
        with self._file.reading() as connection:
            revision = NEVER_WRITTEN
            if connection is not None:
                revision = "{}:{}".format(*connection.execute("SELECT id, revision FROM store").fetchone())
            if revision == since:
                return None
            entries = tuple(_entries(connection))
            return Snapshot(revision=revision, entries=entries, groups=self._groups(connection))

    def _release(self) -> None:
        self._file.close()


def _apply(connection: sqlite3.Connection, alteration: Alteration) -> None:
    entity = _encode(alteration.entity)
    for key, value in alteration.changes.items():
        if value is None:
            connection.execute("DELETE FROM quota WHERE entity = ? AND key = ?", (entity, key))
        else:
            connection.execute(
                "INSERT INTO quota VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value "
                "WHERE value <> excluded.value",
                (entity, key, value),
            )


def _entries(connection: sqlite3.Connection | None, only: Entity | None = None) -> list[QuotaEntry]:
    if connection is None:
        return []
    quotas: dict[str, dict[str, float]] = {}
    where, arguments = ("", ()) if only is None else (" WHERE entity = ?", (_encode(only),))
    for entity, key, value in connection.execute(f"SELECT entity, key, value FROM quota{where}", arguments):  # noqa: S608 - a constant
        quotas.setdefault(entity, {})[key] = value
    entries = [QuotaEntry(Entity.from_pairs(json.loads(text)), each) for text, each in quotas.items()]
    return sorted(entries, key=lambda entry: entry.entity.sort_key)


def _encode(entity: Entity) -> str:
    return json.dumps(entity.parts, ensure_ascii=False, separators=(",", ":"))
