"""The tables of an ingest: rows as Arrow batches, events with their buckets, and counts of quarantine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_quotas.pipeline.formats.rows import EventRow
from kafka_quotas.pipeline.formats.task import ParsedBatch
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.layout import bucket_of
from kafka_quotas.pipeline.tables.schemas import CLIENT_THROTTLE, EVENTS, METRICS, QUARANTINE
from kafka_quotas.pipeline.tables.table import TableSchema

INGESTED_TABLES: Final = (EVENTS, QUARANTINE, METRICS, CLIENT_THROTTLE)
"""The tables that an ingest writes."""
PARSED_EVENTS: Final = pa.schema([EVENTS.arrow_schema().field(name) for name in EventRow._fields])
"""The columns of events as parsers give them."""
BUCKET: Final = "bucket"
_MS_PER_DAY: Final = 86_400_000


def staged_schema(table: TableSchema) -> pa.Schema:
    """Return the schema of a table during an ingest: events have their bucket as well."""
    schema = table.arrow_schema()
    return schema.append(pa.field(BUCKET, pa.int32(), nullable=False)) if table is EVENTS else schema


def arrow_batches(parsed: ParsedBatch, *, buckets: int) -> Iterator[tuple[TableSchema, pa.RecordBatch]]:
    """Yield a batch for each table that has rows."""
    parsed_events = [_batch(PARSED_EVENTS, list(zip(*parsed.events, strict=True)))] if parsed.events else []
    for batch in [*parsed_events, *parsed.event_batches]:
        yield EVENTS, _event_batch(batch, buckets)
    for table, rows in (
        (QUARANTINE, parsed.quarantine),
        (METRICS, parsed.metrics),
        (CLIENT_THROTTLE, parsed.client_throttle),
    ):
        if rows:
            yield table, _batch(staged_schema(table), list(zip(*rows, strict=True)))


def _event_batch(parsed: pa.RecordBatch, buckets: int) -> pa.RecordBatch:
    """Add the day of each event, and the bucket of its client, to parsed events."""
    days = pc.floor(pc.divide(pc.cast(parsed.column("ts_ms"), pa.float64()), _MS_PER_DAY))
    users, clients = (parsed.column(name).dictionary_encode() for name in ("user", "client_id"))
    brokers = parsed.column("broker_id").to_pylist()
    known: dict[tuple[int, int, int], int] = {}
    numbers = []
    for key in zip(users.indices.to_pylist(), clients.indices.to_pylist(), brokers, strict=True):
        number = known.get(key)
        if number is None:
            user, client_id = users.dictionary[key[0]].as_py(), clients.dictionary[key[1]].as_py()
            number = known[key] = bucket_of(user=user, client_id=client_id, broker_id=key[2], buckets=buckets)
        numbers.append(number)
    return _batch(staged_schema(EVENTS), [days.cast(pa.int32()).cast(pa.date32()), *parsed.columns, numbers])


def _batch(schema: pa.Schema, columns: Sequence[Sequence[object] | pa.Array]) -> pa.RecordBatch:
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A reason for which lines of a file are in quarantine."""

    src_file: str
    reason: str
    lines: int
    first_line_no: int
    """Number of the first such line."""


def count_faults(ingest: Path) -> tuple[Fault, ...]:
    """Return the faults of the lines in an ingest's folder, the most frequent first."""
    folder = ingest / QUARANTINE.name
    if not folder.is_dir():
        return ()
    rows = pq.read_table(folder, columns=["src_file", "reason", "line_no"])
    grouped = rows.group_by(["src_file", "reason"]).aggregate([("line_no", "count"), ("line_no", "min")])
    faults = [
        Fault(
            src_file=row["src_file"], reason=row["reason"], lines=row["line_no_count"], first_line_no=row["line_no_min"]
        )
        for row in grouped.to_pylist()
    ]
    return tuple(sorted(faults, key=lambda fault: (-fault.lines, fault.src_file, fault.first_line_no)))
