"""Which files of an ingest are new or have grown, and the tasks that read them.

The table `events` knows the files of earlier ingests. A file that grows (a log) is recognised by its first bytes, under
any name and whether or not it was compressed since: rotation renames and compresses logs. A document is recognised by
its whole content and its name. Both are looked up within one broker of one cluster.

Invariant: an ingest reads the same bytes of the same log once, whatever the names and compressions of its copies.
"""

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.metric_names import BUILT_IN, MetricNames, read_metric_names
from kafka_quotas.core.model.setting import TextForm, setting
from kafka_quotas.pipeline.formats.lines import RemoteFile, is_of_hadoop, read_blocks
from kafka_quotas.pipeline.formats.task import IngestTask, InputFormat, LargeLog, TaskCounts
from kafka_quotas.pipeline.formats.timestamp import begins_ambiguously
from kafka_quotas.pipeline.ingest.sources import HEAD_BYTES, InspectedFile, digest, unreadable

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


class KnownFiles:
    """The files that ingests read."""

    def __init__(self, files: Iterable[ReadFile]) -> None:
        self._reads: dict[tuple[object, ...], dict[tuple[int, str], list[ReadFile]]] = {}
        for file in files:
            self.add(file)

    def add(self, file: ReadFile) -> None:
        """Add a file, in place of what is known of it from before."""
        self._reads.setdefault(_place(file), {}).setdefault((file.head_bytes, file.head_sha256), []).append(file)

    def find(self, file: ReadFile, head: bytes) -> ReadFile | None:
        """Return the entry of an earlier read of the file with this head, None if it is new."""
        return max((reads[-1] for reads in self._of(file, head)), key=lambda each: each.read_to, default=None)

    def may_have(self, file: ReadFile, head: bytes) -> bool:
        """Check whether the file with this head may be among these.

        A log of less than `HEAD_BYTES` may be each longer one: it may have grown before others saw it.
        """
        longer = len(head) < HEAD_BYTES and any(length > len(head) for length, _ in self._reads.get(_place(file), ()))
        return (InputFormat(file.form).grows and longer) or self.find(file, head) is not None

    def paths(self, file: ReadFile, head: bytes) -> set[str]:
        """Return the names under which the file with this head was read, its own among them."""
        return {file.path, *(each.path for reads in self._of(file, head) for each in reads)}

    def _of(self, file: ReadFile, head: bytes) -> Iterator[list[ReadFile]]:
        """Yield the reads of a file, those of each of its heads by time."""
        known = self._reads.get(_place(file), {})
        keys = {(file.head_bytes, file.head_sha256)}
        if InputFormat(file.form).grows:
            keys = {(each, digest(head[:each])) for each in {length for length, _ in known} if each <= len(head)}
        yield from (known[key] for key in keys if key in known)


def _place(file: ReadFile) -> tuple[object, ...]:
    """Return the scope within which files with the same head are the same, for documents with the name."""
    name = "" if InputFormat(file.form).grows else Path(file.path).name
    return file.form, file.cluster, file.broker_id, name


