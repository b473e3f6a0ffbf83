"""The peers of `pipeline.py` on Spark: usage and a replay as a Spark engineer writes them without this package's jobs.

Usage is DataFrame code over loose rows; its rate is the sum of eleven seconds by eleven, where Kafka's own is within a
sample of it, and its percentiles are approximate. The replay runs the package's kernel on the packed rows of each file
as they lie: it is right where a file has whole clients, and no two of them share a quota.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window, functions

from kafka_quotas.pipeline.kernels.limiters import LimiterRule, Limiters

NAMES: Final = ("cluster", "broker_id", "quota_type", "user", "client_id")
ARRAYS: Final = ("ts_ms", "bytes", "thread_ms", "mutations", "throttle_ms")
SUMS: Final = ("bytes", "requests", "thread_ms", "mutations", "throttle_ms", "throttled")
SAMPLES: Final = 11


def write_usage(packed: DataFrame, out: str, *, seconds: int) -> None:
    """Write windows of a minute and an hour, and profiles, of events of one quota type."""
    events = packed.where("NOT is_exempt").select(*NAMES, functions.inline(functions.arrays_zip(*ARRAYS)))
    cells = events.groupBy(*NAMES, functions.expr("ts_ms div 1000").alias("second")).agg(
        *(functions.sum(name).alias(name) for name in ARRAYS[1:]),
        functions.count("*").alias("requests"),
        functions.count_if(functions.col("throttle_ms") > 0).alias("throttled"),
        functions.sum("bytes").cast("double").alias("peak"),
    )
    cells = cells.persist()
    minutes = windows_of(cells, 60)
    windows = minutes.unionByName(windows_of(minutes, 3600))
    windows.write.format("delta").mode("overwrite").save(f"{out}/usage")
    profile_of(cells, seconds).write.format("delta").mode("overwrite").save(f"{out}/usage_profile")
    cells.unpersist()


def windows_of(cells: DataFrame, length_s: int) -> DataFrame:
    second = functions.expr(f"second div {length_s} * {length_s}").alias("second")
    sums = (functions.sum(name).alias(name) for name in SUMS)
    found = cells.groupBy(*NAMES, second).agg(*sums, functions.max("peak").alias("peak"))
    return found.withColumn("window_s", functions.lit(length_s))


def profile_of(cells: DataFrame, seconds: int) -> DataFrame:
    last = Window.partitionBy(*NAMES).orderBy("second").rangeBetween(1 - SAMPLES, 0)
    rated = cells.withColumn("rate", functions.sum("peak").over(last) / SAMPLES)
    return rated.groupBy(*NAMES).agg(
        functions.percentile_approx("rate", [0.5, 0.95, 0.99], 10_000).alias("percentiles"),
        functions.max("rate").alias("max"),
        (functions.count("*") / seconds).alias("active_share"),
        (functions.max("peak") / functions.avg("peak")).alias("burst_ratio"),
        functions.avg((functions.col("throttled") > 0).cast("int")).alias("throttled_share"),
        *(functions.sum(name).alias(name) for name in SUMS),
    )


def replayed(packed: DataFrame, limit: float) -> DataFrame:
    """Return what a limit for each client would have done in a closed loop."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known: dict[int, int] = {}
        limiters = Limiters(LimiterRule(closed=True), np.empty((0, 1)))
        for batch in batches:
            own = [known.setdefault(client, len(known)) for client in batch["client"].to_pylist()]
            limiters.rebound(np.full((len(known), 1), limit))
            times_ms, sizes = (batch[name].flatten().to_numpy() for name in ("ts_ms", "bytes"))
            rows = np.repeat(np.array(own, dtype=np.int32), np.diff(batch["ts_ms"].offsets.to_numpy()))
            limiters.run(rows, times_ms, sizes.astype(np.float64))
        columns = [np.array(list(known), dtype=np.int64), *limiters.counts[:, 0, [0, 1, 3]].T]
        yield pa.record_batch(list(map(pa.array, columns)), ["client", "n", "throttled", "throttle_ms"])

    return packed.select("client", "ts_ms", "bytes").mapInArrow(
        run, "client long, n long, throttled long, throttle_ms long"
    )
