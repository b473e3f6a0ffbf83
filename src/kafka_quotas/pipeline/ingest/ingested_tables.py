"""The tables of an ingest: parsed rows as Arrow batches, and counts of quarantine."""

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.dataset as ds

from kafka_quotas.pipeline.engine.sql import DuckTables, duck_errors
from kafka_quotas.pipeline.formats.task import EventRow, ParsedBatch, TaskCounts
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.packed_events import NAMES, client_number, distinct, pack
from kafka_quotas.pipeline.tables.schemas import (
    CLIENT_THROTTLE,
    EVENTS,
    METRICS,
    PACKED_EVENTS,
    QUARANTINE,
    TableSchema,
)
from kafka_quotas.pipeline.tables.staged_files import StagedFile, write_staged

PARSED_EVENTS: Final = pa.schema([EVENTS.arrow_schema().field(name) for name in EventRow._fields])
"""The columns of events as parsers give them."""
_PACKED_BYTES: Final = 1 << 27
"""Bytes of loose rows that a worker has in memory before it packs and writes them."""
_MOST_FAULTS: Final = 20_000


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


def write_tables(
    lake: Lake, tasks: Iterable[Iterable[ParsedBatch]], ended: Callable[[TaskCounts], None] = lambda _: None
) -> StagedRows:
    """Write the rows of tasks, their events packed together, and call `ended` with the counts of each."""
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
                ended(of_task)

    for table, rows in packed_tables(batches()):
        staged[table.name] += write_staged(lake, table, rows)
    return counts, staged


def packed_tables(
    batches: Iterable[tuple[TableSchema, pa.RecordBatch]],
) -> Iterator[tuple[TableSchema, pa.Table]]:
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


def client_numbers(events: pa.RecordBatch) -> pa.Array:
    """Return the number of each event's client, each computed once."""
    places, clients = distinct(events, NAMES)
    numbers = [client_number(**dict(zip(NAMES, client, strict=True))) for client in clients]
    return pa.array(numbers, pa.int64()).take(pa.array(places))


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
