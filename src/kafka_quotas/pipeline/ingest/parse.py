"""The work of a task, for both engines: the rows of its lines, in batches.

Lines of a request log are scanned to columns of events, from the bytes of a file or of a column of Spark's; the line's
parser reads the odd ones.

Invariant: the rows and counts depend on the task and the file alone, and a task may be run again.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from zoneinfo import ZoneInfo

from kafka_quotas.pipeline.formats.event_log import parse_daemon_line, read_load_test
from kafka_quotas.pipeline.formats.lines import (
    BUFFER_BYTES,
    LARGE_BLOCK,
    Block,
    block_before,
    count_lines_before,
    read_blocks,
)
from kafka_quotas.pipeline.formats.metric_rows import librdkafka_rows, read_document
from kafka_quotas.pipeline.formats.request_log import LogOrigin, parse_request_line
from kafka_quotas.pipeline.formats.task import BadLineError, IngestTask, InputFormat, ParsedBatch, TaskCounts
from kafka_quotas.pipeline.formats.timestamp import LocalClock, begins_ambiguously
from kafka_quotas.pipeline.ingest.request_scan import scan_request_lines

BATCH_ROWS = 20_000
_UNFINISHED = "unfinished last line: {}; it is read again when the file has grown"


def parse_task(
    task: IngestTask, blocks: Iterable[Block] | None = None, *, lines_before: int | None = None
) -> Iterator[ParsedBatch]:
    """Yield the rows of a task in batches of about `BATCH_ROWS`, the last one with the counts of all.

    The generator reuses one batch object: read each batch before asking for the next.

    Args:
        task: The task.
        blocks: All lines of the file if they were read already. Those before the task's start are read for their times
            and number alone.
        lines_before: The number of lines before the task's part, None to count them once a line can't be read.
    """
    parsed = ParsedBatch(counts=TaskCounts(number=task.number, read_to=task.start))
    if not task.input_format.grows:
        read = read_load_test if task.input_format is InputFormat.LOAD_TEST else read_document
        yield from read(task, parsed)
        return
    reader = _LineReader(task, parsed, lines_before if blocks is None else 0)
    if blocks is None:
        if task.start > 0 and begins_in_repeated_hour(task, task.start):
            for block in read_blocks(task.path, end=task.start):
                reader.follow(block)
        block_bytes = LARGE_BLOCK if task.is_compiled else BUFFER_BYTES
        blocks = read_blocks(task.path, start=task.start, end=task.end, block_bytes=block_bytes)
    for block in blocks:
        left = reader.follow(block) if block.offset < task.start else block
        if left is block or left.content:
            reader.read(left)
        if parsed.size >= BATCH_ROWS:
            yield parsed.counted()
            parsed.clear()
    yield parsed.counted()


def begins_in_repeated_hour(task: IngestTask, start: int) -> bool:
    """Check whether the first line from an offset on has a time that is there twice, as clocks go back."""
    if task.input_format is not InputFormat.REQUEST_LOG or task.zone is None:
        return False
    block = next(read_blocks(task.path, start=start), None)
    return block is not None and begins_ambiguously(block.lines[0], ZoneInfo(task.zone))


class _LineReader:
    """Reads the lines of a file that may grow, those of a request log by the scan if the task is compiled."""

    def __init__(self, task: IngestTask, parsed: ParsedBatch, lines_before: int | None) -> None:
        self._task = task
        self._src_file = str(task.path)
        self._parsed = parsed
        self._lines_before = lines_before
        self._clock = LocalClock(ZoneInfo(task.zone) if task.zone else None)
        broker_id = -1 if task.broker_id is None else task.broker_id
        self._origin = LogOrigin(cluster=task.cluster, broker_id=broker_id, src_file=self._src_file)

    def read(self, block: Block) -> None:
        """Add the rows of a block's lines to the batch."""
        counts, is_read = self._parsed.counts, True
        before = counts.lines
        is_scanned = self._task.is_compiled and block.fault is None and not block.is_open
        for number, offset, content in self._scanned(block) if is_scanned else self._lines(block):
            is_read = self._read_line(content, offset, before + number, block)
        if is_read or not block.is_open:  # else it is not done with, and read again
            counts.read_to = block.end

    def _lines(self, block: Block) -> Iterator[tuple[int, int, bytes]]:
        offset = block.offset
        for number, content in enumerate(block.lines, start=1):
            yield number, offset, content
            offset += len(content) + 1
        self._parsed.counts.lines += len(block.lines)

    def _scanned(self, block: Block) -> Iterator[tuple[int, int, bytes]]:
        """Add the rows that the scan finds, and yield the odd lines."""
        counts = self._parsed.counts
        scanned = scan_request_lines(block.content, offset=block.offset, clock=self._clock, origin=self._origin)
        if scanned.events.num_rows:
            self._parsed.event_batches.append(scanned.events)
        counts.forwarded += scanned.forwarded
        counts.blank += scanned.blank
        for number, start, content in scanned.odd:
            yield number, block.offset + start, content
        counts.lines += scanned.lines

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
            if self._lines_before is None:
                self._lines_before = count_lines_before(self._task.path, self._task.start)
            reason = BadLineError(_UNFINISHED.format(error)) if block.is_open else error
            self._parsed.refuse(content, reason, src_file=self._src_file, line_no=self._lines_before + number)
            return False
        return True

    def _take(self, line: bytes, offset: int) -> None:
        parsed, src_file = self._parsed, self._src_file
        if self._task.input_format is InputFormat.REQUEST_LOG:
            row = parse_request_line(line, offset=offset, clock=self._clock, origin=self._origin)
            if row is None:
                parsed.counts.forwarded += 1
            else:
                parsed.events.append(row)
        elif self._task.input_format is InputFormat.DAEMON_EVENTS:
            parsed.events.append(parse_daemon_line(line, offset=offset, src_file=src_file))
        else:  # a tuple has all rows of a line before any is added: the last may be bad
            parsed.client_throttle += tuple(librdkafka_rows(line, cluster=self._task.cluster, src_file=src_file))

    def follow(self, block: Block) -> Block:
        """Let the clock see lines before this task's part, and return the lines of the part.

        They decide whether an hour is being repeated.
        """
        before = block_before(block, self._task.start)
        lines = before.lines if before.content else []
        if self._lines_before is not None:
            self._lines_before += len(lines)
        if self._task.input_format is InputFormat.REQUEST_LOG and self._task.zone is not None:
            for line in lines:
                with suppress(BadLineError):
                    self._clock.read_ms(line)
        return block._replace(offset=before.end, content=block.content[len(before.content) :])
