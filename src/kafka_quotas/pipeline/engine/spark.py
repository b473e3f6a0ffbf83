"""Tasks over events on Spark: the same functions as on one machine, on files or on shuffled rows.

Contract: `DataFrame -> DataFrame` with declared schemas. The tables of all tasks come as one frame: rows with a `part`
(the task), a `found` (which of its tables) and the columns of all tables, null for columns of another table. Workers
that read files must see them under the same path; frames of rows need no files at all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types

from kafka_quotas.pipeline.kernels.compiled import BACKEND
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.event_slices import COLUMNS, event_slices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tables = Mapping[str, pa.Table]
Work = Callable[[Iterable[pa.Table]], Tables]
"""Maps slices of events to a task's tables by name."""

PART: Final = "part"
FOUND: Final = "found"
KERNEL: Final = "kernel"
"""The backend of the kernels in that task: `numba`, or `numpy`, which is slower and gives the same."""

_SPARK_TYPES: Final = {
    pa.string(): types.StringType(),
    pa.int32(): types.IntegerType(),
    pa.int64(): types.LongType(),
    pa.float64(): types.DoubleType(),
}


def found_on_files(
    session: "SparkSession",
    tasks: Sequence[Sequence[Path]],
    work: Work,
    schemas: Mapping[str, pa.Schema],
    columns: Sequence[str] = COLUMNS,
) -> "DataFrame":
    """Run each task over its files in the workers, where no row passes through Java."""
    schema = found_schema(schemas)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                tables = work(event_slices([Path(file) for file in row["files"]], columns=columns))
                yield from _packed(row[PART], tables, schema)

    rows = [(number, [str(file.absolute()) for file in files]) for number, files in enumerate(tasks)]
    frame = session.createDataFrame(rows, f"{PART} int, files array<string>")
    return frame.repartitionByRange(max(len(rows), 1), PART).mapInArrow(run, _spark_schema(schema))


def found_in_rows(
    events: "DataFrame",
    told_apart_by: Sequence[str],
    work: Work,
    schemas: Mapping[str, pa.Schema],
    columns: Sequence[str] = COLUMNS,
) -> "DataFrame":
    """Shuffle the events and run one task per partition of clients that may share a bucket."""
    schema = found_schema(schemas)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - runs in a worker

        held = [batch for batch in batches if batch.num_rows]
        context = TaskContext.get()
        if held and context is not None:
            tables = work([pa.Table.from_batches(held)])
            yield from _packed(context.partitionId(), tables, schema)

    return events.select(*columns).repartition(*told_apart_by).mapInArrow(run, _spark_schema(schema))


def found_schema(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the columns of a frame with all these tables.

    A column of the same name has the same type in each.
    """
    fields: dict[str, pa.DataType] = {PART: pa.int32(), FOUND: pa.string(), KERNEL: pa.string()}
    for schema in schemas.values():
        fields |= {field.name: field.type for field in schema}
    return pa.schema(list(fields.items()))


def unpacked(found: pa.Table, schemas: Mapping[str, pa.Schema]) -> list[dict[str, pa.Table]]:
    """Split a collected frame into the tables of each task by name, in the order of the tasks."""
    tasks = []
    for part in sorted(set(found[PART].to_pylist())):
        own = found.filter(pc.equal(found[PART], part))
        tasks.append(
            {
                name: own.filter(pc.equal(own[FOUND], name)).select(schema.names).cast(schema)
                for name, schema in schemas.items()
            }
        )
    return tasks


def _packed(part: int, tables: Tables, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for name, table in tables.items():
        count = table.num_rows
        told: dict[str, Any] = {
            PART: pa.array([part], pa.int32()).take(pa.array([0] * count, pa.int32())),
            FOUND: pa.array([name]).take(pa.array([0] * count, pa.int32())),
            KERNEL: pa.array([BACKEND]).take(pa.array([0] * count, pa.int32())),
        }
        columns = [
            told.get(field.name, table[field.name] if field.name in table.column_names else pa.nulls(count, field.type))
            for field in schema
        ]
        yield from pa.table(columns, schema=schema).to_batches(max_chunksize=100_000)


def _spark_schema(schema: pa.Schema) -> types.StructType:
    return types.StructType([types.StructField(field.name, _SPARK_TYPES[field.type]) for field in schema])
