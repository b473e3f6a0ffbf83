"""A job over recorded events, and its progress.

Invariants: all events of clients that may share a bucket are in one task. Spark's progress is polled from the session
while the action runs in a thread.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as one function over slices of events, for this machine and for Spark's workers."""

    name: str
    shift: int
    """The bits of a client's number in which clients that share a bucket may differ."""
    columns: tuple[str, ...]
    """Columns of events that a task reads."""
    task: "Callable[[Iterable[pa.Table]], pa.Table]"
    """Returns the rows of one task, given its events in slices.

    Events of a client come by time, with whole seconds in a slice.
    """
    schema: "pa.Schema"
    """Schema of these rows."""
