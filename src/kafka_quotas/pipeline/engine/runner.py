"""The common part of jobs over recorded events: the folder, the engine, and running a job on it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_quotas.pipeline.engine.choice import Engine, EngineChoice, choose_engine, require_libraries
from kafka_quotas.pipeline.engine.job import Job, Tables, run_tasks, task_files
from kafka_quotas.pipeline.engine.progress import JobProgress, Watch, run_watched
from kafka_quotas.pipeline.engine.spark_session import spark_errors, spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.tables.layout import DataFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    @classmethod
    def of(cls, folder: DataFolder) -> "RecordedEvents":
        """Count the events of the folder and find their times.

        Raises:
            KafkaQuotasError: A file can't be read.
        """
        from kafka_quotas.pipeline.tables.event_slices import FileSpan  # noqa: PLC0415 - loads Arrow

        spans = [span for bucket in folder.events_buckets() for file in bucket.files if (span := FileSpan(file)).rows]
        return cls(
            folder=folder,
            count=sum(span.rows for span in spans),
            first_ms=min((span.first_ms for span in spans), default=None),
            last_ms=max((span.last_ms for span in spans), default=None),
        )

    @property
    def seconds(self) -> int:
        """The seconds of the clock that the recording covers, at least 1."""
        if self.first_ms is None or self.last_ms is None:
            return 1
        return self.last_ms // 1000 - self.first_ms // 1000 + 1


class OpenEvents:
    """An open folder of events for any number of jobs, with a Spark session once a job needs it."""

    def __init__(self, request: EventsRequest, watcher: EventsWatcher, stack: ExitStack) -> None:
        self.recorded = RecordedEvents.of(DataFolder.open(request.data))
        self._request = request
        self._watcher = watcher
        self._stack = stack
        self._session: SparkSession | None = None

    def run(self, job: Job) -> list[Tables]:
        """Run the job and return the tables of each of its tasks.

        Raises:
            KafkaQuotasError: A file can't be read, or Spark does not start or fails.
        """
        choice = choose_engine(self._request.engine, events=self.recorded.count, master=self._request.master)
        self._watcher.chosen(choice)
        tasks = task_files(self.recorded.folder, job)
        return self._run_on_spark(job, tasks) if choice.engine is Engine.SPARK else self._run_here(job, tasks)

    def _run_here(self, job: Job, tasks: Sequence[tuple[Path, ...]]) -> list[Tables]:
        from kafka_quotas.pipeline.kernels.compiled import NUMBA  # noqa: PLC0415 - loads numba

        if not NUMBA:
            self._watcher.chosen(EngineChoice(engine=Engine.LOCAL, reason=_IN_NUMPY))
        return run_tasks(job, tasks, watch=self._watcher.progress)

    def _run_on_spark(self, job: Job, tasks: Sequence[tuple[Path, ...]]) -> list[Tables]:
        require_libraries("pyspark")
        from kafka_quotas.pipeline.engine import spark  # noqa: PLC0415 - loads PySpark

        if not tasks:
            return []
        session = self._spark()
        with spark_errors(f"running {job.name} over {self._request.data}", log_file=self._request.spark.log_file):
            if job.is_by_bucket:
                frame = spark.run_on_files(session, tasks, job)
            else:
                names = [str(file.absolute()) for files in tasks for file in files]
                frame = spark.run_on_rows(session.read.parquet(*names), job)
            found = run_watched(session, frame.toArrow, stage=job.name, watch=self._watcher.progress)
        if "numpy" in found[spark.KERNEL].unique().to_pylist():
            self._watcher.chosen(EngineChoice(engine=Engine.SPARK, reason=_IN_NUMPY))
        return spark.tables_by_task(found, job)

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
    require_libraries("pyarrow", "numpy")
    with ExitStack() as stack:
        yield OpenEvents(request, watcher, stack)
