"""A job over recorded events, threads that run its tasks on this machine, and its progress.

Invariants: all events of clients that may share a bucket are in one task. Threads suffice, since the kernels and Arrow
release the interpreter lock. The largest tasks begin first, which keeps one giant client from delaying the end. Spark's
progress is polled from the session while the action runs in a thread.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kafka_quotas.pipeline.engine.slices import EventRanges

_POLL_S: Final = 0.25
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """The progress of one stage of a job."""

    stage: str
    """What the job is doing."""
    done: int
    """Finished parts."""
    total: int
    rows: int = 0
    """Rows made so far, 0 if unknown."""


Watch = Callable[[JobProgress], None]
"""Receives the progress of a job, in the thread that runs the job's command."""


def ignore_progress(progress: JobProgress) -> None:
    """Do nothing, for callers that do not show progress."""
    del progress


def run_watched(
    session: "SparkSession", action: Callable[[], _Result], *, stage: str, watch: Watch, rows: Callable[[], int] = int
) -> _Result:
    """Run an action in a thread and call `watch` a few times a second, and return its result.

    Ctrl-C cancels the session's jobs. A Connect session does not report its progress, only the number of rows. `rows`
    returns the number of rows made so far.
    """
    outcome: list[_Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(action())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run, name="spark-action", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_S)
            watch(_progress(session, stage, rows()))
    except KeyboardInterrupt:
        if is_connect(session):
            session.interruptAll()
        else:
            session.sparkContext.cancelAllJobs()
        thread.join()
        raise
    if failure:
        raise failure[0]
    return outcome[0]


def row_counter(session: "SparkSession") -> Any:
    """Return an accumulator for the rows that tasks make, None for a Connect session, which has none."""
    return None if is_connect(session) else session.sparkContext.accumulator(0)


def _progress(session: "SparkSession", stage: str, rows: int) -> JobProgress:
    if is_connect(session):
        return JobProgress(stage=stage, done=0, total=0, rows=rows)
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    running = [each for each in stages if each is not None]
    return JobProgress(
        stage=stage,
        done=sum(each.numCompletedTasks for each in running),
        total=sum(each.numTasks for each in running),
        rows=rows,
    )


def is_connect(session: "SparkSession") -> bool:
    """Check whether a Spark Connect server does the work of a session."""
    return type(session).__module__.startswith("pyspark.sql.connect")


Tables = Mapping[str, "pa.Table"]
"""Tables by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as one function over slices of events, for this machine and for Spark's workers."""

    name: str
    partition_columns: tuple[str, ...]
    """Columns of events whose equal values keep clients that may share a bucket in one task."""
    columns: tuple[str, ...]
    """Columns of events that a task reads."""
    task: "Callable[[Iterable[pa.Table]], pa.Table]"
    """Returns the rows of one task, given its events in slices.

    Events of a client come by time, with whole seconds in a slice.
    """
    schema: "pa.Schema"
    """Schema of these rows."""

    @property
    def shift(self) -> int:
        """The bits of a client's number in which clients that share a bucket may differ."""
        from kafka_quotas.pipeline.tables.clients import shared_shift  # noqa: PLC0415 - loads Arrow

        return shared_shift(self.partition_columns)


def run_tasks(job: Job, events: "EventRanges", *, watch: Watch) -> "list[pa.Table]":
    """Run a task for each range of clients in threads and return the rows by client."""
    workers = os.cpu_count() or 1
    ranges = events.ranges(shift=job.shift, workers=workers)
    found: dict[int, pa.Table] = {}
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="pipeline") as pool:
        largest_first = sorted(range(len(ranges)), key=lambda number: -ranges[number].events)
        running = {
            pool.submit(lambda own: job.task(events.slices(own, job.columns)), ranges[number]): number
            for number in largest_first
        }
        try:
            for future in as_completed(running):
                found[running[future]] = future.result()
                watch(JobProgress(stage=job.name, done=len(found), total=len(ranges)))
        except BaseException:
            for future in running:
                future.cancel()
            raise
    return [found[number] for number in range(len(ranges))]
