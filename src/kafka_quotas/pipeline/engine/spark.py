"""Tasks of a job on Spark: the same function as on one machine, on files or on shuffled rows.

Contract: the tables of all tasks are one frame: rows with a `part` (the task), a `found` (which of its tables), the
`kernel` and the columns of all tables, null for columns of another table. Workers that read files must see them under
the same path. Frames of rows need no files at all.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import types

from kafka_quotas.pipeline.engine.job import Job, Tables
from kafka_quotas.pipeline.kernels.compiled import BACKEND
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.event_slices import event_slices
from kafka_quotas.pipeline.tables.table import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART: Final = "part"
FOUND: Final = "found"
KERNEL: Final = "kernel"
"""The backend of the kernels in that task: `numba`, or `numpy`, which is slower and gives the same."""

_SPARK_TYPES: Final = {getattr(pa, each.arrow)(): getattr(types, each.spark)() for each in ColumnType}


def run_on_files(session: "SparkSession", tasks: Sequence[Sequence[Path]], job: Job) -> "DataFrame":
    """Run each task over its files in the workers, where no row passes through Java."""
    schema = frame_schema(job)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                files = [Path(file) for file in row["files"]]
                yield from _packed(row[PART], job.task(event_slices(files, columns=job.columns)), schema)

    rows = [(number, [str(file.absolute()) for file in files]) for number, files in enumerate(tasks)]
    frame = session.createDataFrame(rows, f"{PART} int, files array<string>")
    return frame.repartitionByRange(max(len(rows), 1), PART).mapInArrow(run, spark_schema(schema))


def run_on_rows(events: "DataFrame", job: Job) -> "DataFrame":
    """Shuffle the events and run one task per partition of clients that may share a bucket."""
    schema = frame_schema(job)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - runs in a worker

        filled = [batch for batch in batches if batch.num_rows]
        context = TaskContext.get()
        if filled and context is not None:
            yield from _packed(context.partitionId(), job.task([pa.Table.from_batches(filled)]), schema)

    return events.select(*job.columns).repartition(*job.partition_columns).mapInArrow(run, spark_schema(schema))


def frame_schema(job: Job) -> pa.Schema:
    """Return the columns of a frame with all tables of a job, where equal names have equal types."""
    fields: dict[str, pa.DataType] = {PART: pa.int32(), FOUND: pa.string(), KERNEL: pa.string()}
    for schema in job.schemas.values():
        fields |= {field.name: field.type for field in schema}
    return pa.schema(list(fields.items()))


def tables_by_task(found: pa.Table, job: Job) -> list[Tables]:
    """Split a collected frame into the tables of each task, in the order of the tasks."""
    tasks: list[Tables] = []
    for part in sorted(set(found[PART].to_pylist())):
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
