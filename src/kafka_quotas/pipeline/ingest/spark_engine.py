"""An ingest on Spark: a row per task, the parser in Python workers, and a sort by day, client and time.

Contract: transforms are `DataFrame -> DataFrame` with the declared schemas. Spark reads logs at URLs, with its own file
systems and credentials: each whole, and large ones by line (`large_logs`). Logs at paths are read by the workers, which
must see them there. Executors write the tables, at any URL that Spark writes.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions, types

from kafka_quotas.pipeline.engine.progress import Watch, row_counter, run_watched
from kafka_quotas.pipeline.engine.spark import begin_task, glob_escaped
from kafka_quotas.pipeline.formats.source_file import RemoteFile, file_size
from kafka_quotas.pipeline.formats.task import IngestTask, ParsedBatch, TaskCounts
from kafka_quotas.pipeline.ingest.ingested_tables import arrow_batches
from kafka_quotas.pipeline.ingest.large_logs import (
    SPLIT,
    lines_by_split,
    lines_of,
    merged_counts,
    placed,
    task_rows,
    with_damage,
)
from kafka_quotas.pipeline.ingest.parse import no_collection, parse_lines, parse_task
from kafka_quotas.pipeline.ingest.plan import PIECE_BYTES
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.lake import PARTITION, Lake, hadoop_url
from kafka_quotas.pipeline.tables.schemas import CHARGED_TYPES, CLIENTS, EVENTS, INGESTED_TABLES, QUARANTINE
from kafka_quotas.pipeline.tables.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COUNTS: Final = "counts"
_COUNT_NAMES: Final = tuple(each.name for each in fields(TaskCounts))
_ORDER: Final = ("ts_ms", "src_file", "src_offset")
_TASK_COLUMNS: Final = ("task", "content")
_FEW_PARTITIONS: Final = 64
_MOST_PARTITIONS: Final = 1 << 15
"""Partitions of tasks, each of which Spark's driver keeps account of."""


def ingest_on_spark(
    session: "SparkSession", tasks: Sequence[IngestTask], *, lake: Lake, ingest: int, watch: Watch
) -> list[TaskCounts]:
    """Run the tasks on Spark and append their rows to the tables, marked with the ingest.

    Spark's own errors pass through.

    Returns:
        The counts of each task, by number.
    """
    rows = row_counter(session)
    row_count = (lambda: int(rows.value)) if rows is not None else int
    parsed = parsed_rows(session, tasks, ingest=ingest, rows=rows).persist(StorageLevel.DISK_ONLY)
    try:
        count = parsed.where(f"{_COUNTS} is not null").select(_COUNTS, SPLIT).collect
        try:
            collected = run_watched(session, count, stage="read", watch=watch, rows=row_count)
        except Exception as error:  # py4j's, gRPC's and Spark's own, of many classes
            if (known := with_damage(tasks, str(error))) == list(tasks):
                raise
            return ingest_on_spark(session, known, lake=lake, ingest=ingest, watch=watch)
        counts, splits = merged_counts(tasks, [(TaskCounts(**row[_COUNTS].asDict()), row[SPLIT]) for row in collected])
        for table in INGESTED_TABLES:
            if any(getattr(each, "quarantined" if table is QUARANTINE else table.name) for each in counts):
                found = placed(
                    parsed.where(f"{table.name} is not null").select(SPLIT, f"{table.name}.*"), table, splits
                )
                frames = (
                    [(table, found)]
                    if table is not EVENTS
                    else [(EVENTS, by_client(found)), (CLIENTS, clients_of(found))]
                )
                for target, frame in frames:
                    write = partial(append, frame, lake, target)
                    run_watched(session, write, stage=f"write {target.name}", watch=watch, rows=row_count)
    finally:
        parsed.unpersist()
    return counts


def append(rows: "DataFrame", lake: Lake, table: TableSchema) -> None:
    """Append rows to a table of the lake by the executors, in one commit."""
    rows.select(*table.column_names).write.format("delta").mode("append").option(
        "mergeSchema",
        "true",  # tables of earlier versions get the columns that are new
    ).save(hadoop_url(lake.place(table)))


def by_client(events: "DataFrame") -> "DataFrame":
    """Sort events as the files of their table are, in partitions by day, client and time."""
    return events.repartitionByRange(PARTITION, "client", "ts_ms").sortWithinPartitions(PARTITION, "client", *_ORDER)


def clients_of(events: "DataFrame") -> "DataFrame":
    """Return the rows of `clients` for events of one ingest."""
    client = ["client", "cluster", "broker_id", "user", "client_id", "ingest"]
    seconds = events.groupBy(*client, functions.expr("ts_ms div 1000").alias("second")).agg(
        functions.count("*").alias("events"),
        functions.min("ts_ms").alias("first_ms"),
        functions.max("ts_ms").alias("last_ms"),
        functions.sum("bytes").alias("bytes"),
        *(functions.expr(f"{text} as {name}") for kind in CHARGED_TYPES for name, text in _charges_of(kind).items()),
    )
    merged = {"events": "sum", "amount": "sum", "peak": "max", "first_ms": "min", "last_ms": "max"}
    return seconds.groupBy(*client).agg(
        functions.sum("events").alias("events"),
        functions.min("first_ms").alias("first_ms"),
        functions.max("last_ms").alias("last_ms"),
        functions.max("bytes").alias("peak_bytes"),
        *(
            functions.expr(f"{function}({kind}_{name}) as {kind}_{name}")
            for kind in CHARGED_TYPES
            for name, function in merged.items()
        ),
    )


