"""Which files of an ingest are new or have grown, and the tasks that read them.

Invariant: an ingest reads the same bytes of the same log once, whatever the names and compressions of its copies.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.metric_names import BUILT_IN, MetricNames
from kafka_quotas.pipeline.formats.detect import SNIFFED_BYTES, InputFormat, detect_format, needs_zone
from kafka_quotas.pipeline.formats.lines import is_gzip, read_head, unpacked_size
from kafka_quotas.pipeline.formats.source_file import RemoteFile, SourceFile, modified_ms
from kafka_quotas.pipeline.formats.task import IngestTask
from kafka_quotas.pipeline.ingest.known_files import PARSER_VERSION, KnownFiles, ReadFile, describe_file
from kafka_quotas.pipeline.ingest.source_pattern import FoundFile

COMPILED_FROM_BYTES: Final = 8 * 1024 * 1024
"""Bytes of request logs from which machine code scans them: less is read sooner than it is loaded."""
PIECE_BYTES: Final = 32 * 1024 * 1024
"""Size of the pieces of a large uncompressed file, which are read side by side."""


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

    described: ReadFile
    task: IngestTask
    replaced: frozenset[str] = frozenset()
    """Names of the file in rows of earlier ingests, whose place its rows take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestPlan:
    """The files to read and their tasks."""

    files: tuple[PlannedFile, ...]
    tasks: tuple[IngestTask, ...]
    unchanged: int
    """Files that were read before or are found twice."""
    empty: int
    """Files without content."""
    unknown: tuple[str, ...] = ()
    """Files in folders, or matched by patterns, of no known format."""
    read_otherwise: tuple[str, ...] = ()
    """Unchanged files that were read in another time zone, or by another version of the parser."""

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


def plan_ingest(found: Iterable[FoundFile], *, settings: IngestSettings, known: KnownFiles) -> IngestPlan:
    """Plan the tasks for these files, the largest first.

    Raises:
        UsageError: The format, broker or time zone of a file is unknown.
        KafkaQuotasError: A file can't be read.
    """
    files: list[PlannedFile] = []
    unchanged = empty = 0
    read_otherwise: list[str] = []
    unknown: list[str] = []
    planned = KnownFiles(())
    for each in sorted(found, key=lambda each: (-_unpacked(each.path), str(each.path))):
        if _unpacked(each.path) == 0:
            empty += 1
            continue
        if (input_format := _format(each, settings)) is None:
            unknown.append(str(each.path))
            continue
        file = _plan_file(each, len(files), settings, input_format=input_format, known=known, planned=planned)
        if isinstance(file, ReadFile):
            unchanged += 1
            if file.parser != PARSER_VERSION or file.zone not in (None, settings.zone):
                read_otherwise.append(str(each.path))
            continue
        files.append(file)
        planned.add(replace(file.described, read_to=_unpacked(each.path)))
    if unknown and not files and not unchanged:
        _refuse_format(unknown[0])
    logs = (each for each in files if each.task.input_format is InputFormat.REQUEST_LOG)
    is_compiled = sum(_unpacked(each.task.path) - each.task.start for each in logs) >= COMPILED_FROM_BYTES
    pieces = [piece for file in files for piece in _pieces(file.task)]
    tasks = tuple(
        replace(task, number=number, is_compiled=is_compiled and task.input_format is InputFormat.REQUEST_LOG)
        for number, task in enumerate(pieces)
    )
    return IngestPlan(
        files=tuple(files),
        tasks=tasks,
        unchanged=unchanged,
        empty=empty,
        unknown=tuple(sorted(unknown)),
        read_otherwise=tuple(read_otherwise),
    )


def _format(found: FoundFile, settings: IngestSettings) -> InputFormat | None:
    """Return the format of a file, None for an unknown one that the user did not name."""
    if settings.input_format is not None:
        return settings.input_format
    try:
        detected = detect_format(read_head(found.path, SNIFFED_BYTES))
    except OSError as error:
        raise _unreadable(found.path, error) from error
    return detected or (_refuse_format(str(found.path)) if found.is_named else None)


def _plan_file(
    found: FoundFile,
    number: int,
    settings: IngestSettings,
    *,
    input_format: InputFormat,
    known: KnownFiles,
    planned: KnownFiles,
) -> PlannedFile | ReadFile:
    """Plan the unread part of a file, or return the earlier or planned read of all of it."""
    path = found.place  # names of files are kept: what was read is what is found again
    try:
        beginning = read_head(path, SNIFFED_BYTES)
        cluster = found.cluster or settings.cluster
        broker_id = settings.broker_id if found.broker_id is None else found.broker_id
        described, head = describe_file(path, input_format=input_format, cluster=cluster, broker_id=broker_id)
        changed_ms = modified_ms(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    if (same := planned.find(described, head)) is not None:
        return same  # a copy under another name; the largest comes first
    before = None if found.is_replacing else known.find(described, head)
    if before is not None and (not input_format.grows or _is_done(path, described.size, before)):
        return before
    if input_format is InputFormat.REQUEST_LOG:
        _check_origin(path, beginning, broker_id, settings.zone)
    task = IngestTask(
        number=0,
        file_number=number,
        path=path,
        input_format=input_format,
        cluster=cluster,
        broker_id=broker_id,
        zone=settings.zone,
        names=settings.names,
        ts_ms=changed_ms if found.time_ms is None else found.time_ms,
        start=0 if before is None else before.read_to,
    )
    described = replace(described, zone=settings.zone if input_format is InputFormat.REQUEST_LOG else None)
    replaced = known.paths(described, head) if found.is_replacing else set()
    return PlannedFile(described=described, task=task, replaced=frozenset(replaced))


def _is_done(path: SourceFile, size: int, before: ReadFile) -> bool:
    """Check that a log has not grown.

    Gzip records the size modulo 2^32 only.
    """
    if size == before.size:
        return True
    unpacked = _unpacked(path)
    return unpacked == before.read_to % 2**32 if is_gzip(path) else unpacked <= before.read_to


def _check_origin(path: SourceFile, beginning: bytes, broker_id: int | None, zone: str | None) -> None:
    if broker_id is None:
        raise UsageError(
            f"{path} does not tell which broker wrote it",
            hint="--source 'logs/{broker_id}/*.log' takes it from the path, --broker-id N is for all files",
        )
    if zone is None and needs_zone(beginning):
        raise UsageError(
            f"the time stamps in {path} have no time zone", hint="--timezone Z, for example UTC or Europe/Berlin"
        )


def _refuse_format(path: str) -> InputFormat:
    names = ", ".join(InputFormat)
    raise UsageError(f"the form of {path} is unknown", hint=f"leave the file out, or name its form by --form: {names}")


def _pieces(task: IngestTask) -> list[IngestTask]:
    from kafka_quotas.pipeline.ingest.parse import begins_in_repeated_hour  # noqa: PLC0415 - loads orjson

    size = _unpacked(task.path)
    if not task.input_format.grows or is_gzip(task.path) or size - task.start <= PIECE_BYTES:
        return [task]
    inner = range(task.start + PIECE_BYTES, size, PIECE_BYTES)
    # only who reads on knows whether the repeated hour has begun
    starts = [task.start, *(start for start in inner if not begins_in_repeated_hour(task, start))]
    return [replace(task, start=start, end=end) for start, end in zip(starts, [*starts[1:], None], strict=True)]


def _unpacked(path: SourceFile) -> int:
    try:
        return unpacked_size(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: SourceFile, error: OSError) -> KafkaQuotasError:
    return KafkaQuotasError(f"cannot read {path}: {error.strerror or error}", hint="check the file's permissions")