COMPILED_FROM_BYTES: Final = 8 * 1024 * 1024
"""Bytes of request logs from which machine code scans them: less is read sooner than it is loaded."""
LARGEST_CONTENT_BYTES: Final = 64 * 1024 * 1024
"""Largest log that Spark gives to a task whole, which has it thrice for a while: 2 GB of heap did not do for 400 MB."""
PIECE_BYTES: Final = 32 * 1024 * 1024
"""Size of the pieces of a large uncompressed file, which are read side by side."""
_CODECS: Final = (".gz", ".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".zstd", ".passthrough")
"""Names by which Spark takes a file for a packed one."""
_INPUT: Final = partial(setting, "input")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """What holds for all files, as options."""

    zone: str | None = _INPUT(
        "--timezone ZONE", "The time zone of request logs, whose stamps have none: UTC, Europe/Berlin.", default=None
    )
    broker_id: int | None = _INPUT(
        "--broker-id N", "The broker of all files whose path names none.", default=None, least=0
    )
    cluster: str = _INPUT("--cluster NAME", "The cluster's name, kept in every row.", default="default")
    input_format: InputFormat | None = _INPUT(
        "--format", "The format of all files. Default: recognised by the beginning of each file.", default=None
    )
    names: MetricNames | None = _INPUT(
        "--metric-names FILE",
        "How an exporter names the quota metrics, as TOML; the usual styles are known.",
        TextForm(read=lambda text: read_metric_names(Path(text)), pattern=""),
        default=None,
    )

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
        """Return the tasks, those of the largest files first, with large files cut into pieces.

        What only Hadoop reaches is left to Spark.
        """
        logs = [each for each in self.files if each.task.input_format is InputFormat.REQUEST_LOG]
        is_compiled = sum(each.inspected.unpacked - each.task.start for each in logs) >= COMPILED_FROM_BYTES
        pieces = [
            piece
            for file in self.files
            for piece in ([file.task] if is_spark and is_of_hadoop(file.task.path) else _pieces(file))
        ]
        return tuple(
            replace(task, is_compiled=is_compiled and task.input_format is InputFormat.REQUEST_LOG) for task in pieces
        )

    def read_by(self, counts: Iterable[TaskCounts]) -> tuple[ReadFile, ...]:
        """Return how far the files were read, by the counts of their tasks."""
        read_to = dict.fromkeys(range(len(self.files)), 0)
        for each in counts:
            read_to[each.number] = max(read_to[each.number], each.read_to)
        return tuple(replace(file.described, read_to=read_to[file.task.number]) for file in self.files)

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
    """Plan the reading of these files, the largest first."""
    files: list[PlannedFile] = []
    unchanged = empty = 0
    read_otherwise: list[str] = []
    unknown: list[InspectedFile] = []
    planned = KnownFiles(())
    for each in sorted(inspected, key=lambda each: (-each.unpacked, str(each.found.path))):
        if each.unpacked == 0:
            empty += 1
            continue
        if each.input_format is None:
            if each.found.is_named:
                _refuse_format(each)
            unknown.append(each)
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
        unknown=tuple(sorted(str(each.found.path) for each in unknown)),
        read_otherwise=tuple(read_otherwise),
    )


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
    task = replace(whole_task(file, settings), number=number, large=_large_log(file, input_format))
    described = ReadFile(
        path=str(file.found.place),
        form=input_format.value,
        cluster=task.cluster,
        broker_id=task.broker_id,
        head_bytes=file.head_bytes,
        head_sha256=file.head_sha256,
        size=file.size,
        read_to=0,
        zone=settings.zone if input_format is InputFormat.REQUEST_LOG else None,
    )
    if (same := planned.find(described, file.head)) is not None:
        return same  # a copy under another name; the largest comes first
    before = None if file.found.is_replacing else known.find(described, file.head)
    if before is not None and (not input_format.grows or _is_done(file, before)):
        return before
    if input_format is InputFormat.REQUEST_LOG:
        _check_origin(file, task.broker_id, settings.zone)
    if before is not None:
        task = replace(task, start=before.read_to)
    replaced = known.paths(described, file.head) if file.found.is_replacing else set()
    return PlannedFile(inspected=file, described=described, task=task, replaced=frozenset(replaced))


def whole_task(file: InspectedFile, settings: IngestSettings) -> IngestTask:
    """Return the task that reads all of a file of known format."""
    found, place = file.found, file.found.place
    assert file.input_format is not None
    return IngestTask(
        path=replace(place, reader=None) if isinstance(place, RemoteFile) else place,
        input_format=file.input_format,
        cluster=found.cluster or settings.cluster,
        broker_id=settings.broker_id if found.broker_id is None else found.broker_id,
        zone=settings.zone,
        names=settings.names or BUILT_IN,
        ts_ms=file.modified_ms if found.time_ms is None else found.time_ms,
    )


def _large_log(file: InspectedFile, input_format: InputFormat) -> LargeLog | None:
    """Return how Spark reads a large log by line, None for files that it does not read, or reads whole."""
    name = str(file.found.place)
    is_large = is_of_hadoop(file.found.place) and input_format.grows and file.size > LARGEST_CONTENT_BYTES
    is_named_so = name.endswith(".gz") if file.is_packed else not name.endswith(_CODECS)
    if not (is_large and is_named_so) or file.head.startswith(codecs.BOM_UTF8):
        return None
    return LargeLog(unpacked=file.unpacked, is_packed=file.is_packed)


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


def _refuse_format(file: InspectedFile) -> NoReturn:
    names = ", ".join(InputFormat)
    raise UsageError(
        f"the form of {file.found.path} is unknown", hint=f"leave the file out, or name its form by --format: {names}"
    )


def _pieces(file: PlannedFile) -> list[IngestTask]:
    task, size = file.task, file.inspected.unpacked
    if not task.input_format.grows or file.inspected.is_packed or size - task.start <= PIECE_BYTES:
        return [task]
    inner = range(task.start + PIECE_BYTES, size, PIECE_BYTES)
    try:  # only who reads on knows whether the repeated hour has begun
        starts = [task.start, *(start for start in inner if not begins_in_repeated_hour(task, start))]
    except OSError as error:
        raise unreadable(task.path, error) from error
    return [replace(task, start=start, end=end) for start, end in zip(starts, [*starts[1:], None], strict=True)]


def begins_in_repeated_hour(task: IngestTask, start: int) -> bool:
    """Check whether the first line from an offset on has a time that is there twice, as clocks go back."""
    if task.input_format is not InputFormat.REQUEST_LOG or task.zone is None:
        return False
    block = next(read_blocks(task.path, start=start), None)
    return block is not None and begins_ambiguously(block.lines[0], ZoneInfo(task.zone))
