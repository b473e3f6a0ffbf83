"""An ingest on Spark: a row per task, the parser in Python workers, and a sort into buckets.

Contract: transforms are `DataFrame -> DataFrame` with the declared schemas. Workers read the files themselves: every
executor must see them, and the data folder, under the same path.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import types

from kafka_quotas.pipeline.engine.progress import Watch, row_counter, run_watched
from kafka_quotas.pipeline.formats.task import IngestTask, TaskCounts
from kafka_quotas.pipeline.ingest.ingested_tables import BUCKET, INGESTED_TABLES, arrow_batches, staged_schema
from kafka_quotas.pipeline.ingest.parse import no_collection, parse_task
from kafka_quotas.pipeline.tables.schemas import EVENTS, QUARANTINE
from kafka_quotas.pipeline.tables.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COUNTS: Final = "counts"
_COUNT_NAMES: Final = tuple(each.name for each in fields(TaskCounts))
_ORDER: Final = ("ts_ms", "src_file", "src_offset")


def ingest_on_spark(
    session: "SparkSession", tasks: Sequence[IngestTask], *, buckets: int, folder: Path, watch: Watch
) -> list[TaskCounts]:
    """Run the tasks on Spark and write their tables to `folder`.

    Spark's own errors pass through.

    Returns:
        The counts of each task, by number.
    """
    rows = row_counter(session)
    parsed = parsed_rows(session, tasks, buckets=buckets, rows=rows).persist(StorageLevel.DISK_ONLY)
    row_count = (lambda: int(rows.value)) if rows is not None else int
    try:
        collected = run_watched(
            session,
            parsed.where(f"{_COUNTS} is not null").select(f"{_COUNTS}.*").collect,
            stage="read",
            watch=watch,
            rows=row_count,
        )
        counts = sorted((TaskCounts(**row.asDict()) for row in collected), key=lambda each: each.number)
        for table in INGESTED_TABLES:
            if any(getattr(each, "quarantined" if table is QUARANTINE else table.name) for each in counts):
                run_watched(
                    session, _writer(parsed, table, folder), stage=f"write {table.name}", watch=watch, rows=row_count
                )
    finally:
        parsed.unpersist()
    return counts


def parsed_rows(session: "SparkSession", tasks: Sequence[IngestTask], *, buckets: int, rows: Any = None) -> "DataFrame":
    """Return one row per row of any table and per task's counts, in a column per table.

    One column of each row is not null. `rows` is an accumulator for the number of rows, None for none.
    """
    known = tuple(tasks)

    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with no_collection():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _wide_batches(known[number], buckets, rows)

    return session.range(0, len(known), 1, len(known)).mapInArrow(parse, wide_schema())


def wide_schema() -> types.StructType:
    """Return the schema of `parsed_rows`."""
    columns = [types.StructField(table.name, _staged_spark_schema(table)) for table in INGESTED_TABLES]
    counts = types.StructType([types.StructField(name, types.LongType()) for name in _COUNT_NAMES])
    return types.StructType([*columns, types.StructField(_COUNTS, counts)])


def bucketed(events: "DataFrame") -> "DataFrame":
    """Move each bucket of events into one partition, sorted like its files."""
    return events.repartition(BUCKET).sortWithinPartitions("dt", BUCKET, *_ORDER)


def _writer(parsed: "DataFrame", table: TableSchema, folder: Path) -> Callable[[], None]:
    rows = parsed.where(f"{table.name} is not null").select(f"{table.name}.*")
    target = (folder / table.name).as_uri()
    writer = bucketed(rows).write.partitionBy("dt", BUCKET) if table is EVENTS else rows.coalesce(1).write
    return lambda: writer.option("compression", "zstd").parquet(target)


def _staged_spark_schema(table: TableSchema) -> types.StructType:
    schema = table.spark_schema()
    return schema.add(BUCKET, types.IntegerType(), nullable=False) if table is EVENTS else schema


def _wide_batches(task: IngestTask, buckets: int, rows: Any) -> Iterator[pa.RecordBatch]:
    """Yield the task's rows, each batch in the column of its table, and the counts last."""
    counts = TaskCounts(number=task.number)
    for parsed in parse_task(task):
        for table, batch in arrow_batches(parsed, buckets=buckets):
            yield _widened({table.name: batch.to_struct_array()}, batch.num_rows)
        if rows is not None:
            rows.add(parsed.size)
        counts = parsed.counts
    yield _widened({_COUNTS: pa.array([{name: getattr(counts, name) for name in _COUNT_NAMES}], _counts_type())}, 1)


def _widened(given: dict[str, pa.Array], length: int) -> pa.RecordBatch:
    kinds = {table.name: pa.struct(list(staged_schema(table))) for table in INGESTED_TABLES} | {_COUNTS: _counts_type()}
    arrays = [given[name] if name in given else pa.nulls(length, kind) for name, kind in kinds.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(kinds))


def _counts_type() -> pa.StructType:
    return pa.struct([pa.field(name, pa.int64()) for name in _COUNT_NAMES])
