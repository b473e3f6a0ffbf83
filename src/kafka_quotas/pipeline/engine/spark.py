"""Jobs on Spark: the same functions as on one machine, by `mapInArrow` over packed rows.

Spark reads the table of events itself, with its own file systems, pruning and pushed filters. Rows of clients that may
share a bucket come to one worker, by time: a row has an hour's events, which makes a shuffle of rows cheap. Which
worker takes which clients follows from the numbers of their events, so that arrays are read once and placed evenly.
"""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Window, functions
from pyspark.sql.pandas.types import from_arrow_schema

from kafka_quotas.pipeline.engine.events import Errors, Events, RecordedEvents, recorded_events
from kafka_quotas.pipeline.engine.job import Job, Watch, ignore_progress
from kafka_quotas.pipeline.engine.slices import packed_columns, tasks
from kafka_quotas.pipeline.engine.spark_tasks import even_places, in_tasks, run_watched
from kafka_quotas.pipeline.engine.sql import SparkTables
from kafka_quotas.pipeline.tables.lake import PARTITION, hadoop_url
from kafka_quotas.pipeline.tables.packed_events import USER_SHIFT, PackedEvents
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS_IN_PARTITION: Final = 1 << 21
"""About how many events a task has, unless a single bucket has more. Each task costs some 60 ms of processor time."""
_MOST_PARTITIONS: Final = 4096
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_ROWS_IN_BATCH: Final = 1 << 14
"""Rows of a result that go to Java together."""
_PLACED_SHIFT: Final = USER_SHIFT - 8
"""Clients whose numbers differ in lower bits alone are placed together: a user's are 256 groups, however many."""


def packed_frame(session: "SparkSession", packed: PackedEvents) -> "DataFrame":
    """Return the packed rows of events of a data folder."""
    reader = session.read.format("delta").option("versionAsOf", packed.version)
    rows = reader.load(hadoop_url(packed.lake.place(PACKED_EVENTS)))
    return rows.where(functions.col(PARTITION).isNotNull())  # the others say what was read


def spark_events(
    rows: "DataFrame",
    *,
    recorded: RecordedEvents | None = None,
    packed: PackedEvents | None = None,
    watch: Watch = ignore_progress,
    errors: Errors = lambda _: nullcontext(),
) -> Events:
    """Return packed events in a frame, whose jobs run on its session.

    Args:
        rows: The events.
        recorded: Their number and times, None to count them.
        packed: The data folder that they are of, with its other tables, None for none.
        watch: Receives the progress of jobs.
        errors: Returns a context for Spark's errors, by default one that leaves them as they are.
    """
    session = rows.sparkSession
    tables = SparkTables(session)
    known = recorded or recorded_events(tables, tables.name("events", rows))

    def run(job: Job) -> str:
        name = tables.name(job.name, run_job(rows, job, count=known.count), keep=True)
        if packed is not None:
            with errors(f"running {job.name} over {packed.lake.url}"):
                counted = f"SELECT count(*) AS rows FROM {name}"
                run_watched(session, lambda: tables.query(counted), stage=job.name, watch=watch)
        return name

    def table(asked: TableSchema) -> str:
        if asked is PACKED_EVENTS:
            return tables.name(asked.name, rows)
        if packed is None:
            return tables.add(asked.name, asked.arrow_schema().empty_table())
        return tables.name(asked.name, session.read.format("delta").load(hadoop_url(packed.lake.place(asked))))

    return Events(tables=tables, recorded=known, run=run, table=table, errors=errors)


def run_job(events: "DataFrame", job: Job, *, count: int | None = None) -> "DataFrame":
    """Return the rows that a job makes of packed events, without running anything.

    `count` is about how many events there are, None for as many partitions as Spark's shuffles have.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for slices in tasks(batches, job.columns, shift=job.shift):
            yield from job.task(slices).combine_chunks().to_batches(max_chunksize=_ROWS_IN_BATCH)

    return in_tasks(placed_rows(events, job, count=count), run, from_arrow_schema(job.schema))


def placed_rows(events: "DataFrame", job: Job, *, count: int | None) -> "DataFrame":
    """Return the rows for a job's tasks, with clients that may share a bucket in one partition."""
    rows = events.select(*packed_columns(job.columns))
    asked = int(events.sparkSession.conf.get(_PARTITIONS) or 1) if count is None else count // EVENTS_IN_PARTITION + 1
    partitions = min(asked, _MOST_PARTITIONS)
    if partitions == 1:
        placed = rows.coalesce(1)
    else:
        place = functions.shiftright("client", max(job.shift, _PLACED_SHIFT)).alias("place")
        keys = _partition_keys(events.select(place, "events"), partitions)
        placed = rows.withColumn("place", place).join(keys.hint("broadcast"), "place")
        placed = placed.repartition(partitions, "partition_key").select(*rows.columns)
    return placed.sortWithinPartitions(functions.shiftright("client", job.shift), "first_at")


def _partition_keys(rows: "DataFrame", partitions: int) -> "DataFrame":
    """Return a key for each place, which Spark hashes so that partitions have equally many events."""
    counted = rows.groupBy("place").agg(functions.sum("events").alias("events"))
    before = functions.sum("events").over(Window.orderBy("place")) - functions.col("events")
    total = functions.sum("events").over(Window.partitionBy())
    part = functions.least(functions.floor(before * partitions / total), functions.lit(partitions - 1)).cast("int")
    return counted.select("place", part.alias("part")).select(
        "place", even_places("part", partitions).alias("partition_key")
    )
