"""Tasks of a job on Spark: the same function as on one machine, over partitions of shuffled events.

Contract: the tables of all tasks are one frame: rows with a `part` (the task), a `found` (which of its tables), the
`kernel` and the columns of all tables, null for columns of another table.

Invariants: events of clients that may share a bucket are in one partition, by time. A partition is read batch by batch,
so that its size takes no memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import StorageLevel
from pyspark.sql import Window, functions, types

from kafka_quotas.pipeline.engine.job import Job, Tables
from kafka_quotas.pipeline.kernels.compiled import BACKEND
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.client_ranges import NAMES, SLICE_EVENTS, with_names
from kafka_quotas.pipeline.tables.lake import hadoop_url
from kafka_quotas.pipeline.tables.schemas import CLIENTS, EVENTS
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot
from kafka_quotas.pipeline.tables.table import ColumnType, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PART: Final = "part"
FOUND: Final = "found"
KERNEL: Final = "kernel"
"""The backend of the kernels in that task: `numba`, or `numpy`, which is slower and gives the same."""

_GROUP: Final = "shared_group"
_PART_OF_CLIENTS: Final = "part_of_clients"
_PART_EVENTS: Final = 1 << 20
"""About how many events a partition has."""
_FEWEST_PARTITIONS: Final = 8
_FIRST_MS: Final = -(1 << 62)
"""The time in a row that names a client, before all events."""
_KINDS: Final = ("produce", "fetch", "request", "controller_mutation", "request_rate")
_SPARK_TYPES: Final = {getattr(pa, each.arrow)(): getattr(types, each.spark)() for each in ColumnType}


def read_table(session: "SparkSession", snapshot: FolderSnapshot, table: TableSchema) -> "DataFrame":
    """Read the rows of a table that count, by Spark's own source of Delta tables."""
    rows = session.read.format("delta").option("versionAsOf", snapshot.version(table))
    return rows.load(hadoop_url(snapshot.lake.place(table))).where(functions.col("ingest").isin(snapshot.ingests))


