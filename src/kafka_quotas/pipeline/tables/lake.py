"""The Delta tables of a data folder, read and written through delta-rs: no Java, any URL.

    DATA/events/        packed rows of events, partitioned by day, and what each ingest read
    DATA/quarantine/    metrics/ and client_throttle/ likewise, not partitioned

Contract: DATA is a bare path or a URL (`file:`, `s3a:`, `s3:`, `hdfs:`, `abfss:`, `gs:`). Credentials come from the
environment, as delta-rs and every tool of the cloud read them (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL` and so on).

Invariant: every reader of Delta sees whole ingests, each of which is one commit of `events`. Of concurrent ones
each but the first looks again at what has been read. Delta's transaction identifier has the number of the ingest.
"""

import errno
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import unescape

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.tables.schemas import DERIVED_TABLES, PACKED_EVENTS, TableSchema

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow import fs

    from kafka_quotas.pipeline.tables.staged_files import StagedFile

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_ANSWER: Final = re.compile(r"<Code>(.*?)</Code>\s*(?:<Message>(.*?)</Message>)?", re.DOTALL)
_VALUE: Final = re.compile(r"\[?[A-Z]\w* \{ ")
"""A value of Rust's, shown as programmers do, which ends what is meant for users."""
_KEYS: Final = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they allow"
_NEWER: Final = "a newer Delta Lake made the table so; upgrade deltalake here, and Delta Lake for Spark"
_HEAP: Final = "spark.driver.memory takes a size such as 4g, from 512m to what the machine has"
_HINTS: Final = MappingProxyType(
    {
        "URL scheme is not allowed": "AWS_ALLOW_HTTP=true allows http://",
        "NoSuchBucket": "make the bucket, or check its name and AWS_ENDPOINT_URL",
        "169.254.169.254": "no keys were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        "SignatureDoesNotMatch": _KEYS,
        "InvalidAccessKeyId": _KEYS,
        "AccessDenied": _KEYS,
        "Status Code: 403": _KEYS,
        "Kernel error: Unsupported": _NEWER,
        "Unsupported table features": _NEWER,
        "All DataNodes failed": "do the DataNodes run, and does this machine reach them?",
        "S3AFileSystem not found": "the jars of hadoop-aws are missing there; a Connect server needs them at its start",
        "No space left on device": "make room, also for Spark's spark.local.dir",
        "No FileSystem for scheme": "Hadoop needs jars for another scheme: --spark-conf spark.jars.packages",
        "Invalid maximum heap size": _HEAP,
        "Could not reserve enough space": _HEAP,
        "INVALID_DRIVER_MEMORY": _HEAP,
        "Connection refused": "nothing was changed; does the store run there?",
    }
)
"""What helps, by words of an error."""

# Read by delta-rs when it is loaded: else lines of Rust's come before the error, or where a replica in HDFS suffices.
os.environ.setdefault("RUST_LOG", "error")


def cause_of(error: Exception) -> str:
    """Return the innermost line of an error that delta-rs shows as a tree, or what the store answered."""
    if isinstance(error, OSError) and error.strerror:
        where = f" ({os.fsdecode(error.filename)})" if error.filename else ""
        return f"{error.strerror}{where}"
    if answer := _ANSWER.search(str(error)):
        code, message = answer.groups()
        return f"{' '.join(unescape(message).split())} ({code})" if message else code
    lines = [line.strip(" ↳") for line in _COLOURS.sub("", str(error)).splitlines()]
    plain = [line for line in takewhile(lambda line: not _VALUE.match(line), lines) if line]
    return plain[-1] if plain else type(error).__name__


def hint_of(text: str) -> str | None:
    """Return what helps against an error with this text, None if nothing is known."""
    return next((hint for words, hint in _HINTS.items() if words in text), None)


_FOLDERS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")


