"""The common part of jobs over recorded events: the folder, the engine, and running a job on it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_quotas.pipeline.engine.choice import Engine, EngineChoice, choose_engine, require_libraries
from kafka_quotas.pipeline.engine.progress import JobProgress, Watch
from kafka_quotas.pipeline.engine.spark_session import spark_errors, spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.tables.layout import DataFolder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_IN_NUMPY = "kernels ran in NumPy, for numba is not installed everywhere: equal results, slower"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsRequest:
    """The folder of ingested tables, and the engine for the jobs."""

    data: Path
    spark: SparkSettings
    engine: Engine = Engine.AUTO
    master: str | None = None
    """The Spark master that the user named, None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsWatcher:
    """Callbacks for the progress of a job and for the chosen engine."""

    progress: Watch
    chosen: Callable[[EngineChoice], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvents:
    """The events of a folder: their number and their times."""

    folder: DataFolder
    count: int
    first_ms: int | None
    """First time in ms since 1970, None without events."""
    last_ms: int | None
    """Last time in ms since 1970, None without events."""

    @property
    def seconds(self) -> int:
        """The seconds of the clock that the recording covers, at least 1."""
        if self.first_ms is None or self.last_ms is None:
            return 1
        return self.last_ms // 1000 - self.first_ms // 1000 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job in both forms: on slices of events here, on files or on rows of events on Spark."""

    name: str
    told_apart_by: tuple[str, ...]
    """Columns of events whose equal values keep clients that may share a bucket in one task."""
    columns: tuple[str, ...]
    """Columns of events that the task reads."""
    task: Callable[[Iterable["pa.Table"]], Any]
    """Runs the job over slices of events."""
    on_files: Callable[["SparkSession", Sequence[Sequence[Path]]], "DataFrame"]
    """Runs the job on Spark over the files of each task."""
    on_rows: Callable[["DataFrame"], "DataFrame"]
    """Runs the job on Spark over rows of events."""
    found: Callable[["pa.Table"], list[Any]]
    """Converts Spark's collected frame to the results of the tasks."""


class OpenEvents:
    """An open folder of events for any number of jobs, with a Spark session once a job needs it."""

    def __init__(self, request: EventsRequest, watcher: EventsWatcher, stack: ExitStack) -> None:
        self.recorded = recorded_events(request.data)
        self._request = request
        self._watcher = watcher
        self._stack = stack
        self._session: SparkSession | None = None

    def run(self, job: Job) -> list[Any]:
        """Run the job and return the results of its tasks.

        Raises:
            KafkaQuotasError: A file can't be read, or Spark does not start or fails.
        """
        choice = choose_engine(self._request.engine, events=self.recorded.count, master=self._request.master)
        self._watcher.chosen(choice)
        return self._run_on_spark(job) if choice.engine is Engine.SPARK else self._run_here(job)

    def _run_here(self, job: Job) -> list[Any]:
        from kafka_quotas.pipeline.engine.local import run_tasks, task_files  # noqa: PLC0415 - loads Arrow
        from kafka_quotas.pipeline.kernels.compiled import NUMBA  # noqa: PLC0415 - loads numba

        if not NUMBA:
            self._watcher.chosen(EngineChoice(engine=Engine.LOCAL, reason=_IN_NUMPY))
        files = task_files(self.recorded.folder, job.told_apart_by)
        return run_tasks(files, job.task, stage=job.name, watch=self._watcher.progress, columns=job.columns)

    def _run_on_spark(self, job: Job) -> list[Any]:
        require_libraries("pyspark")
        from kafka_quotas.pipeline.engine.local import BUCKETED_BY, task_files  # noqa: PLC0415 - loads Arrow
        from kafka_quotas.pipeline.engine.progress import run_watched  # noqa: PLC0415

        files = task_files(self.recorded.folder, job.told_apart_by)
        if not files:
            return []
        session = self._spark()
        with spark_errors(f"running {job.name} over {self._request.data}", log_file=self._request.spark.log_file):
            if set(job.told_apart_by) == BUCKETED_BY:
                frame = job.on_files(session, files)
            else:
                names = [str(file.absolute()) for bucket in files for file in bucket]
                frame = job.on_rows(session.read.parquet(*names))
            found = run_watched(session, frame.toArrow, stage=job.name, watch=self._watcher.progress)
        if "numpy" in found["kernel"].unique().to_pylist():
            self._watcher.chosen(EngineChoice(engine=Engine.SPARK, reason=_IN_NUMPY))
        return job.found(found)

    def _spark(self) -> "SparkSession":
        if self._session is None:
            self._watcher.progress(JobProgress(stage="start Spark", done=0, total=0))
            self._session = self._stack.enter_context(spark_session(self._request.spark))
        return self._session


@contextmanager
def open_events(request: EventsRequest, watcher: EventsWatcher) -> Iterator[OpenEvents]:
    """Open the folder for the block, and stop a Spark session of its jobs afterwards.

    Raises:
        UsageError: No ingest wrote the folder.
    """
    with ExitStack() as stack:
        yield OpenEvents(request, watcher, stack)


def recorded_events(path: Path) -> RecordedEvents:
    """Count the events of the folder and find their times.

    Raises:
        UsageError: No ingest wrote the folder.
    """
    require_libraries("pyarrow", "numpy")
    from kafka_quotas.pipeline.tables.event_slices import event_count, time_range_ms  # noqa: PLC0415 - loads Arrow

    folder = DataFolder.open(path)
    files = [file for bucket in folder.events_buckets() for file in bucket.files]
    span = time_range_ms(files)
    first_ms, last_ms = span or (None, None)
    return RecordedEvents(folder=folder, count=event_count(files), first_ms=first_ms, last_ms=last_ms)
