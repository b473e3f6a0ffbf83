"""Which files of an ingest are new or have grown, and the tasks that read them.

The table `events` knows the files of earlier ingests. A file that grows (a log) is recognised by its first bytes, under
any name and whether or not it was compressed since: rotation renames and compresses logs. A document is recognised by
its whole content and its name. Both are looked up within one broker of one cluster.

Invariant: an ingest reads the same bytes of the same log once, whatever the names and compressions of its copies.
"""

import codecs
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.metric_names import BUILT_IN, MetricNames
from kafka_quotas.pipeline.formats.lines import RemoteFile
from kafka_quotas.pipeline.formats.task import IngestTask, InputFormat, LargeLog
from kafka_quotas.pipeline.formats.timestamp import clocks_go_back, local_minute
from kafka_quotas.pipeline.ingest.sources import InspectedFile, digest, unreadable

PARSER_VERSION: Final = 2
"""Version of what the parsers make of a line, kept with each file: raise it where equal lines give other rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file, and how far it was read."""

    path: str
    form: str
    cluster: str
    broker_id: int | None
    head_bytes: int
    """Length of the recognised head."""
    head_sha256: str
    """Digest of the head, which identifies the file."""
    size: int
    """Size of the file itself, compressed or not."""
    read_to: int
    """End offset, in the uncompressed file, of the last line processed."""
    zone: str | None = None
    """Time zone that its stamps were read in."""
    parser: int = PARSER_VERSION
    """Version of the parser that read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The scope within which files with the same head are the same."""

    form: str
    cluster: str
    broker_id: int | None
    name: str
    """Name of a document, empty for a log."""


class KnownFiles:
    """The files that earlier ingests read."""

    def __init__(self, files: Iterable[ReadFile]) -> None:
        self._files: dict[tuple[_Place, int, str], ReadFile] = {}
        self._lengths: dict[_Place, set[int]] = {}
        self._paths: dict[tuple[_Place, int, str], set[str]] = {}
        for file in files:
            self.add(file)

    def add(self, file: ReadFile) -> None:
        """Add a file, in place of what is known of it from before."""
        place = _place(file)
        key = (place, file.head_bytes, file.head_sha256)
        self._files[key] = file
        self._paths.setdefault(key, set()).add(file.path)
        self._lengths.setdefault(place, set()).add(file.head_bytes)

    def find(self, file: ReadFile, head: bytes) -> ReadFile | None:
        """Return the entry of an earlier read of the file with this head, None if it is new."""
        return max((self._files[key] for key in self._keys(file, head)), key=lambda each: each.read_to, default=None)

    def paths(self, file: ReadFile, head: bytes) -> set[str]:
        """Return the names under which the file with this head was read, its own among them."""
        return {file.path}.union(*(self._paths[key] for key in self._keys(file, head)))

    def _keys(self, file: ReadFile, head: bytes) -> list[tuple[_Place, int, str]]:
        place = _place(file)
        if not InputFormat(file.form).grows:
            keys = [(place, file.head_bytes, file.head_sha256)]
        else:
            lengths = (length for length in self._lengths.get(place, ()) if length <= len(head))
            keys = [(place, length, digest(head[:length])) for length in lengths]
        return [key for key in keys if key in self._files]


def _place(file: ReadFile) -> _Place:
    name = "" if InputFormat(file.form).grows else Path(file.path).name
    return _Place(form=file.form, cluster=file.cluster, broker_id=file.broker_id, name=name)


