"""An ingest on this machine without Spark: tasks in threads or processes, then one sort per range of clients.

Each task leaves one Arrow file per table in a folder for temporary files (TMPDIR), events by client and time. Ranges of
clients are gathered by memory-mapping their rows out of each file, and written in parallel, in bounded memory. The
tables change by one commit each, at the end. Small ingests run in this process, which is quicker than starting others.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import pyarrow as pa

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.formats.task import IngestTask, TaskCounts
from kafka_quotas.pipeline.ingest.ingested_tables import arrow_batches, clients_of
from kafka_quotas.pipeline.ingest.parse import no_collection, parse_task
from kafka_quotas.pipeline.tables.arrow import keep_memory
from kafka_quotas.pipeline.tables.event_files import sorted_by_client, write_events
from kafka_quotas.pipeline.tables.lake import Lake, lake_errors
from kafka_quotas.pipeline.tables.schemas import CLIENTS, EVENTS, INGESTED_TABLES, TableSchema

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

_RANGE_EVENTS: Final = 1 << 20
"""About how many events are in memory per worker, and in a file of the table events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillRange:
    """Clients by number, or a part of the time of one."""

    first: int
    last: int
    """Last number, inclusive."""
    from_ms: int | None = None
    """First time, None for no bound."""
    before_ms: int | None = None
    """Time after the last, None for no bound."""

    def of(self, events: pa.Table) -> pa.Table:
        """Return the range's rows of events that are sorted by client and time."""
        numbers = events["client"].to_numpy()
        begin, end = np.searchsorted(numbers, self.first), np.searchsorted(numbers, self.last, side="right")
        times_ms = events["ts_ms"].to_numpy()[begin:end]
        if self.before_ms is not None:
            end = begin + np.searchsorted(times_ms, self.before_ms)
        if self.from_ms is not None:
            begin += np.searchsorted(times_ms, self.from_ms)
        return events.slice(int(begin), max(int(end - begin), 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """A folder of parsed rows."""

    folder: Path

    def write(self, table: TableSchema, number: int, rows: pa.Table) -> None:
        """Write the rows of one task, numbered in the order of files and offsets."""
        ordered = sorted_by_client(rows) if table is EVENTS else rows
        with (
            pa.OSFile(str(self.folder / f"{table.name}-{number:08}.arrow"), "wb") as sink,
            pa.ipc.new_file(sink, table.arrow_schema()) as writer,
        ):
            writer.write_table(ordered.combine_chunks())

    def rows(self, table: TableSchema) -> pa.Table:
        """Return all rows of a table that needs no order."""
        parts = [_mapped(path) for path in self._files(table)]
        return pa.concat_tables([table.arrow_schema().empty_table(), *parts])

    def ranges(self) -> list["SpillRange"]:
        """Return ranges with about equal numbers of events, by client, a giant client in several."""
        counts: dict[int, int] = {}
        for path in self._files(EVENTS):
            found, events = np.unique(_mapped(path)["client"].to_numpy(), return_counts=True)
            for client, count in zip(found.tolist(), events.tolist(), strict=True):
                counts[client] = counts.get(client, 0) + count
        found_ranges: list[SpillRange] = []
        own: list[int] = []
        for client in sorted(counts):
            if own and sum(map(counts.__getitem__, own)) + counts[client] > _RANGE_EVENTS:
                found_ranges.append(SpillRange(first=own[0], last=own[-1]))
                own = []
            if counts[client] > 2 * _RANGE_EVENTS:
                found_ranges += self._parts(client, -(-counts[client] // _RANGE_EVENTS))
            else:
                own.append(client)
        return [*found_ranges, SpillRange(first=own[0], last=own[-1])] if own else found_ranges

    def events(self, wanted: "SpillRange") -> pa.Table:
        """Return the events of a range, by client, time, file and offset."""
        parts = [EVENTS.arrow_schema().empty_table(), *map(wanted.of, map(_mapped, self._files(EVENTS)))]
        return sorted_by_client(pa.concat_tables(parts).combine_chunks())

    def _parts(self, client: int, count: int) -> "list[SpillRange]":
        """Divide the events of one client at whole seconds."""
        own = SpillRange(first=client, last=client)
        times_ms = np.concatenate([own.of(_mapped(path))["ts_ms"].to_numpy() for path in self._files(EVENTS)])
        shares = np.arange(1, count) / count
        cuts = np.unique(np.quantile(times_ms, shares, method="lower") // 1000 * 1000).tolist()
        bounds = [None, *map(int, cuts), None]
        return [SpillRange(first=client, last=client, from_ms=begin, before_ms=end) for begin, end in pairwise(bounds)]

    def _files(self, table: TableSchema) -> Sequence[Path]:
        return sorted(self.folder.glob(f"{table.name}-*.arrow"))


def _mapped(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


_PARALLEL_FROM_BYTES: Final = 8 * 1024 * 1024
"""Size below which one process reads faster than several start."""


@contextmanager
def workers(tasks: Sequence[IngestTask], size: int) -> Iterator[Executor | None]:
    """Start workers for tasks of `size` bytes, at most one per core. None is this thread alone.

    They are threads where machine code does the work, and processes where Python does.
    """
    count = min(len(tasks) if size >= _PARALLEL_FROM_BYTES else 1, os.cpu_count() or 1)
    if count <= 1:
        yield None
    elif all(task.is_compiled for task in tasks):
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
    tasks: Sequence[IngestTask], *, size: int, lake: Lake, ingest: int, done: Callable[[TaskCounts], None]
) -> list[TaskCounts]:
    """Run the tasks and append their rows to the tables, marked with the ingest.

    The tasks read about `size` bytes. `done` is called with the counts of each task as it ends.

    Returns:
        The counts of each task, by number.

    Raises:
        KafkaQuotasError: The rows can't be stored.
        OSError: A file can't be read.
    """
    keep_memory()
    counts = []
    with TemporaryDirectory(prefix="kafka-quotas-ingest-") as folder, lake_errors(f"sorting in {folder}"):
        spill = Spill(folder=Path(folder))
        with workers(tasks, size) as pool:
            for each in _results(pool, partial(_run_task, ingest=ingest, places=_places(tasks), spill=spill), tasks):
                counts.append(each)
                done(each)
            store_spilled(spill, lake, pool)
    return sorted(counts, key=lambda each: each.number)


def store_spilled(spill: Spill, lake: Lake, pool: Executor | None = None) -> None:
    """Append all rows of a spill to the tables, each by one commit."""
    files: list[AddAction] = []
    clients = [CLIENTS.arrow_schema().empty_table()]
    for added, found in _results(pool, partial(_write_range, spill=spill, lake=lake), spill.ranges()):
        files += added
        clients.append(found)
    lake.commit_files(EVENTS, files)
    for table in INGESTED_TABLES:
        if table is not EVENTS and (rows := spill.rows(table)).num_rows:
            lake.append(table, rows)
    lake.append(CLIENTS, pa.concat_tables(clients))


def _places(tasks: Sequence[IngestTask]) -> dict[int, int]:
    """Return the place of each task in the order of files and offsets, by number."""
    ordered = sorted(tasks, key=lambda task: (str(task.path), task.start))
    return {task.number: place for place, task in enumerate(ordered)}


def _run_task(task: IngestTask, *, ingest: int, places: dict[int, int], spill: Spill) -> TaskCounts:
    """Parse a task, spill its rows and return its counts."""
    batches: dict[TableSchema, list[pa.RecordBatch]] = {table: [] for table in INGESTED_TABLES}
    counts = TaskCounts(number=task.number)
    with no_collection():
        for parsed in parse_task(task):
            for table, batch in arrow_batches(parsed, ingest=ingest):
                batches[table].append(batch)
            counts = parsed.counts
    for table, found in batches.items():
        if found:
            spill.write(table, places[task.number], pa.Table.from_batches(found))
    return counts


def _write_range(wanted: SpillRange, *, spill: Spill, lake: Lake) -> "tuple[list[AddAction], pa.Table]":
    """Write the events of a range, and return the files to commit and the rows of `clients`."""
    events = spill.events(wanted)
    return write_events(lake, events), clients_of(events)
