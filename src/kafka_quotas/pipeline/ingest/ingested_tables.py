"""The tables of an ingest: the rows of tasks, the workers here that write them, and counts of quarantine.

Lines of a request log are scanned to columns of events, from the bytes of a file or of a column of Spark's; the line's
parser reads the odd ones. Without Spark neighbouring tasks are in threads or processes, each of which writes its rows.
Tasks of one file follow each other in one worker, so that a packed row has what a client did in an hour.

Invariant: the rows and counts depend on the task and the file alone, and a task may be run again.
"""

import gc
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from typing import ClassVar, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.dataset as ds

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.engine.job import JobProgress, Watch
from kafka_quotas.pipeline.engine.sql import DuckTables, duck_errors
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
from kafka_quotas.pipeline.formats.timestamp import LocalClock
from kafka_quotas.pipeline.ingest.plan import begins_in_repeated_hour
from kafka_quotas.pipeline.ingest.request_scan import scan_request_lines
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.packed_events import PARSED_EVENTS, client_numbers, keep_memory, pack
from kafka_quotas.pipeline.tables.schemas import (
    CLIENT_THROTTLE,
    EVENTS,
    METRICS,
    PACKED_EVENTS,
    QUARANTINE,
    TableSchema,
)
from kafka_quotas.pipeline.tables.staged_files import StagedFile, write_staged

BATCH_ROWS = 20_000
_UNFINISHED = "unfinished last line: {}; it is read again when the file has grown"
_PACKED_BYTES: Final = 1 << 27
"""Bytes of loose rows that a worker has in memory before it packs and writes them."""
_MOST_FAULTS: Final = 20_000
_TOGETHER_BYTES: Final = 1 << 28
"""About how many bytes of logs a worker packs together, at most."""
_LISTS_PER_WORKER: Final = 2
_PARALLEL_FROM_BYTES: Final = 8 * 1024 * 1024
"""Size below which one thread reads faster than several workers start."""


