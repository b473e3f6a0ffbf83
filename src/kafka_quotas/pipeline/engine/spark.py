"""Jobs on Spark: the same functions as on one machine, by `mapInArrow` over packed rows.

Spark reads the table of events itself, with its own file systems, pruning and pushed filters. Rows of clients that may
share a bucket come to one worker, by time: a row has an hour's events, which makes a shuffle of rows cheap.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.pandas.types import from_arrow_schema

from kafka_quotas.pipeline.engine.job import Job
from kafka_quotas.pipeline.engine.slices import joined_minutes, minutes_of, packed_columns, tasks
from kafka_quotas.pipeline.engine.spark_tasks import in_tasks
from kafka_quotas.pipeline.tables.lake import PARTITION, hadoop_url
from kafka_quotas.pipeline.tables.packed_events import PackedEvents
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EVENTS_IN_PARTITION: Final = 1 << 19
_FEWEST_PARTITIONS: Final = 2
_MOST_PARTITIONS: Final = 4096
_ROWS_IN_BATCH: Final = 1 << 14
"""Rows of a result that go to Java together."""


def packed_frame(session: "SparkSession", packed: PackedEvents) -> "DataFrame":
    """Return the packed rows of events of a data folder."""
    reader = session.read.format("delta").option("versionAsOf", packed.version)
    rows = reader.load(hadoop_url(packed.lake.place(PACKED_EVENTS)))
    return rows.where(functions.col(PARTITION).isNotNull())  # the others say what was read


def run_job(events: "DataFrame", job: Job, *, count: int) -> "DataFrame":
    """Return the rows that a job makes of packed events, about how many of which there are."""
    group = functions.shiftright("client", job.shift)
    partitions = min(max(count // _EVENTS_IN_PARTITION, _FEWEST_PARTITIONS), _MOST_PARTITIONS)
    placed = events.select(*packed_columns(job.columns)).repartitionByRange(partitions, group)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for slices in tasks(batches, job.columns, shift=job.shift):
            yield from job.task(slices).combine_chunks().to_batches(max_chunksize=_ROWS_IN_BATCH)

    ordered = placed.sortWithinPartitions(group, "first_at")
    return in_tasks(ordered, run, from_arrow_schema(job.schema))


def minutes(events: "DataFrame") -> pa.Table:
    """Return each minute with events, with the times of its first and last one, in order."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [minutes_of(batch) for batch in batches]
        if found:
            yield from joined_minutes(pa.concat_tables(found)).combine_chunks().to_batches()

    by_task = in_tasks(events.select("ts_ms"), run, "minute long, begin long, end long")
    joined = by_task.groupBy("minute").agg(functions.min("begin").alias("begin"), functions.max("end").alias("end"))
    return joined.toArrow().sort_by("minute")
