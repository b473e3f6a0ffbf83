"""The common part of jobs over recorded events: the folder, the engine, and running a job on it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.engine.choice import Engine, EngineChoice, choose_engine, require_libraries
from kafka_quotas.pipeline.engine.job import Job, Watch, run_tasks, run_watched
from kafka_quotas.pipeline.engine.spark_session import LazySession, spark_errors
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings, name_object_store
from kafka_quotas.pipeline.engine.sql import DuckTables, SparkTables
from kafka_quotas.pipeline.tables.lake import ConflictError, Lake, hadoop_url
from kafka_quotas.pipeline.tables.schemas import TableSchema

if TYPE_CHECKING:
    from kafka_quotas.pipeline.engine.sql import SqlTables
    from kafka_quotas.pipeline.tables.packed_events import PackedEvents


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


class Events(Protocol):
    """Recorded events for any number of jobs, and the rows that these make."""

    @property
    def recorded(self) -> RecordedEvents:
        """Their number and their times."""
        ...

    @property
    def tables(self) -> "SqlTables":
        """The rows that jobs made, where these run."""
        ...

    def run(self, job: Job) -> str:
        """Run the job and return the name of its rows in `tables`.

        Raises:
            KafkaQuotasError: A file can't be read, or Spark does not start or fails.
        """
        ...

    def table(self, table: TableSchema) -> str:
        """Return the name in `tables` of a table that was ingested.

        Raises:
            KafkaQuotasError: The table can't be read.
        """
        ...

    def errors(self, doing: str) -> AbstractContextManager[None]:
        """Convert the errors of an engine in the block to a `KafkaQuotasError` of one line."""
        ...


class OpenEvents:
    """An open folder of events for any number of jobs, with a Spark session once a job needs it."""

    def __init__(self, request: EventsRequest, watcher: EventsWatcher, stack: ExitStack) -> None:
        from kafka_quotas.pipeline.tables.packed_events import PackedEvents  # noqa: PLC0415 - loads Arrow

        self._request = request
        self._watcher = watcher
        self._stack = stack
        lake = Lake.of(request.data)
        name_object_store(request.spark, lake.url)
        self._session = LazySession(request.spark.for_place(lake.url), watcher.progress, stack)
        self._tables: SqlTables | None = None
        self._packed = PackedEvents(lake, request.as_of)
        count, first_ms, last_ms = _totals(self._packed)
        self._choice = choose_engine(request.engine, events=count, master=request.master, is_remote=not lake.is_local)
        with self.errors(f"reading {request.data}"):
            self.recorded = RecordedEvents(
                count=count, first_ms=first_ms, last_ms=last_ms, recorded_s=self._recorded_s() if count else 0
            )

    @property
    def tables(self) -> "SqlTables":
        """The rows that jobs made, where these run."""
        if self._tables is None:
            if self._is_on_spark:
                self._tables = found = SparkTables(self._session())
                self._stack.callback(found.forget)
            else:
                self._tables = DuckTables()
        return self._tables

    def run(self, job: Job) -> str:
        """Run the job where its engine is."""
        tables = self.tables
        self._watcher.chosen(self._choice)
        if not isinstance(tables, SparkTables):
            import pyarrow as pa  # noqa: PLC0415 - the command's help must not load it

            from kafka_quotas.pipeline.engine.slices import EventRanges  # noqa: PLC0415 - as above

            found = run_tasks(job, EventRanges(self._packed), watch=self._watcher.progress)
            return tables.add(job.name, pa.concat_tables([job.schema.empty_table(), *found]))
        from kafka_quotas.pipeline.engine.spark import packed_frame, run_job  # noqa: PLC0415 - loads PySpark

        session = self._session()
        with self.errors(f"running {job.name} over {self._request.data}"):
            rows = run_job(packed_frame(session, self._packed), job, count=self.recorded.count)
            name = tables.name(job.name, rows, keep=True)
            run_watched(
                session,
                lambda: tables.query(f"SELECT count(*) AS rows FROM {name}"),
                stage=job.name,
                watch=self._watcher.progress,
            )
        return name

    def table(self, table: TableSchema) -> str:
        """Return the name of a table of the folder."""
        from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS  # noqa: PLC0415 - as above

        lake, tables = self._packed.lake, self.tables
        if isinstance(tables, SparkTables):
            if table is PACKED_EVENTS:
                from kafka_quotas.pipeline.engine.spark import packed_frame  # noqa: PLC0415 - loads PySpark

                return tables.name(table.name, packed_frame(self._session(), self._packed))
            return tables.name(table.name, self._session().read.format("delta").load(hadoop_url(lake.place(table))))
        return tables.add(
            table.name,
            self._packed.dataset() if table is PACKED_EVENTS else lake.table(table).to_pyarrow_dataset(),
        )

    @property
    def _is_on_spark(self) -> bool:
        return self._choice.engine is Engine.SPARK and bool(self.recorded.count)

    def _recorded_s(self) -> int:
        from kafka_quotas.pipeline.engine import slices  # noqa: PLC0415 - loads Arrow

        if self._choice.engine is Engine.SPARK:
            require_libraries("pyspark")
            from kafka_quotas.pipeline.engine.spark import minutes, packed_frame  # noqa: PLC0415 - loads PySpark

            return slices.recorded_s(minutes(packed_frame(self._session(), self._packed)))
        import pyarrow as pa  # noqa: PLC0415 - as above

        found = pa.concat_tables([slices.minutes_of(each) for each in self._packed.batches(["ts_ms"])])
        return slices.recorded_s(slices.joined_minutes(found))

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Convert errors of Spark, and of writers that another run came before."""
        try:
            with spark_errors(doing, log_file=self._request.spark.log_file):
                yield
        except ConflictError as error:
            raise KafkaQuotasError(f"{doing} failed: another run wrote there meanwhile", hint="run it again") from error


def _totals(packed: "PackedEvents") -> tuple[int, int | None, int | None]:
    """Return the number of events and the times of the first and the last one, None without events."""
    from kafka_quotas.pipeline.tables.arrow import compute as pc  # noqa: PLC0415 - loads Arrow

    rows = packed.table(["events", "first_at", "last_at"])
    if not rows.num_rows:
        return 0, None, None
    first_at, last_at = pc.min(rows["first_at"]), pc.max(rows["last_at"])
    return pc.sum(rows["events"]).as_py(), first_at.value // 1000, last_at.value // 1000


def recorded_span(request: EventsRequest) -> tuple[int, int] | None:
    """Return the times of the first and the last event in ms since 1970, None without events.

    Spark is not started: of its settings only those of the object store are used.

    Raises:
        UsageError: No ingest made the folder.
        KafkaQuotasError: The table can't be read.
    """
    require_libraries("pyarrow", "deltalake")
    from kafka_quotas.pipeline.tables.packed_events import PackedEvents  # noqa: PLC0415 - loads Arrow

    lake = Lake.of(request.data)
    name_object_store(request.spark, lake.url)
    _, first_ms, last_ms = _totals(PackedEvents(lake, request.as_of))
    return None if first_ms is None or last_ms is None else (first_ms, last_ms)


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