def hadoop_setting(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a setting by the first file that has it, None if none has."""
    folders = [environment[each] for each in _FOLDERS if environment.get(each)]
    if home := environment.get("HADOOP_HOME"):
        folders.append(f"{home}/etc/hadoop")
    values = (_setting_in(Path(folder, "core-site.xml"), name) for folder in folders)
    return next((each for each in values if each), None)


def _setting_in(file: Path, name: str) -> str | None:
    try:
        root = ET.parse(file).getroot()  # noqa: S314 - the user's own configuration
    except (OSError, ET.ParseError):
        return None
    values = [each.findtext("value", "").strip() for each in root.iter("property") if each.findtext("name") == name]
    return values[-1] if values else None


TRANSACTIONS: Final = "kafka-quotas"
"""Application of the transaction identifiers; the version is the number of an ingest."""
PARTITION: Final = "dt"
INDEXED: Final = ("cluster", "broker_id", "client", "hour")
"""Columns of events by whose bounds readers leave files out."""
_INDEXED: Final = "delta.dataSkippingStatsColumns"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_TEXT: Final = ("No space left on device", "Disk quota exceeded", "File too large")
_OVERTAKEN: Final = re.compile(r"oncurrent|transaction: \d+$")
"""What delta-rs says of a commit that another one came before."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_SLASHES: Final = re.compile("/{2,}")
_REFUSED: Final = re.compile(r"[\[\]^|\\]|%[0-9A-Fa-f]{2}")
_VACUUMED: Final = "did a VACUUM delete the files of this version?"
_HINT: Final = "kafka-quotas pipeline ingest writes it"
_UNKNOWN_SCHEME: Final = "Unknown scheme"
_SCHEMES: Final = "s3a:, hdfs:, abfss: and gs: are known; a path without a scheme is local"


class ConflictError(Exception):
    """Another change of the tables came first."""


def is_url(text: str) -> bool:
    """Check whether a place is named by a URL other than `file:`."""
    return bool(_SCHEME.match(text)) and urlsplit(text).scheme != "file"


def lake_url(text: str) -> str:
    """Return the place of a data folder as delta-rs names it, an absolute path for a local one.

    Raises:
        UsageError: The URL names no folder, or the path has characters with which delta-rs ends the process.
    """
    parts = urlsplit(text) if _SCHEME.match(text) else None
    if parts is None or parts.scheme == "file":
        path = text if parts is None else unquote(parts.path).rstrip("/") or "/"
        if refused := _REFUSED.search(path := str(Path(path).absolute())):
            raise UsageError(f"{path} can hold no Delta tables: {refused[0]} is in its name", hint="rename the folder")
        return path
    default = urlsplit(hadoop_setting("fs.defaultFS") or "")
    if not (host := parts.netloc or (default.netloc if default.scheme == parts.scheme else "")):
        raise UsageError(
            f"{text} names no bucket or host, and fs.defaultFS in core-site.xml of HADOOP_CONF_DIR none for it",
            hint="for example s3a://bucket/traffic, hdfs://host:8020/traffic",
        )
    scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
    path = _SLASHES.sub("/", parts.path)  # Hadoop takes several as one, and says so of every file
    return f"{scheme}://{host}{path.rstrip('/')}"


def hadoop_url(url: str) -> str:
    """Return the place of a data folder as Spark names it, from delta-rs' name.

    Hadoop takes a blank or a percent sign in a path as it stands.
    """
    if not _SCHEME.match(url):
        return f"file://{url}"
    return f"s3a{url.removeprefix('s3')}" if url.startswith("s3://") else url


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """The tables of one data folder."""

    url: str
    """Place of the folder, as `lake_url` returns it."""
    named: str | None = field(default=None, compare=False)
    """The same place in the user's words, None if it was not named."""

    @classmethod
    def of(cls, text: str) -> "Lake":
        """Return the tables of a folder that the user names by a path or URL."""
        return cls(url=lake_url(text), named=text.rstrip("/") if is_url(text) else None)

    @property
    def is_local(self) -> bool:
        """Whether the folder is on a file system of this machine."""
        return not _SCHEME.match(self.url)

    def place(self, table: TableSchema) -> str:
        """Return the place of a table."""
        return f"{self.url}/{table.name}"

    def shown(self, table: TableSchema | None = None) -> str:
        """Return the place of the folder, or of a table, for messages."""
        folder = self.named or self.url
        return folder if table is None else f"{folder}/{table.name}"

    def create(self) -> None:
        """Create the tables that are missing, `events` last."""
        with lake_errors(f"creating the tables in {self.shown()}"):
            for table in (*DERIVED_TABLES, PACKED_EVENTS):
                create_table(self.place(table), table)

    def exists(self) -> bool:
        """Check whether an ingest made the folder."""
        from deltalake import DeltaTable  # noqa: PLC0415 - the command's help must not load it

        if self.is_local and not Path(self.url).is_dir():
            return False
        with lake_errors(f"reading {self.shown()}"):
            return DeltaTable.is_deltatable(self.place(PACKED_EVENTS))

    def table(self, table: TableSchema, version: int | None = None) -> "DeltaTable":
        """Open a table, at an older version if one is named.

        Raises:
            UsageError: No ingest made the folder, or one of an earlier version, or there is no such version.
            KafkaQuotasError: The table can't be read.
        """
        from deltalake import DeltaTable  # noqa: PLC0415 - as above
        from deltalake.exceptions import TableNotFoundError  # noqa: PLC0415

        with lake_errors(f"reading {self.shown(table)}"):
            try:
                opened = DeltaTable(self.place(table))
            except TableNotFoundError as error:
                if _UNKNOWN_SCHEME in str(error):
                    raise
                raise UsageError(f"{self.shown()} holds no ingested data", hint=_HINT) from error
            known = {each.name for each in opened.schema().fields}
        if not known.issuperset(table.column_names):
            hint = "ingest the logs again, into another folder"
            raise UsageError(f"{self.shown()} was written by an earlier version", hint=hint)
        if version is not None:
            if not 0 <= version <= opened.version():
                hint = "the history of the Delta table events has them"
                raise UsageError(
                    f"{self.shown()} has no version {version}: there are 0 to {opened.version()}", hint=hint
                )
            with lake_errors(f"reading {self.shown(table)}"):
                opened.load_as_version(version)
        return opened

    def filesystem(self, table: TableSchema) -> "fs.FileSystem":
        """Return the file system below a table: Arrow's own for a local one, which is quicker than delta-rs'."""
        from pyarrow import fs  # noqa: PLC0415 - as above

        if self.is_local:
            return fs.SubTreeFileSystem(self.place(table), fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415

        return fs.PyFileSystem(DeltaStorageHandler(self.place(table)))

    def commit(
        self,
        table: TableSchema,
        opened: "DeltaTable",
        added: "Sequence[StagedFile]",
        removed: Iterable[str] = (),
        *,
        number: int | None = None,
        is_change: bool = True,
    ) -> int:
        """Commit files that are written already, leave `opened` there, and return the version.

        `opened` is the table as it was when the `removed` files were looked for, by their paths. `number` is that of
        the ingest, None for another change. Without `is_change` the rows stay, and only their files change.

        Raises:
            ConflictError: Another commit came after the table was opened, of whatever kind.
            KafkaQuotasError: The commit failed.
        """
        from deltalake import CommitProperties, Transaction  # noqa: PLC0415 - as above
        from deltalake.transaction import RemoveAction  # noqa: PLC0415

        now_ms = round(time.time() * 1000)
        gone = [RemoveAction(path=path, data_change=is_change, deletion_timestamp=now_ms) for path in removed]
        transactions = [] if number is None else [Transaction(TRANSACTIONS, number)]
        with lake_errors(f"writing {self.shown(table)}"):
            opened.create_write_transaction(
                [*(each.action(table, is_change=is_change) for each in added), *gone],
                "append",
                opened.schema(),
                [PARTITION] if PARTITION in table.column_names else [],
                # delta-rs would not notice that an OPTIMIZE took the files to remove
                commit_properties=CommitProperties(app_transactions=transactions, max_commit_retries=0),
            )
            opened.load_as_version(opened.version() + 1)  # its own commit alone: what came after it is not looked at
        return opened.version()


def create_table(place: str, table: TableSchema) -> None:
    """Create a table, partitioned by day where it has days, unless it is there."""
    from deltalake import DeltaTable  # noqa: PLC0415 - the command's help must not load it

    if not _SCHEME.match(place):
        Path(place).mkdir(parents=True, exist_ok=True)
    is_partitioned = PARTITION in table.column_names
    DeltaTable.create(
        place,
        table.arrow_schema(),
        mode="ignore",
        partition_by=[PARTITION] if is_partitioned else None,
        # figures of all columns would take Spark a fifth of the time that it needs to write events
        configuration={_INDEXED: ",".join(INDEXED)} if is_partitioned else None,
        name=table.name,
        description=table.doc,
    )


@contextmanager
def lake_errors(doing: str) -> Iterator[None]:
    """Convert the errors of delta-rs and Arrow in the block to a `KafkaQuotasError` of one line.

    Raises:
        ConflictError: Another commit came first.
        KafkaQuotasError: The operation failed for any other reason.
    """
    import pyarrow as pa  # noqa: PLC0415 - as above
    from deltalake.exceptions import CommitFailedError, DeltaError  # noqa: PLC0415

    try:
        yield
    except CommitFailedError as error:
        if not _OVERTAKEN.search(str(error)):
            raise KafkaQuotasError(f"{doing} failed: {cause_of(error)}", hint=hint_of(str(error))) from error
        raise ConflictError(str(error)) from error
    except (DeltaError, OSError, pa.ArrowException) as error:
        if is_full(error):
            hint = "nothing was changed; make room there"
            raise KafkaQuotasError(f"no room left while {doing}", hint=hint) from error
        if _UNKNOWN_SCHEME in str(error):
            raise UsageError(f"{doing} failed: the scheme of the URL is unknown", hint=_SCHEMES) from error
        hint = _VACUUMED if isinstance(error, FileNotFoundError) else hint_of(str(error)) or "nothing was changed"
        raise KafkaQuotasError(f"{doing} failed: {cause_of(error)}", hint=hint) from error


def is_full(error: Exception) -> bool:
    """Check whether an error is about a disk without room."""
    return (isinstance(error, OSError) and error.errno in _FULL) or any(text in str(error) for text in _FULL_TEXT)
