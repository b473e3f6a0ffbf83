"""The common part of jobs over recorded events: the folder, the engine, and running a job on it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafka_quotas.pipeline.engine.choice import Engine, EngineChoice, choose_engine, require_libraries
from kafka_quotas.pipeline.engine.job import Job, Tables, Watch, run_tasks, run_watched
from kafka_quotas.pipeline.engine.spark_session import LazySession, spark_errors
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings, name_object_store
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.schemas import TableSchema

if TYPE_CHECKING:
    from kafka_quotas.pipeline.engine.client_parts import ClientParts, Pick
    from kafka_quotas.pipeline.engine.spark import LeftTables


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsRequest:
    """The folder of ingested tables, and the engine for the jobs."""

    data: str
    """Path or URL of the folder."""
    spark: SparkSettings
    engine: Engine = Engine.AUTO
    master: str | None = None
    """The Spark master that the user named, None for none."""
    as_of: int | None = None
    """The change up to which the folder counts, None for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsWatcher:
    """Callbacks for the progress of a job and for the chosen engine."""

    progress: Watch
    chosen: Callable[[EngineChoice], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvents:
    """The events of a folder: their number and their times."""

    count: int
    first_ms: int | None
    """First time in ms since 1970, None without events."""
    last_ms: int | None
    """Last time in ms since 1970, None without events."""
    recorded_s: int | None = None
    """Seconds without the gaps between recordings, None if nobody counted them."""

    @property
    def seconds(self) -> int:
        """The seconds that the recording covers, without the gaps in it, at least 1."""
        if self.recorded_s is not None:
            return max(self.recorded_s, 1)
        if self.first_ms is None or self.last_ms is None:
            return 1
        return self.last_ms // 1000 - self.first_ms // 1000 + 1


class OpenEvents:
    """An open folder of events for any number of jobs, with a Spark session once a job needs it."""

    def __init__(self, request: EventsRequest, watcher: EventsWatcher, stack: ExitStack) -> None:
        from kafka_quotas.pipeline.tables.client_ranges import EventTable  # noqa: PLC0415 - loads Arrow
        from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot  # noqa: PLC0415

        self._request = request
        self._watcher = watcher
        lake = Lake.of(request.data)
        name_object_store(request.spark, lake.url)
        self._session = LazySession(request.spark.for_place(lake.url), watcher.progress, stack)
        # What is remote, Spark reads in any case, and starts before the number of events is known.
        is_spark = not lake.is_local and self._choice(events=0, is_remote=True).engine is Engine.SPARK
        session = self._session() if is_spark else None
        self._snapshot = replace(FolderSnapshot.of(lake, request.as_of), session=session)
        with self.errors(f"reading {request.data}"):
            self._events = EventTable(self._snapshot)
            self.recorded = RecordedEvents(
                count=self._events.count,
                first_ms=self._events.first_ms,
                last_ms=self._events.last_ms,
                recorded_s=self._events.recorded_s(),
            )

    def run(self, job: Job) -> list[Tables]:
        """Run the job and return the tables of each of its tasks.

        Raises:
            KafkaQuotasError: A file can't be read, or Spark does not start or fails.
        """
        return self.run_leaving(job, ())[0]

    def run_leaving(self, job: Job, tables: Sequence[str]) -> "tuple[list[Tables], LeftTables | None]":
        """Run the job, but leave some of its tables with Spark's executors.

        Returns:
            The tables of each task, and what is left, None if no table was named or this machine has all of it.

        Raises:
            KafkaQuotasError: A file can't be read, or Spark does not start or fails.
        """
        self._watcher.chosen(self._choice_of_jobs())
        if self._is_on_spark():
            return self._run_on_spark(job, tables)
        return run_tasks(job, self._events, watch=self._watcher.progress), None

    def by_client(self, table: TableSchema, columns: Sequence[str], pick: "Pick") -> "ClientParts":
        """Return the rows that a function leaves of a table's columns, in parts of clients, where jobs run.

        Raises:
            KafkaQuotasError: The table can't be read.
        """
        import pyarrow as pa  # noqa: PLC0415 - as above

        from kafka_quotas.pipeline.engine.client_parts import LocalParts  # noqa: PLC0415 - loads Arrow

        schema = pa.schema([table.arrow_schema().field(name) for name in columns])
        with self.errors(f"reading {self._request.data}"):
            if self._is_on_spark():
                from kafka_quotas.pipeline.engine.spark_parts import SparkParts  # noqa: PLC0415 - loads PySpark

                return SparkParts.of_rows(self._snapshot.rows_on_spark(self._session(), table), schema, pick)
            batches = self._snapshot.dataset(table).to_batches(columns=list(columns))
            rows = (pick(pa.Table.from_batches([each])) for each in batches)
            return LocalParts(pa.concat_tables([pick(schema.empty_table()), *rows]))

    def _is_on_spark(self) -> bool:
        return self._choice_of_jobs().engine is Engine.SPARK and bool(self.recorded.count)

    def _choice_of_jobs(self) -> EngineChoice:
        return self._choice(events=self.recorded.count, is_remote=not self._snapshot.lake.is_local)

    def _choice(self, *, events: int, is_remote: bool) -> EngineChoice:
        request = self._request
        return choose_engine(request.engine, events=events, master=request.master, is_remote=is_remote)

    def _run_on_spark(self, job: Job, left: Sequence[str]) -> "tuple[list[Tables], LeftTables | None]":
        require_libraries("pyspark")
        from kafka_quotas.pipeline.engine import spark  # noqa: PLC0415 - loads PySpark

        session = self._session()
        with spark_errors(f"running {job.name} over {self._request.data}", log_file=self._request.spark.log_file):
            frame = spark.run_job(session, self._events, job)
            known = {name: job.schemas[name] for name in left}
            kept = spark.LeftTables(frame, known, bulky=job.bulky) if left else None
            rows = frame if kept is None else kept.others()
            found = run_watched(session, rows.toArrow, stage=job.name, watch=self._watcher.progress)
        return spark.tables_by_task(found, job), kept

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Convert Spark's errors in the block to a `KafkaQuotasError` of one line."""
        with spark_errors(doing, log_file=self._request.spark.log_file):
            yield


def recorded_span(request: EventsRequest) -> tuple[int, int] | None:
    """Return the times of the first and the last event in ms since 1970, None without events.

    Spark is not started: of its settings only those of the object store are used.

    Raises:
        UsageError: No ingest made the folder.
        KafkaQuotasError: The table can't be read.
    """
    require_libraries("pyarrow", "deltalake")
    from kafka_quotas.pipeline.tables.arrow import compute as pc  # noqa: PLC0415 - loads Arrow
    from kafka_quotas.pipeline.tables.schemas import CLIENTS  # noqa: PLC0415
    from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot  # noqa: PLC0415

    lake = Lake.of(request.data)
    name_object_store(request.spark, lake.url)
    clients = FolderSnapshot.of(lake, request.as_of).read(CLIENTS, columns=["first_ms", "last_ms"])
    if not clients.num_rows:
        return None
    return pc.min(clients["first_ms"]).as_py(), pc.max(clients["last_ms"]).as_py()


@contextmanager
def open_events(request: EventsRequest, watcher: EventsWatcher) -> Iterator[OpenEvents]:
    """Open the folder for the block, and stop a Spark session of its jobs afterwards.

    Raises:
        UsageError: No ingest wrote the folder.
    """
    require_libraries("pyarrow", "numpy", "numba", "deltalake")
    from kafka_quotas.pipeline.tables.arrow import keep_memory  # noqa: PLC0415 - loads Arrow

    keep_memory()
    with ExitStack() as stack:
        yield OpenEvents(request, watcher, stack)
