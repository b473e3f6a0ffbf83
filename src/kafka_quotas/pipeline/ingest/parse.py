"""The work of a task, for both engines: the rows of its lines, in batches.

Lines of a request log are scanned to columns of events, from the bytes of a file or of a column of Spark's; the line's
parser reads the odd ones.

Invariant: the rows and counts depend on the task and the file alone, and a task may be run again.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.formats.event_log import parse_daemon_line
from kafka_quotas.pipeline.formats.lines import (
    BUFFER_BYTES,
    LARGE_BLOCK,
    Block,
    block_before,
    count_lines_before,
    read_blocks,
)
from kafka_quotas.pipeline.formats.metric_rows import librdkafka_rows, read_document
from kafka_quotas.pipeline.formats.request_log import LogOrigin, client_ip, parse_request_line, user_name
from kafka_quotas.pipeline.formats.task import (
    BadLineError,
    EventRow,
    IngestTask,
    InputFormat,
    ParsedBatch,
    Row,
    TaskCounts,
)
from kafka_quotas.pipeline.formats.timestamp import LocalClock, TimestampReader, local_minute
from kafka_quotas.pipeline.ingest.ingested_tables import PARSED_EVENTS
from kafka_quotas.pipeline.ingest.request_scan import (
    API_KEY,
    BLANK,
    CLIENT_ID,
    CONNECTION,
    FIGURES,
    FORWARDED,
    IS_EXEMPT,
    MINUTE,
    MS,
    ODD,
    OFFSET,
    PRINCIPAL,
    RESULTS,
    SENDING_MS,
    SIZE,
    TAKEN,
    TEXTS,
    THREAD_US,
    THROTTLE_MS,
    ZONED,
    count_lines,
    scan_lines,
)

_Integers = npt.NDArray[np.int64]
_MINUTE_MS: Final = 60_000
_OFFSETS: Final = ZONED // 2
"""Minutes from here on are UTC."""
_QUOTA_TYPES: Final = pa.array([QuotaType.REQUEST.value, QuotaType.PRODUCE.value, QuotaType.FETCH.value])
_TYPE_OF_API: Final = np.zeros(128, np.int32)
_TYPE_OF_API[[ApiKey.PRODUCE, ApiKey.FETCH]] = 1, 2


class OddLine(NamedTuple):
    """A line that the scan leaves to the line's parser, and where it is in the scanned bytes."""

    start: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedLines:
    """The result of a scan."""

    events: pa.RecordBatch
    """Events of the lines that were taken, by the schema `PARSED_EVENTS`."""
    odd: tuple[OddLine, ...]
    """Lines that are left, in order."""
    lines: int
    forwarded: int
    """Requests that the forwarding broker logs as well."""
    blank: int
    """Lines without a byte."""


def scan_request_lines(
    content: bytes | memoryview, *, offset: int, clock: LocalClock, origin: LogOrigin
) -> ScannedLines:
    """Scan lines of a request log.

    Args:
        content: Lines that end with a line feed each.
        offset: Offset of the first line in its file.
        clock: Clock of timestamps without an offset, which follows the lines.
        origin: What the log does not record about itself.
    """
    buf = np.frombuffer(content, np.uint8)
    buf.flags.writeable = False  # machine code is compiled for each kind of array, in some twenty seconds
    lines = count_lines(buf)
    figures = np.empty((FIGURES, lines), np.int64)
    spans = np.empty((lines * TEXTS, 2), np.int64)
    slots = np.full(1 << (2 * TEXTS * lines).bit_length(), -1, np.int32)
    odd = np.empty((lines, 2), np.int64)
    results = np.zeros(RESULTS, np.int64)
    texts, _ = scan_lines(buf, 0, len(content), figures, spans, slots, odd, results)
    names = [str(content[start:stop], "ascii") for start, stop in spans[:texts].tolist()]
    return ScannedLines(
        events=_events(figures[:, : results[TAKEN]], names, offset=offset, clock=clock, origin=origin),
        odd=tuple(OddLine(start, bytes(content[start:stop])) for start, stop in odd[: results[ODD]].tolist()),
        lines=lines,
        forwarded=int(results[FORWARDED]),
        blank=int(results[BLANK]),
    )


