"""Tasks of Spark's workers, and actions whose progress is watched.

Tasks are functions over batches of rows, some of which have tables as Arrow streams in bytes. Progress is polled from
the session while the action runs in a thread.
"""

import gc
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final, TypeVar
from zipimport import zipimporter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.pipeline.engine.job import JobProgress, Watch
from kafka_quotas.pipeline.tables.arrow import packed
from kafka_quotas.pipeline.tables.packed_events import keep_memory

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CONTENT: Final = "content"
_OF_STORES: Final = ("AWS_", "AZURE_", "GOOGLE_")
"""Beginnings of variables by which delta-rs finds object stores."""

_MANY_OBJECTS: Final = 10_000
"""More objects than a task's own, which are arrays above all: there are libraries among them."""
_POLL_S: Final = 0.25
_Result = TypeVar("_Result")
_GLOB: Final = re.compile(r"[\\*?\[\]{}]")


def in_tasks(
    rows: "DataFrame", run: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], columns: Any
) -> "DataFrame":
    """Return the rows that a function makes of each partition's batches, in workers made ready for it.

    `columns` is their schema, as Spark's own type or in SQL.
    """

    def run_spared(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        yield from run(batches)

    return rows.mapInArrow(run_spared, columns)


def begin_task() -> None:
    """Spare this worker what PySpark does around each task, which costs more than most tasks.

    At the start of each PySpark has Python look at its archives anew, whose directories Python before 3.13 then reads:
    a quarter of a second of processor time, unless it forgets the archives. At the end PySpark collects garbage among
    all objects of all libraries, 0.05 s, unless those that are there when a task begins are left out of it. Kernels,
    which the first job's tasks load, are half of them.
    """
    keep_memory()
    for path in [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]:
        del sys.path_importer_cache[path]
    if len(gc.get_objects()) > _MANY_OBJECTS:  # doing it always would keep what tasks leave in cycles
        gc.freeze()


def as_content(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each batch as one row of bytes, which a driver takes without looking at values."""
    for batch in batches:
        yield pa.record_batch({CONTENT: pa.array([packed(pa.Table.from_batches([batch]))], pa.binary())})


def pickled_in_tasks(rows: "DataFrame", run: Callable[[Iterable[pa.RecordBatch]], Iterable[object]]) -> "DataFrame":
    """Return what a function makes of each partition's batches, pickled.

    Workers get the variables by which this process finds object stores.
    """
    of_stores = {name: value for name, value in os.environ.items() if name.startswith(_OF_STORES)}

    def run_pickled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.environ.update(of_stores)
        for each in run(batches):
            yield pa.record_batch({CONTENT: pa.array([pickle.dumps(each)], pa.binary())})

    return in_tasks(rows, run_pickled, f"{CONTENT} binary")


def unpickled(rows: "DataFrame") -> list[Any]:
    """Collect what `pickled_in_tasks` makes."""
    return [pickle.loads(row[CONTENT]) for row in rows.collect()]  # noqa: S301 - made by this very program


def glob_escaped(place: str) -> str:
    """Return a place as Spark takes it, which would read brackets and stars in it as a pattern."""
    return _GLOB.sub(r"\\\g<0>", place)


def even_places(column: str, count: int) -> "Column":
    """Return an expression that gives each number below `count` a partition of its own, for `repartition`."""
    from pyspark.sql import functions  # noqa: PLC0415 - workers load this module without it

    keys = ", ".join(map(str, hash_keys(count).tolist()))
    return functions.expr(f"element_at(array({keys}), cast({column} as int) + 1)")


def hash_keys(partitions: int) -> NDArray[Any]:
    """Return for each partition a whole number that Spark's hash partitioning puts there, and no other.

    **Source:** `Murmur3_x86_32.hashInt` with the seed 42, and `HashPartitioning` of Spark 4.0.
    """
    mixed: NDArray[Any] = np.arange(64 * partitions, dtype=np.uint32) * np.uint32(0xCC9E2D51)
    mixed = ((mixed << 15) | (mixed >> 17)) * np.uint32(0x1B873593)
    found: NDArray[Any] = np.uint32(42) ^ mixed
    found = ((found << 13) | (found >> 19)) * np.uint32(5) + np.uint32(0xE6546B64)
    found ^= np.uint32(4)
    found = (found ^ (found >> 16)) * np.uint32(0x85EBCA6B)
    found = (found ^ (found >> 13)) * np.uint32(0xC2B2AE35)
    found ^= found >> 16
    places = found.view(np.int32).astype(np.int64) % partitions
    _, first = np.unique(places, return_index=True)
    return first


def run_watched(session: "SparkSession", action: Callable[[], _Result], *, stage: str, watch: Watch) -> _Result:
    """Run an action in a thread and call `watch` a few times a second, and return its result.

    Ctrl-C cancels the session's jobs. A Connect session does not report its progress.
    """
    with ThreadPoolExecutor(1, "spark-action") as pool:
        running = pool.submit(action)
        try:
            while not running.done():
                wait([running], _POLL_S)
                watch(_progress(session, stage))
        except BaseException:  # whoever watches has gone, by Ctrl-C or an error, and nobody waits for the rows
            if is_connect(session):
                session.interruptAll()
            else:
                session.sparkContext.cancelAllJobs()
            raise
        return running.result()


def _progress(session: "SparkSession", stage: str) -> JobProgress:
    if is_connect(session):
        return JobProgress(stage=stage, done=0, total=0)
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    running = [each for each in stages if each is not None]
    return JobProgress(
        stage=stage,
        done=sum(each.numCompletedTasks for each in running),
        total=sum(each.numTasks for each in running),
    )


def is_connect(session: "SparkSession") -> bool:
    """Check whether a Spark Connect server does the work of a session."""
    return type(session).__module__.startswith("pyspark.sql.connect")
