"""An ingest on this machine without Spark: tasks in threads or processes, then one sort per bucket.

Each task writes one sorted file with a batch per bucket, and a bucket is gathered by memory-mapping its batch out of
each file. Memory is bounded by the largest bucket. Small ingests run in this process, which is quicker than starting
others.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.formats.task import IngestTask, TaskCounts
from kafka_quotas.pipeline.ingest.ingested_tables import BUCKET, INGESTED_TABLES, arrow_batches, staged_schema
from kafka_quotas.pipeline.ingest.parse import has_numba, no_collection, parse_task
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.schemas import EVENTS
from kafka_quotas.pipeline.tables.table import TableSchema

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


_PIECES: Final = ".pieces"
_PARALLEL_FROM_BYTES: Final = 8 * 1024 * 1024
"""Size below which one process reads faster than several start."""
_ORDER: Final = [("ts_ms", "ascending"), ("src_file", "ascending"), ("src_offset", "ascending")]


@contextmanager
def workers(tasks: Sequence[IngestTask], size: int) -> Iterator[Executor | None]:
    """Start workers for tasks of `size` bytes, at most one per core. None is this thread alone.

    They are threads where machine code does the work, and processes where Python does.
    """
    count = min(len(tasks) if size >= _PARALLEL_FROM_BYTES else 1, os.cpu_count() or 1)
    if count <= 1:
        yield None
    elif all(task.is_compiled for task in tasks) and has_numba():
        with ThreadPoolExecutor(count) as threads:
            yield threads
    else:
        context = get_context("forkserver")
        context.set_forkserver_preload(["kafka_quotas.pipeline.ingest.local_engine"])  # loaded once, not by each
        with ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent) as processes:
            yield processes


def _end_with_parent() -> None:
    """End this worker as soon as its parent is gone: nobody would end it after a kill."""
    parent = parent_process()
    if parent is not None:
        Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()


def _results(
    pool: Executor | None, function: Callable[[_Argument], _Result], arguments: Iterable[_Argument]
) -> Iterator[_Result]:
    """Yield the results of a function over many arguments as they arrive, in no order."""
    if pool is None:
        yield from map(function, arguments)
        return
    futures = [pool.submit(function, argument) for argument in arguments]
    try:
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool as error:
        raise KafkaQuotasError("a worker process was killed", hint="is there enough memory?") from error
    finally:
        for future in futures:
            future.cancel()


def ingest_locally(
    tasks: Sequence[IngestTask], *, size: int, buckets: int, folder: Path, done: Callable[[TaskCounts], None]
) -> list[TaskCounts]:
    """Run the tasks and write their tables to `folder`.

    The tasks read about `size` bytes. `done` is called with the counts of each task as it ends.

    Returns:
        The counts of each task, by number.

    Raises:
        OSError: A file can't be read or written.
    """
    pieces = folder / _PIECES
    pieces.mkdir()
    counts = []
    with workers(tasks, size) as pool:
        for each in _results(pool, partial(_run_task, buckets=buckets, folder=pieces), tasks):
            counts.append(each)
            done(each)
        for _ in _results(pool, partial(_write_bucket, pieces=pieces, folder=folder), range(buckets)):
            pass
    for table in INGESTED_TABLES:
        if table is not EVENTS and (rows := _gather(pieces, table, 0)) is not None:
            write_table_file(rows, folder / table.name)
    shutil.rmtree(pieces)
    return sorted(counts, key=lambda each: each.number)


def _run_task(task: IngestTask, *, buckets: int, folder: Path) -> TaskCounts:
    """Parse a task, write its rows to files of its own and return its counts."""
    batches: dict[TableSchema, list[pa.RecordBatch]] = {table: [] for table in INGESTED_TABLES}
    counts = TaskCounts(number=task.number)
    with no_collection():
        for parsed in parse_task(task):
            for table, batch in arrow_batches(parsed, buckets=buckets):
                batches[table].append(batch)
            counts = parsed.counts
    for table, found in batches.items():
        if found:
            rows = pa.Table.from_batches(found)
            parts = _by_bucket(rows, buckets) if table is EVENTS else [rows]
            _write_piece((folder / f"{table.name}-{task.number:06}.arrow"), staged_schema(table), parts)
    return counts


def _by_bucket(events: pa.Table, buckets: int) -> list[pa.Table]:
    ordered = events.sort_by([(BUCKET, "ascending"), *_ORDER])
    numbers = ordered[BUCKET].to_numpy()
    starts = [int(each) for each in numbers.searchsorted(range(buckets + 1))]
    return [ordered.slice(start, end - start) for start, end in pairwise(starts)]


def _write_piece(path: Path, schema: pa.Schema, parts: Iterable[pa.Table]) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for part in parts:
            combined = part.combine_chunks().to_batches()
            writer.write_batch(combined[0] if combined else pa.RecordBatch.from_pylist([], schema=schema))


def _write_bucket(bucket: int, *, pieces: Path, folder: Path) -> None:
    """Write the events of one bucket to `folder`, a sorted file per day."""
    events = _gather(pieces, EVENTS, bucket)
    if events is None or events.num_rows == 0:
        return
    events = events.sort_by(_ORDER)
    for day in pc.unique(events["dt"]):
        part = events.filter(pc.equal(events["dt"], day)).drop_columns(["dt", BUCKET])
        write_table_file(part, folder / EVENTS.name / f"dt={day}" / f"{BUCKET}={bucket}")


def _gather(pieces: Path, table: TableSchema, batch: int) -> pa.Table | None:
    """Return the n-th batch of every piece of a table, None where there is no piece."""
    found = []
    for path in sorted(pieces.glob(f"{table.name}-*.arrow")):
        with pa.memory_map(str(path)) as source:
            found.append(pa.ipc.open_file(source).get_batch(batch))
    return pa.Table.from_batches(found) if found else None


def write_table_file(rows: pa.Table, folder: Path) -> None:
    """Write the rows to a Parquet file in the folder.

    Raises:
        OSError: The file can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    order = pq.SortingColumn.from_ordering(rows.schema, _ORDER) if "src_offset" in rows.column_names else None
    pq.write_table(rows, folder / "part-0.parquet", compression="zstd", sorting_columns=order)