def parse_task(
    task: IngestTask, blocks: Iterable[Block] | None = None, *, lines_before: int | None = None
) -> Iterator[ParsedBatch]:
    """Yield the rows of a task in batches of about `BATCH_ROWS`, the last one with the counts of all.

    The generator reuses one batch object: read each batch before asking for the next. `blocks` are all lines of the
    file if they were read already. Those before the task's start are read for their times and number alone. Without
    the number of `lines_before` the task's part they are counted once a line can't be read.
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


def arrow_batches(parsed: ParsedBatch) -> Iterator[tuple[TableSchema, pa.RecordBatch]]:
    """Yield a batch for each table that has rows."""
    parsed_events = [_batch(PARSED_EVENTS, list(zip(*parsed.events, strict=True)))] if parsed.events else []
    for batch in [*parsed_events, *parsed.event_batches]:
        yield EVENTS, _batch(EVENTS.arrow_schema(), [*batch.columns, client_numbers(batch)])
    for table, rows in (
        (QUARANTINE, parsed.quarantine),
        (METRICS, parsed.metrics),
        (CLIENT_THROTTLE, parsed.client_throttle),
    ):
        if rows:
            yield table, pa.RecordBatch.from_pylist(rows, table.arrow_schema())


StagedRows = tuple[list[TaskCounts], dict[str, list[StagedFile]]]
"""The counts of tasks, and the files to commit, by table."""


def write_tables(lake: Lake, tasks: Iterable[Iterable[ParsedBatch]]) -> StagedRows:
    """Write the rows of tasks, their events packed together."""
    counts: list[TaskCounts] = []
    staged = defaultdict[str, list[StagedFile]](list)

    def batches() -> Iterator[tuple[TableSchema, pa.RecordBatch]]:
        for parsed in tasks:
            of_task: TaskCounts | None = None  # those of its last batch
            for each in parsed:
                yield from arrow_batches(each)
                of_task = each.counts
            if of_task is not None:
                counts.append(of_task)

    for table, rows in packed_tables(batches()):
        staged[table.name] += write_staged(lake, table, rows)
    return counts, staged


def packed_tables(batches: Iterable[tuple[TableSchema, pa.RecordBatch]]) -> Iterator[tuple[TableSchema, pa.Table]]:
    """Yield rows of tables, as many together as memory has room for, with events packed."""
    waiting = defaultdict[TableSchema, list[pa.RecordBatch]](list)
    size = 0  # of what waits, which a sum over it would make quadratic for many small files

    def taken() -> Iterator[tuple[TableSchema, pa.Table]]:
        for table in list(waiting):
            rows = pa.Table.from_batches(waiting.pop(table))
            yield (PACKED_EVENTS, pa.Table.from_batches([pack(rows)])) if table is EVENTS else (table, rows)

    with _no_collection():
        for table, batch in batches:
            waiting[table].append(batch)
            size += batch.nbytes
            if size > _PACKED_BYTES:
                yield from taken()
                size = 0
        yield from taken()


@contextmanager
def _no_collection() -> Iterator[None]:
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


def workers(tasks: Sequence[IngestTask], size: int) -> Executor:
    """Return workers for tasks of `size` bytes, at most one per core.

    They are threads where machine code does the work, and processes where Python does.
    """
    count = min(len(tasks) if size >= _PARALLEL_FROM_BYTES else 1, os.cpu_count() or 1)
    if count <= 1 or all(task.is_compiled for task in tasks):
        return ThreadPoolExecutor(max(count, 1))
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])  # loaded once, not by each
    return ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """End this worker as soon as its parent is gone: nobody would end it after a kill."""
    parent = parent_process()
    if parent is not None:
        Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()


def ingest_locally(tasks: Sequence[IngestTask], *, size: int, lake: Lake, watch: Watch) -> StagedRows:
    """Run the tasks, which read about `size` bytes, and write their rows."""
    keep_memory()
    counts: list[TaskCounts] = []
    staged = defaultdict[str, list[StagedFile]](list)
    lists = 1 if size < _PARALLEL_FROM_BYTES else _LISTS_PER_WORKER * (os.cpu_count() or 1)
    watch(JobProgress(stage="read", done=0, total=len(tasks)))
    with workers(tasks, size) as pool:
        running = [pool.submit(_run_tasks, own, lake) for own in _together(tasks, lists)]
        try:
            for future in as_completed(running):
                found, files = future.result()
                counts += found
                for name, own in files.items():
                    staged[name] += own
                watch(JobProgress(stage="read", done=len(counts), total=len(tasks)))
        except BrokenProcessPool as error:
            raise KafkaQuotasError("a worker process was killed", hint="is there enough memory?") from error
        finally:
            for future in running:
                future.cancel()
    return counts, staged


def _together(tasks: Sequence[IngestTask], lists: int) -> list[list[IngestTask]]:
    """Return the tasks by path and offset in about as many lists, the largest first, each for one worker."""
    most = min(sum(task.size for task in tasks) // lists, _TOGETHER_BYTES)
    found: list[list[IngestTask]] = [[]]
    for task in sorted(tasks, key=lambda task: (str(task.path), task.start)):
        if found[-1] and sum(each.size for each in found[-1]) + task.size > most:
            found.append([])
        found[-1].append(task)
    return sorted(found, key=lambda own: -sum(each.size for each in own))


def _run_tasks(tasks: Sequence[IngestTask], lake: Lake) -> StagedRows:
    return write_tables(lake, map(parse_task, tasks))


def _batch(schema: pa.Schema, columns: Sequence[Sequence[object] | pa.Array]) -> pa.RecordBatch:
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A reason for which lines of a file are in quarantine."""

    DOCUMENT: ClassVar = "file=src_file reason lines first_line=first_line_no"
    src_file: str
    reason: str
    lines: int
    first_line_no: int
    """Number of the first such line."""


def faults_of(lake: Lake, quarantine: Iterable[StagedFile]) -> tuple[Fault, ...]:
    """Return the faults in files of quarantine, the most frequent first, at most `_MOST_FAULTS` of them.

    Lines may all differ in their reasons, as where rubbish is quoted.
    """
    if not (paths := [each.path for each in quarantine]):
        return ()
    tables = DuckTables()
    with duck_errors(f"reading {lake.shown(QUARANTINE)}"):
        rows = tables.add(QUARANTINE.name, ds.dataset(paths, filesystem=lake.filesystem(QUARANTINE)))
        found = tables.query(
            f"""SELECT src_file, reason, count(*) AS lines, min(line_no) AS first_line_no FROM {rows}
            GROUP BY src_file, reason ORDER BY lines DESC, src_file, first_line_no LIMIT {_MOST_FAULTS}"""
        )
        tables.forget()
    return tuple(Fault(**row) for row in found.to_pylist())