def _events(
    figures: _Integers, names: list[str], *, offset: int, clock: LocalClock, origin: LogOrigin
) -> pa.RecordBatch:
    count = figures.shape[1]
    ts_ms = pa.array(_utc_minutes_ms(figures[MINUTE], clock) + figures[MS] - figures[SENDING_MS])
    quota_types = _TYPE_OF_API[figures[API_KEY]]
    columns = {
        "cluster": _repeated(origin.cluster, count),
        "broker_id": np.full(count, origin.broker_id, np.int32),
        "ts_ms": ts_ms,
        "user": _texts(figures[PRINCIPAL], names, user_name),
        "client_id": _texts(figures[CLIENT_ID], names, str),
        "ip": _texts(figures[CONNECTION], names, client_ip),
        "quota_type": _QUOTA_TYPES.take(pa.array(quota_types)),
        "bytes": figures[SIZE],
        "thread_ms": figures[THREAD_US] / 1000,
        "mutations": np.zeros(count, np.int32),
        "throttle_ms": figures[THROTTLE_MS],
        "api_key": figures[API_KEY].astype(np.int16),
        "is_exempt": figures[IS_EXEMPT].astype(np.bool_),
        "is_estimated": quota_types > 0,
        "is_thread_estimated": np.ones(count, np.bool_),
        "connection": _texts(figures[CONNECTION], names, str),
        "src_file": _repeated(origin.src_file, count),
        "src_offset": figures[OFFSET] + offset,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in PARSED_EVENTS], schema=PARSED_EVENTS
    )


def _utc_minutes_ms(minutes: _Integers, clock: LocalClock) -> _Integers:
    """Return when each line's minute begins, in ms since 1970 UTC."""
    if minutes.size == 0:
        return minutes
    # the clock sees each change of minute in the order of the log
    firsts = np.concatenate(([0], np.flatnonzero(np.diff(minutes)) + 1))
    found = [
        (each - ZONED) * _MINUTE_MS if each >= _OFFSETS else clock.utc_ms(each) for each in minutes[firsts].tolist()
    ]
    return np.repeat(np.array(found, np.int64), np.diff(np.append(firsts, minutes.size)))


def _texts(numbers: _Integers, names: Sequence[str], read: Callable[[str], str]) -> pa.Array:
    """Return a column of texts, each read once from the name with its number."""
    is_used = np.zeros(len(names), np.bool_)
    is_used[numbers] = True
    values = pa.array(
        [read(name) if used else "" for name, used in zip(names, is_used.tolist(), strict=True)], pa.string()
    )
    return values.take(pa.array(numbers))


def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


BATCH_ROWS = 20_000
_UNFINISHED = "unfinished last line: {}; it is read again when the file has grown"

_Take = Callable[[bytes, int], None]
"""Adds the rows of a line at an offset to the batch. Raises `BadLineError`."""


def parse_task(task: IngestTask, *, lines_before: int | None = None) -> Iterator[ParsedBatch]:
    """Yield the rows of a task in batches of about `BATCH_ROWS`, the last one with the counts of all.

    `lines_before` is the number of lines before the task's part, None to count them once a line can't be read.
    The generator reuses one batch object: read each batch before asking for the next.
    """
    parsed = ParsedBatch(counts=TaskCounts(number=task.number, read_to=task.start))
    if task.input_format is InputFormat.LOAD_TEST:
        from kafka_quotas.pipeline.formats.event_log import read_load_test  # noqa: PLC0415 - loads Arrow

        yield from read_load_test(task, parsed)
        return
    if not task.input_format.grows:
        read_document(task, parsed)
        yield parsed.counted()
        return
    reader = _reader(task, parsed)
    reader.lines_before = lines_before
    if task.start > 0 and begins_in_repeated_hour(task, task.start):
        for block in read_blocks(task.path, end=task.start):
            reader.follow(block)
    yield from _read(
        reader, parsed, read_blocks(task.path, start=task.start, end=task.end, block_bytes=reader.block_bytes)
    )


def parse_lines(task: IngestTask, blocks: Iterable[Block]) -> Iterator[ParsedBatch]:
    """Yield the rows of a file that was read already, as `parse_task` does.

    Lines before the task's start are read for their times and number alone.
    """
    parsed = ParsedBatch(counts=TaskCounts(number=task.number, read_to=task.start))
    reader = _reader(task, parsed)
    reader.lines_before = 0
    yield from _read(reader, parsed, _followed(reader, blocks, task.start))


def _reader(task: IngestTask, parsed: ParsedBatch) -> "_LineReader":
    return _ScanReader(task, parsed) if task.is_compiled else _LineReader(task, parsed)


def _read(reader: "_LineReader", parsed: ParsedBatch, blocks: Iterable[Block]) -> Iterator[ParsedBatch]:
    for block in blocks:
        reader.read(block)
        if parsed.size >= BATCH_ROWS:
            yield parsed.counted()
            parsed.clear()
    yield parsed.counted()


def _followed(reader: "_LineReader", blocks: Iterable[Block], start: int) -> Iterator[Block]:
    """Yield the lines that begin at an offset or after it, and let the reader follow those before."""
    for block in blocks:
        if block.offset >= start:
            yield block
            continue
        before = block_before(block, start)
        reader.follow(before)
        if before.end < block.end:
            yield block._replace(offset=before.end, content=block.content[len(before.content) :])


