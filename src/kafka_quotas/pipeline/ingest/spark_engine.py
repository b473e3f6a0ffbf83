"""An ingest on Spark: tasks in Python workers, whose packed rows Java writes beside the table, for one commit.

Workers read logs themselves, by byte ranges: those at paths, which they must see there, and those in object stores,
with the variables by which the command finds the store. What only Hadoop's file systems reach Spark reads, with its
credentials: each log whole, and large ones by line (`large_logs`). A worker packs the events of all its tasks together,
so that a row has what a client did in an hour, and no row is moved or sorted by Spark: files follow the logs in time.
What else tasks find, and their counts, comes in rows without a day, from which the driver writes the other tables.

Invariant: Spark commits nothing. Files of tasks that it runs again or twice are not among those it leaves.
"""

import json
import os
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions

from kafka_quotas.pipeline.engine.job import Watch
from kafka_quotas.pipeline.engine.spark_tasks import glob_escaped, in_tasks, row_counter, run_watched
from kafka_quotas.pipeline.formats.lines import RemoteFile, is_of_hadoop
from kafka_quotas.pipeline.formats.task import IngestTask, ParsedBatch, TaskCounts
from kafka_quotas.pipeline.ingest.ingested_tables import Parsed, StagedRows, packed_tables
from kafka_quotas.pipeline.ingest.large_logs import changed, lines_of, logs_of, with_damage
from kafka_quotas.pipeline.ingest.parse import parse_task
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.lake import Lake, hadoop_url
from kafka_quotas.pipeline.tables.packed_events import record_rows
from kafka_quotas.pipeline.tables.schemas import DERIVED_TABLES, PACKED_EVENTS
from kafka_quotas.pipeline.tables.staged_files import (
    StagedFile,
    read_staged,
    remove_staged,
    stage_by_spark,
    write_staged,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OF_STORES: Final = ("AWS_", "AZURE_", "GOOGLE_")
"""Beginnings of variables by which delta-rs finds object stores."""
_COUNTS: Final = "counts"
_TASK_COLUMNS: Final = ("task", "content")
_ROWS_IN_RECORD: Final = 1_000
_PARTITION_BYTES: Final = 1 << 27
"""Bytes of tasks in a partition, as in one of Spark's own sources: each costs as much as thousands of lines."""
_FEW_PARTITIONS: Final = 8
_MOST_PARTITIONS: Final = 1 << 15
"""Partitions of tasks, each of which Spark's driver keeps account of."""
_WRITING: Final = {
    "parquet.block.size": str(1 << 21),  # row groups in which statistics find one client
    "parquet.writer.version": "PARQUET_2_0",  # whole numbers as differences
}


def ingest_on_spark(session: "SparkSession", tasks: Sequence[IngestTask], *, lake: Lake, watch: Watch) -> StagedRows:
    """Run the tasks on Spark, whose executors write their rows.

    Spark's own errors pass through.
    """
    rows = row_counter(session)
    row_count = (lambda: int(rows.value)) if rows is not None else int
    run = partial(run_watched, session, stage="read", watch=watch, rows=row_count)
    try:
        found = packed_rows(session, tasks, rows=rows)
        written = stage_by_spark(lake, PACKED_EVENTS, found, options=_WRITING, run=run)
    except Exception as error:  # py4j's, gRPC's and Spark's own, of many classes
        if (known := with_damage(tasks, str(error))) == list(tasks):
            raise
        return ingest_on_spark(session, known, lake=lake, watch=watch)
    records = [file for file in written if file.day is None]
    counts, staged = _read_records(lake, records)
    remove_staged(lake, PACKED_EVENTS, records)
    staged[PACKED_EVENTS.name] = [file for file in written if file.day is not None]
    by_number = {each.number: each for each in counts}
    if unread := [task for task in tasks if task.number not in by_number]:
        raise changed(unread[0])
    return [by_number[task.number] for task in tasks], staged


def packed_rows(session: "SparkSession", tasks: Sequence[IngestTask], *, rows: Any) -> "DataFrame":
    """Return packed rows of events, and rows without a day with all else that tasks find.

    `rows` is an accumulator for the number of rows, None for none.
    """
    of_stores = {name: value for name, value in os.environ.items() if name.startswith(_OF_STORES)}
    large = {task.number: task for task in tasks if task.large is not None}

    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.environ.update(of_stores)
        return _found(packed_tables(_tasks_of(batches)), rows)

    def parse_large(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _found(packed_tables(parse_task(*each) for each in logs_of(batches, large)), rows)

    schema, frames = PACKED_EVENTS.spark_schema(), []
    if small := [task for task in tasks if task.large is None]:
        frames.append(in_tasks(described_tasks(session, small), parse, schema))
    if large:
        frames.append(in_tasks(lines_of(session, list(large.values())), parse_large, schema))
    return reduce(lambda one, other: one.unionByName(other), frames)


def described_tasks(session: "SparkSession", tasks: Sequence[IngestTask]) -> "DataFrame":
    """Return the tasks in rows: pickled in `task`, with the bytes of their file in `content`.

    Spark reads what only Hadoop reaches, each file whole. Others are read by the workers: their `content` is null.
    """
    by_url = {hadoop_url(str(task.path)): task for task in tasks if is_of_hadoop(task.path)}
    own = [task for task in tasks if not is_of_hadoop(task.path)]
    frames = []
    if own:
        here = arrow_frame(session, _task_rows(own, [str(task.path) for task in own])).repartition(partitions(own))
        frames.append(here.select("task", functions.lit(None).cast("binary").alias("content")))
    if by_url:
        known = arrow_frame(session, _task_rows(by_url.values(), by_url))
        files = session.read.format("binaryFile").load([glob_escaped(url) for url in by_url])
        frames.append(files.select("path", "content").join(functions.broadcast(known), "path").select(*_TASK_COLUMNS))
    return reduce(lambda one, other: one.unionByName(other), frames)


def _task_rows(tasks: Iterable[IngestTask], paths: Iterable[str]) -> pa.Table:
    """Return tasks in rows: pickled in `task`, with the `path` by which Spark knows their file."""
    return pa.table({"task": pa.array(map(pickle.dumps, tasks), pa.binary()), "path": pa.array(paths, pa.string())})


def partitions(tasks: Sequence[IngestTask]) -> int:
    """Return the number of partitions for tasks, of which several small ones share one."""
    return min(len(tasks), _FEW_PARTITIONS + sum(task.size for task in tasks) // _PARTITION_BYTES, _MOST_PARTITIONS)


def _tasks_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Iterator[ParsedBatch]]:
    for batch in batches:
        for described, content in zip(*batch.columns, strict=True):
            task: IngestTask = pickle.loads(described.as_buffer())  # noqa: S301 - made by this very program
            if content.is_valid and isinstance(task.path, RemoteFile):
                task = replace(task, path=replace(task.path, content=content.as_buffer()))
            yield parse_task(task)


def _found(parsed: Iterable[Parsed], rows: Any) -> Iterator[pa.RecordBatch]:
    """Yield packed rows of events, and rows without a day for all else."""
    for each in parsed:
        if isinstance(each, TaskCounts):
            yield from record_rows(_COUNTS, json.dumps(asdict(each)), at_ms=0).to_batches()
            if rows is not None:
                rows.add(each.events + each.metrics + each.client_throttle + each.quarantined)
        elif each[0] is PACKED_EVENTS:
            yield each[1]
        else:
            yield from _records(each[0].name, each[1])


def _records(name: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for begin in range(0, batch.num_rows, _ROWS_IN_RECORD):
        text = json.dumps(batch.slice(begin, _ROWS_IN_RECORD).to_pydict())
        yield from record_rows(name, text, at_ms=0).to_batches()


def _read_records(lake: Lake, files: Sequence[StagedFile]) -> tuple[list[TaskCounts], dict[str, list[StagedFile]]]:
    """Return the counts of tasks, and the files of the other tables, written from rows without a day."""
    counts: list[TaskCounts] = []
    staged = defaultdict[str, list[StagedFile]](list)
    schemas = {table.name: table.arrow_schema() for table in DERIVED_TABLES}
    for file in files:
        found = defaultdict[str, list[pa.Table]](list)
        for row in read_staged(lake, PACKED_EVENTS, file.path, ["quota_type", "sources"]).to_pylist():
            kind, content = row["quota_type"], json.loads(row["sources"])
            if kind == _COUNTS:
                counts.append(TaskCounts(**content))
            else:
                found[kind].append(pa.table(content, schema=schemas[kind]))
        for table in DERIVED_TABLES:
            if found[table.name]:
                staged[table.name] += write_staged(lake, table, pa.concat_tables(found[table.name]))
    return counts, staged