def _charges_of(kind: str) -> dict[str, str]:
    """Return the figures of a quota type's charges in a group of events, in SQL, by column."""
    column = {"request": "thread_ms * 0.1D * 1e7D", "controller_mutation": "mutations"}.get(kind, "bytes")
    is_own = "thread_ms is not null" if kind == "request" else f"quota_type = '{kind}'"
    is_charged = f"not is_exempt and {is_own}"
    return {
        f"{kind}_events": f"count_if({is_charged})",
        f"{kind}_amount": f"sum(if({is_charged}, cast(rint({column}) as bigint), 0L))",
        f"{kind}_peak": f"sum(if({is_charged}, greatest(ceil({column}), 0L), 0L))",
        f"{kind}_first_ms": f"min(if({is_charged}, ts_ms, null))",
        f"{kind}_last_ms": f"max(if({is_charged}, ts_ms, null))",
    }


def parsed_rows(session: "SparkSession", tasks: Sequence[IngestTask], *, ingest: int, rows: Any = None) -> "DataFrame":
    """Return one row per row of any table and per task's counts, in a column per table.

    One column of each row is not null. `rows` is an accumulator for the number of rows, None for none.
    """

    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        with no_collection():
            for batch in batches:
                for described, content in zip(*batch.columns, strict=True):
                    task = _with_content(pickle.loads(described.as_buffer()), content)  # noqa: S301 - made by this very program
                    yield from _wide_batches(task.number, parse_task(task), ingest, rows)

    def parse_large(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        with no_collection():
            for task, split, blocks in lines_by_split(batches):
                yield from _wide_batches(task.number, parse_lines(task, blocks), ingest, rows, split)

    frames = []
    if small := [task for task in tasks if task.large is None]:
        frames.append(described_tasks(session, small).mapInArrow(parse, wide_schema()))
    if large := [task for task in tasks if task.large is not None]:
        frames.append(lines_of(session, large).mapInArrow(parse_large, wide_schema()))
    return reduce(lambda one, other: one.unionByName(other), frames)


def described_tasks(session: "SparkSession", tasks: Sequence[IngestTask]) -> "DataFrame":
    """Return the tasks in rows: pickled in `task`, with the bytes of their file in `content`.

    Spark reads files at URLs itself, each whole. Others are read by the workers: their `content` is null.
    """
    own = [task for task in tasks if isinstance(task.path, Path)]
    by_url = {hadoop_url(task.path.url): task for task in tasks if isinstance(task.path, RemoteFile)}
    frames = []
    if own:
        here = arrow_frame(session, task_rows(own, [str(task.path) for task in own])).repartition(partitions(own))
        frames.append(here.select("task", functions.lit(None).cast("binary").alias("content")))
    if by_url:
        known = arrow_frame(session, task_rows(by_url.values(), by_url))
        files = session.read.format("binaryFile").load([glob_escaped(url) for url in by_url])
        frames.append(files.select("path", "content").join(functions.broadcast(known), "path").select(*_TASK_COLUMNS))
    return reduce(lambda one, other: one.unionByName(other), frames)


def partitions(tasks: Sequence[IngestTask]) -> int:
    """Return the number of partitions for tasks: one per large task, a few for thousands of small files."""
    size = sum((file_size(task.path) if task.end is None else task.end) - task.start for task in tasks)
    return min(len(tasks), _FEW_PARTITIONS + max(size, 0) // PIECE_BYTES, _MOST_PARTITIONS)


def _with_content(task: IngestTask, content: pa.Scalar) -> IngestTask:
    if not content.is_valid or not isinstance(task.path, RemoteFile):
        return task
    return replace(task, path=replace(task.path, content=content.as_buffer()))


def wide_schema() -> types.StructType:
    """Return the schema of `parsed_rows`."""
    columns = [types.StructField(table.name, table.spark_schema()) for table in INGESTED_TABLES]
    counts = types.StructType([types.StructField(name, types.LongType()) for name in _COUNT_NAMES])
    return types.StructType([*columns, types.StructField(_COUNTS, counts), types.StructField(SPLIT, types.LongType())])


def _wide_batches(
    number: int, batches: Iterable[ParsedBatch], ingest: int, rows: Any, split: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task or a split, each batch in the column of its table, and the counts last."""
    counts = TaskCounts(number=number)
    for parsed in batches:
        for table, batch in arrow_batches(parsed, ingest=ingest):
            yield _widened({table.name: batch.to_struct_array()}, batch.num_rows, split)
        if rows is not None:
            rows.add(parsed.size)
        counts = parsed.counts
    found = pa.array([{name: getattr(counts, name) for name in _COUNT_NAMES}], _counts_type())
    yield _widened({_COUNTS: found}, 1, split)


def _widened(given: dict[str, pa.Array], length: int, split: int | None) -> pa.RecordBatch:
    kinds = {table.name: pa.struct(list(table.arrow_schema())) for table in INGESTED_TABLES} | {_COUNTS: _counts_type()}
    arrays = [given[name] if name in given else pa.nulls(length, kind) for name, kind in kinds.items()]
    splits = pa.repeat(pa.scalar(split, pa.int64()), length)
    return pa.RecordBatch.from_arrays([*arrays, splits], names=[*kinds, SPLIT])


def _counts_type() -> pa.StructType:
    return pa.struct([pa.field(name, pa.int64()) for name in _COUNT_NAMES])