def begins_in_repeated_hour(task: IngestTask, start: int) -> bool:
    """Check whether the first line from an offset on has a time that is there twice, as clocks go back."""
    if task.input_format is not InputFormat.REQUEST_LOG or task.zone is None:
        return False
    block = next(read_blocks(task.path, start=start), None)
    minute = None if block is None else local_minute(block.lines[0])
    return minute is not None and LocalClock(ZoneInfo(task.zone)).is_ambiguous(minute)


@contextmanager
def no_collection() -> Iterator[None]:
    """Switch the cycle collector off for the block, which makes and drops millions of rows without cycles.

    The search for cycles would take an eighth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _LineReader:
    """Reads the lines of a file that may grow."""

    block_bytes = BUFFER_BYTES

    def __init__(self, task: IngestTask, parsed: ParsedBatch) -> None:
        self._task = task
        self._src_file = str(task.path)
        self._parsed = parsed
        self._clock = LocalClock(ZoneInfo(task.zone) if task.zone else None)
        self._origin = LogOrigin(
            cluster=task.cluster,
            broker_id=-1 if task.broker_id is None else task.broker_id,
            src_file=self._src_file,
        )
        self._take = self._taker()
        self.lines_before: int | None = None
        """The number of lines before this task's part, None until the first line that can't be read."""

    def read(self, block: Block) -> None:
        """Add the rows of a block's lines to the batch."""
        counts, offset = self._parsed.counts, block.offset
        before = counts.lines
        for number, content in enumerate(block.lines, start=before + 1):
            if not self._read_line(content, offset, number, block) and block.is_open:
                counts.lines = number
                return  # not done with: it is read again
            offset += len(content) + 1
        counts.lines = before + len(block.lines)
        counts.read_to = block.end

    def _read_line(self, content: bytes, offset: int, number: int, block: Block) -> bool:
        """Add the row of a line to the batch, and return whether the line could be read."""
        try:
            if block.fault is not None:
                raise BadLineError(block.fault)  # noqa: TRY301 - reported like every other
            if content and not content.isspace():
                self._take(content, offset)
            else:
                self._parsed.counts.blank += 1
        except BadLineError as error:
            self._refuse(content, BadLineError(_UNFINISHED.format(error)) if block.is_open else error, number)
            return False
        return True

    def follow(self, block: Block) -> None:
        """Let the clock see lines before this task's part, which decide whether an hour is being repeated."""
        lines = block.lines
        if self.lines_before is not None:
            self.lines_before += len(lines)
        if self._task.input_format is InputFormat.REQUEST_LOG and self._task.zone is not None:
            timestamps = TimestampReader(self._clock)
            for line in lines:
                with suppress(BadLineError):
                    timestamps.read_ms(line)

    def _refuse(self, content: bytes, error: BadLineError, number: int) -> None:
        if self.lines_before is None:
            self.lines_before = count_lines_before(self._task.path, self._task.start)
        self._parsed.refuse(content, error, src_file=self._src_file, line_no=self.lines_before + number)

    def _taker(self) -> _Take:
        task, src_file = self._task, self._src_file
        if task.input_format is InputFormat.REQUEST_LOG:
            return self._request_taker()
        if task.input_format is InputFormat.DAEMON_EVENTS:
            events: list[EventRow] = self._parsed.events
            return lambda line, offset: events.append(parse_daemon_line(line, offset=offset, src_file=src_file))
        rows: list[Row] = self._parsed.client_throttle
        # a tuple has all rows of a line before any is added: the last may be bad
        return lambda line, _: rows.extend(tuple(librdkafka_rows(line, cluster=task.cluster, src_file=src_file)))

    def _request_taker(self) -> _Take:
        counts, events = self._parsed.counts, self._parsed.events
        timestamps, origin = TimestampReader(self._clock), self._origin

        def take(line: bytes, offset: int) -> None:
            row = parse_request_line(line, offset=offset, timestamps=timestamps, origin=origin)
            if row is None:
                counts.forwarded += 1
            else:
                events.append(row)

        return take


class _ScanReader(_LineReader):
    """Reads the lines of a request log by the scan, and the odd ones as every other reader."""

    block_bytes = LARGE_BLOCK

    def read(self, block: Block) -> None:
        """Add the rows of a block's lines to the batch."""
        if block.fault is not None or block.is_open:
            super().read(block)
            return

        counts = self._parsed.counts
        scanned = scan_request_lines(block.content, offset=block.offset, clock=self._clock, origin=self._origin)
        if scanned.events.num_rows:
            self._parsed.event_batches.append(scanned.events)
        counts.forwarded += scanned.forwarded
        counts.blank += scanned.blank
        number, counted_to = counts.lines + 1, 0
        for start, content in scanned.odd:
            number += bytes(block.content[counted_to:start]).count(b"\n")
            counted_to = start
            self._read_line(content, block.offset + start, number, block)
        counts.lines += scanned.lines
        counts.read_to = block.end