def run_job(session: "SparkSession", snapshot: FolderSnapshot, job: Job, *, events_count: int) -> "DataFrame":
    """Run a job's task over each partition of clients that may share a bucket.

    Partitions are about equal by the counts of the table clients. Only the columns that the task reads are shuffled,
    names once for each client.
    """
    clients, events = read_table(session, snapshot, CLIENTS), read_table(session, snapshot, EVENTS)
    part_events = max(min(_PART_EVENTS, events_count // _FEWEST_PARTITIONS), 1)
    partitions = events_count // part_events + 1
    parts = _parts(clients, shift=job.shift, part_events=part_events)
    group = functions.shiftright("client", job.shift)
    stored = [name for name in dict.fromkeys((*job.columns, "client", "ts_ms")) if name not in NAMES]
    charges = events.select(
        group.alias(_GROUP), *(_coded() if name == "quota_type" else functions.col(name) for name in stored)
    )
    names = (
        clients.select(group.alias(_GROUP), "client", *NAMES).distinct().withColumn("ts_ms", functions.lit(_FIRST_MS))
    )
    rows = charges.unionByName(names, allowMissingColumns=True).join(functions.broadcast(parts), _GROUP)
    placed = rows.repartition(partitions, _PART_OF_CLIENTS).drop(_PART_OF_CLIENTS)
    ordered = placed.sortWithinPartitions(_GROUP, "ts_ms", "client")
    schema = frame_schema(job)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - runs in a worker

        context = TaskContext.get()
        slices = _slices(batches)
        first = next(slices, None)
        if first is not None and context is not None:
            yield from _packed(context.partitionId(), job.task(chain([first], slices)), schema)

    return ordered.mapInArrow(run, spark_schema(schema))


def _parts(clients: "DataFrame", *, shift: int, part_events: int) -> "DataFrame":
    """Return the part of every group of clients, with about `part_events` events in a part."""
    group = functions.shiftright("client", shift).alias(_GROUP)
    counted = clients.groupBy(group).agg(functions.sum("events").alias("events"))
    whole = Window.partitionBy(functions.col(_GROUP) * 0)  # without a partition Spark warns, though groups are few
    before = functions.sum("events").over(whole.orderBy(_GROUP)) - functions.col("events")
    return counted.select(_GROUP, functions.floor(before / part_events).alias(_PART_OF_CLIENTS))


def _coded() -> "Column":
    """Return the quota type as its number, which costs Python less than text."""
    found = functions.lit(None)
    for number, kind in enumerate(_KINDS):
        found = functions.when(functions.col("quota_type") == kind, number).otherwise(found)
    return found.cast("int").alias("quota_type")


def _slices(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the events of sorted batches in slices of whole seconds, with the names of their clients.

    A row without a quota type names a client. It comes before its events.
    """
    names: dict[int, tuple[Any, ...]] = {}
    kept: list[pa.Table] = []
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        is_name = pc.equal(rows["ts_ms"], _FIRST_MS)
        named = rows.filter(is_name).select(["client", *NAMES])
        names |= {row[0]: row for row in zip(*named.to_pydict().values(), strict=True)}
        kept.append(rows.filter(pc.invert(is_name)).drop_columns(list(NAMES)))
        if sum(each.num_rows for each in kept) >= SLICE_EVENTS:
            together = pa.concat_tables(kept)
            cut = _last_second(together)
            if cut:
                yield _named(together.slice(0, cut), names)
            kept = [together.slice(cut)]
    if any(each.num_rows for each in kept):
        yield _named(pa.concat_tables(kept), names)


def _last_second(rows: pa.Table) -> int:
    """Return where the last second of the last group begins, for its end may not be here yet."""
    groups, seconds = rows[_GROUP].to_numpy(), rows["ts_ms"].to_numpy() // 1000
    is_other = (groups != groups[-1]) | (seconds != seconds[-1])
    return int(np.flatnonzero(is_other)[-1]) + 1 if is_other.any() else 0


def _named(rows: pa.Table, names: dict[int, tuple[Any, ...]]) -> pa.Table:
    present = pc.unique(rows["client"]).to_pylist()
    own = sorted(names[client] for client in present)
    schema = pa.schema([CLIENTS.arrow_schema().field(name) for name in ("client", *NAMES)])
    table = pa.table(
        [pa.array(column, field.type) for column, field in zip(zip(*own, strict=True), schema, strict=True)],
        schema=schema,
    )
    codes = rows["quota_type"].combine_chunks()
    kinds = pa.DictionaryArray.from_arrays(codes, pa.array(_KINDS))
    place = rows.schema.get_field_index("quota_type")
    return with_names(rows.set_column(place, "quota_type", kinds).drop_columns([_GROUP]), table)


class LeftTable:
    """A table of a job that stays with the executors, on their disks, for as long as the session lasts."""

    def __init__(self, frame: "DataFrame", columns: list[str], name: str) -> None:
        self._frame = frame.persist(StorageLevel.DISK_ONLY)
        self._columns = columns
        self._name = name
        self.parts: list[int] = []
        """Numbers of the partitions that had tasks, in their order."""

    def others(self) -> "DataFrame":
        """Return the rows of all other tables."""
        return self._frame.where(functions.col(FOUND) != self._name)

    def with_entities(self, ids: Sequence[NDArray[np.int64]], columns: Sequence[str]) -> "DataFrame":
        """Return the rows with the numbers of entities in place of each task's own numbers of buckets.

        Args:
            ids: The entity of each bucket, for each task in the order of `parts`.
            columns: The columns to return, `entity_id` among them.
        """
        counts = [len(each) for each in ids]
        known = pa.table(
            {
                PART: pa.array(np.repeat(np.array(self.parts, dtype=np.int32), counts)),
                "bucket": pa.array(
                    np.concatenate([np.empty(0, dtype=np.int64), *map(np.arange, counts)]).astype(np.int64)
                ),
                "entity_id": pa.array(np.concatenate([np.empty(0, dtype=np.int64), *ids]).astype(np.int32)),
            }
        )
        names = self._frame.sparkSession.createDataFrame(known)
        rows = self._frame.where(functions.col(FOUND) == self._name).select(PART, *self._columns)
        return rows.join(functions.broadcast(names), [PART, "bucket"]).select(*columns)


def parts_of(found: pa.Table) -> list[int]:
    """Return the numbers of the partitions in a collected frame, in the order of the tasks."""
    return sorted(set(found[PART].to_pylist()))


def frame_schema(job: Job) -> pa.Schema:
    """Return the columns of a frame with all tables of a job, where equal names have equal types."""
    fields: dict[str, pa.DataType] = {PART: pa.int32(), FOUND: pa.string(), KERNEL: pa.string()}
    for schema in job.schemas.values():
        fields |= {field.name: field.type for field in schema}
    return pa.schema(list(fields.items()))


def tables_by_task(found: pa.Table, job: Job) -> list[Tables]:
    """Split a collected frame into the tables of each task, in the order of the tasks."""
    tasks: list[Tables] = []
    for part in parts_of(found):
        own = found.filter(pc.equal(found[PART], part))
        tasks.append(
            {
                name: own.filter(pc.equal(own[FOUND], name)).select(schema.names).cast(schema)
                for name, schema in job.schemas.items()
            }
        )
    return tasks


def spark_schema(schema: pa.Schema) -> types.StructType:
    """Return the schema for Spark, with every column nullable."""
    return types.StructType([types.StructField(field.name, _SPARK_TYPES[field.type]) for field in schema])


def _packed(part: int, tables: Tables, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for name, table in tables.items():
        count = table.num_rows
        same = {PART: pa.scalar(part, pa.int32()), FOUND: pa.scalar(name), KERNEL: pa.scalar(BACKEND)}
        fixed = {column: pa.repeat(value, count) for column, value in same.items()}
        columns = [
            fixed.get(
                field.name, table[field.name] if field.name in table.column_names else pa.nulls(count, field.type)
            )
            for field in schema
        ]
        yield from pa.table(columns, schema=schema).to_batches(max_chunksize=100_000)