COMPILED_FROM_BYTES: Final = 8 * 1024 * 1024
"""Bytes of request logs from which machine code scans them: less is read sooner than it is loaded."""
PIECE_BYTES: Final = 32 * 1024 * 1024
"""Size of the pieces of a large uncompressed file, which are read side by side."""
_CODECS: Final = (".gz", ".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".zstd", ".passthrough")
"""Names by which Spark takes a file for a packed one."""
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """The user's settings for all files."""

    cluster: str
    """Cluster of files whose paths name none."""
    broker_id: int | None = None
    """Broker of files whose paths name none."""
    zone: str | None = None
    """Time zone of timestamps without an offset."""
    input_format: InputFormat | None = None
    """Format of every file, None to detect it from the first bytes."""
    names: MetricNames = BUILT_IN

    def __post_init__(self) -> None:
        try:
            if self.zone is not None:
                ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise UsageError(f"unknown time zone {self.zone!r}", hint="for example UTC or Europe/Berlin") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """A file with lines to read, and the task that reads them."""

    inspected: InspectedFile
    described: ReadFile
    task: IngestTask
    replaced: frozenset[str] = frozenset()
    """Names of the file in rows of earlier ingests, whose place its rows take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestPlan:
    """The files to read and their tasks."""

    files: tuple[PlannedFile, ...]
    unchanged: int
    """Files that were read before or are found twice."""
    empty: int
    """Files without content."""
    unknown: tuple[str, ...] = ()
    """Files in folders, or matched by patterns, of no known format."""
    read_otherwise: tuple[str, ...] = ()
    """Unchanged files that were read in another time zone, or by another version of the parser."""

    def tasks(self, *, is_spark: bool = False) -> tuple[IngestTask, ...]:
        """Return the tasks by number, the largest files first, with large files cut into pieces.

        What is at URLs is left to Spark, which cuts it itself.
        """
        logs = [each for each in self.files if each.task.input_format is InputFormat.REQUEST_LOG]
        is_compiled = sum(each.inspected.unpacked - each.task.start for each in logs) >= COMPILED_FROM_BYTES
        pieces = [
            piece
            for file in self.files
            for piece in ([file.task] if is_spark and isinstance(file.task.path, RemoteFile) else _pieces(file))
        ]
        return tuple(
            replace(task, number=number, is_compiled=is_compiled and task.input_format is InputFormat.REQUEST_LOG)
            for number, task in enumerate(pieces)
        )

    @property
    def replaced(self) -> frozenset[str]:
        """Names of files in rows of earlier ingests that this one replaces."""
        return frozenset().union(*(each.replaced for each in self.files))

    @property
    def remote(self) -> tuple[str, ...]:
        """The URLs of files that are on no file system of this machine."""
        return tuple(each.task.path.url for each in self.files if isinstance(each.task.path, RemoteFile))

    @property
    def size(self) -> int:
        """About how many bytes the tasks read."""
        return sum(max(0, each.described.size - each.task.start) for each in self.files)


def plan_ingest(inspected: Iterable[InspectedFile], *, settings: IngestSettings, known: KnownFiles) -> IngestPlan:
    """Plan the reading of these files, the largest first.

    Raises:
        UsageError: The format, broker or time zone of a file is unknown.
        KafkaQuotasError: A file can't be read.
    """
    files: list[PlannedFile] = []
    unchanged = empty = 0
    read_otherwise: list[str] = []
    unknown: list[str] = []
    planned = KnownFiles(())
    for each in sorted(inspected, key=lambda each: (-each.unpacked, str(each.found.path))):
        if each.unpacked == 0:
            empty += 1
            continue
        if each.input_format is None:
            unknown.append(_unless_named(each))
            continue
        file = _plan_file(each, len(files), settings, input_format=each.input_format, known=known, planned=planned)
        if isinstance(file, ReadFile):
            unchanged += 1
            if file.parser != PARSER_VERSION or file.zone not in (None, settings.zone):
                read_otherwise.append(str(each.found.path))
            continue
        files.append(file)
        planned.add(replace(file.described, read_to=each.unpacked))
    if unknown and not files and not unchanged:
        _refuse_format(unknown[0])
    return IngestPlan(
        files=tuple(files),
        unchanged=unchanged,
        empty=empty,
        unknown=tuple(sorted(unknown)),
        read_otherwise=tuple(read_otherwise),
    )


def _unless_named(file: InspectedFile) -> str:
    """Return the name of a file of unknown format, unless the user named this very file."""
    if file.found.is_named:
        _refuse_format(str(file.found.path))
    return str(file.found.path)


def _plan_file(
    file: InspectedFile,
    number: int,
    settings: IngestSettings,
    *,
    input_format: InputFormat,
    known: KnownFiles,
    planned: KnownFiles,
) -> PlannedFile | ReadFile:
    """Plan the unread part of a file, or return the earlier or planned read of all of it."""
    found = file.found
    broker_id = settings.broker_id if found.broker_id is None else found.broker_id
    described = ReadFile(
        path=str(found.place),
        form=input_format.value,
        cluster=found.cluster or settings.cluster,
        broker_id=broker_id,
        head_bytes=file.head_bytes,
        head_sha256=file.head_sha256,
        size=file.size,
        read_to=0,
        zone=settings.zone if input_format is InputFormat.REQUEST_LOG else None,
    )
    if (same := planned.find(described, file.head)) is not None:
        return same  # a copy under another name; the largest comes first
    before = None if found.is_replacing else known.find(described, file.head)
    if before is not None and (not input_format.grows or _is_done(file, before)):
        return before
    if input_format is InputFormat.REQUEST_LOG:
        _check_origin(file, broker_id, settings.zone)
    task = IngestTask(
        number=0,
        file_number=number,
        path=found.place,
        input_format=input_format,
        cluster=described.cluster,
        broker_id=broker_id,
        zone=settings.zone,
        names=settings.names,
        ts_ms=file.modified_ms if found.time_ms is None else found.time_ms,
        start=0 if before is None else before.read_to,
        large=_large_log(file, input_format, settings.zone),
    )
    replaced = known.paths(described, file.head) if found.is_replacing else set()
    return PlannedFile(inspected=file, described=described, task=task, replaced=frozenset(replaced))


def _large_log(file: InspectedFile, input_format: InputFormat, zone: str | None) -> LargeLog | None:
    """Return how Spark reads a large log at a URL, None if it takes the content of the whole file."""
    name = str(file.found.place)
    is_named_so = name.endswith(".gz") if file.is_packed else not name.endswith(_CODECS)
    if not (file.is_large and input_format.grows and is_named_so) or file.head.startswith(codecs.BOM_UTF8):
        return None
    repeats = zone is not None and file.needs_zone and _repeats_hour(file, zone)
    is_in_order = file.is_packed or repeats or file.is_open_ended
    return LargeLog(unpacked=file.unpacked, is_packed=file.is_packed, is_in_order=is_in_order)


def _repeats_hour(file: InspectedFile, zone: str) -> bool:
    """Check whether clocks go back between the first line of a log and its last change."""
    minutes = map(local_minute, file.head.splitlines())
    first = next((minute for minute in minutes if minute is not None), None)
    return first is None or clocks_go_back(ZoneInfo(zone), first, file.modified_ms // _MINUTE_MS)


def _is_done(file: InspectedFile, before: ReadFile) -> bool:
    """Check that a log has not grown.

    Gzip records the size modulo 2^32 only.
    """
    if file.size == before.size:
        return True
    return file.unpacked == before.read_to % 2**32 if file.is_packed else file.unpacked <= before.read_to


def _check_origin(file: InspectedFile, broker_id: int | None, zone: str | None) -> None:
    path = file.found.place
    if broker_id is None:
        raise UsageError(
            f"{path} does not tell which broker wrote it",
            hint="--source 'logs/{broker_id}/*.log' takes it from the path, --broker-id N is for all files",
        )
    if zone is None and file.needs_zone:
        raise UsageError(
            f"the time stamps in {path} have no time zone", hint="--timezone Z, for example UTC or Europe/Berlin"
        )


def _refuse_format(path: str) -> NoReturn:
    names = ", ".join(InputFormat)
    raise UsageError(
        f"the form of {path} is unknown", hint=f"leave the file out, or name its form by --format: {names}"
    )


def _pieces(file: PlannedFile) -> list[IngestTask]:
    from kafka_quotas.pipeline.ingest.parse import begins_in_repeated_hour  # noqa: PLC0415 - loads orjson

    task, size = file.task, file.inspected.unpacked
    if not task.input_format.grows or file.inspected.is_packed or size - task.start <= PIECE_BYTES:
        return [task]
    inner = range(task.start + PIECE_BYTES, size, PIECE_BYTES)
    try:  # only who reads on knows whether the repeated hour has begun
        starts = [task.start, *(start for start in inner if not begins_in_repeated_hour(task, start))]
    except OSError as error:
        raise unreadable(task.path, error) from error
    return [replace(task, start=start, end=end) for start, end in zip(starts, [*starts[1:], None], strict=True)]
