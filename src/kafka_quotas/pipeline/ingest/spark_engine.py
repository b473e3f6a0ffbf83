"""An ingest on Spark: tasks in Python workers, each of which writes the rows of all its tasks, for one commit.

Workers read logs themselves, by byte ranges: those at paths, which they must see there, and those in object stores,
with the variables by which the command finds the store. What only Hadoop's file systems reach Spark reads, with its
credentials: each log whole, and large ones by line (`large_logs`). A worker packs the events of all its tasks together,
so that a row has what a client did in an hour, and no row is moved or sorted by Spark.

Invariant: workers commit nothing. Files of tasks that Spark runs again or twice are not among those to commit.
"""

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions

from kafka_quotas.pipeline.engine.job import Watch
from kafka_quotas.pipeline.engine.spark_tasks import (
    glob_escaped,
    pickled_in_tasks,
    row_counter,
    run_watched,
    unpickled,
)
from kafka_quotas.pipeline.formats.lines import RemoteFile, is_of_hadoop
from kafka_quotas.pipeline.formats.task import IngestTask, ParsedBatch, TaskCounts
from kafka_quotas.pipeline.ingest.ingested_tables import StagedRows, write_tables
from kafka_quotas.pipeline.ingest.large_logs import changed, lines_of, logs_of, with_damage
from kafka_quotas.pipeline.ingest.parse import parse_task
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.lake import Lake, hadoop_url
from kafka_quotas.pipeline.tables.schemas import DERIVED_TABLES, PACKED_EVENTS
from kafka_quotas.pipeline.tables.staged_files import StagedFile, require_written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITION_BYTES: Final = 1 << 27
"""Bytes of tasks in a partition, as in one of Spark's own sources: each costs as much as thousands of lines."""
_FEW_PARTITIONS: Final = 8
_MOST_PARTITIONS: Final = 1 << 15
"""Partitions of tasks, each of which Spark's driver keeps account of."""


def ingest_on_spark(session: "SparkSession", tasks: Sequence[IngestTask], *, lake: Lake, watch: Watch) -> StagedRows:
    """Run the tasks on Spark, whose workers write their rows.

    Spark's own errors pass through.
    """
    rows = row_counter(session)
    large = {task.number: task for task in tasks if task.large is not None}

    def ended(counts: TaskCounts) -> None:
        if rows is not None:
            rows.add(counts.events + counts.metrics + counts.client_throttle + counts.quarantined)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[StagedRows]:
        yield write_tables(lake, _parsed(batches), ended)

    def run_large(batches: Iterable[pa.RecordBatch]) -> Iterator[StagedRows]:
        yield write_tables(lake, (parse_task(*each) for each in logs_of(batches, large)), ended)

    described = described_tasks(session, [task for task in tasks if task.large is None])
    frames = [pickled_in_tasks(each, run) for each in described]
    if large:
        frames.append(pickled_in_tasks(lines_of(session, list(large.values())), run_large))
    work = partial(unpickled, reduce(lambda one, other: one.unionByName(other), frames))
    row_count = (lambda: int(rows.value)) if rows is not None else int
    try:
        found: list[StagedRows] = run_watched(session, work, stage="read", watch=watch, rows=row_count)
    except Exception as error:  # py4j's, gRPC's and Spark's own, of many classes
        if (known := with_damage(tasks, str(error))) == list(tasks):
            raise
        return ingest_on_spark(session, known, lake=lake, watch=watch)
    counts = [each for own, _ in found for each in own]
    read = {each.number for each in counts}
    if unread := [task for task in tasks if task.number not in read]:
        raise changed(unread[0])
    staged = defaultdict[str, list[StagedFile]](list)
    for table in (PACKED_EVENTS, *DERIVED_TABLES):
        staged[table.name] = require_written(
            lake, table, (file for _, own in found for file in own.get(table.name, ()))
        )
    return counts, staged


def described_tasks(session: "SparkSession", tasks: Sequence[IngestTask]) -> "Iterator[DataFrame]":
    """Yield the tasks in rows: pickled in `task`, the bytes of a file that Spark reads in `content`.

    Spark reads what only Hadoop reaches, each file whole. Others are read by the workers.
    """
    by_url = {hadoop_url(str(task.path)): task for task in tasks if is_of_hadoop(task.path)}
    if own := [task for task in tasks if not is_of_hadoop(task.path)]:
        yield arrow_frame(session, pa.table({"task": _pickled(own)})).repartition(partitions(own))
    if by_url:
        known = arrow_frame(session, pa.table({"task": _pickled(by_url.values()), "path": list(by_url)}))
        files = session.read.format("binaryFile").load([glob_escaped(url) for url in by_url])
        yield files.select("path", "content").join(functions.broadcast(known), "path").select("task", "content")


def _pickled(tasks: Iterable[IngestTask]) -> pa.Array:
    return pa.array(map(pickle.dumps, tasks), pa.binary())


def partitions(tasks: Sequence[IngestTask]) -> int:
    """Return the number of partitions for tasks, of which several small ones share one."""
    return min(len(tasks), _FEW_PARTITIONS + sum(task.size for task in tasks) // _PARTITION_BYTES, _MOST_PARTITIONS)


def _parsed(batches: Iterable[pa.RecordBatch]) -> Iterator[Iterator[ParsedBatch]]:
    for batch in batches:
        for described, *content in zip(*batch.columns, strict=True):
            task: IngestTask = pickle.loads(described.as_buffer())  # noqa: S301 - made by this very program
            if content and isinstance(task.path, RemoteFile):
                task = replace(task, path=replace(task.path, content=content[0].as_buffer()))
            yield parse_task(task)
