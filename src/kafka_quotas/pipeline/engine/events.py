"""Recorded events for any number of jobs: the folder, the engine, how many there are and when, and the jobs' rows."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from kafka_quotas.core.described import Described
from kafka_quotas.pipeline.engine.job import (
    LOCAL_LIMIT_EVENTS,
    Engine,
    EngineChoice,
    Job,
    Watch,
    choose_engine,
    require_libraries,
)
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings, name_object_store
from kafka_quotas.pipeline.engine.sql import DuckTables, SqlTables, duck_errors
from kafka_quotas.pipeline.tables.lake import Lake, lake_errors
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS, TableSchema

if TYPE_CHECKING:
    from kafka_quotas.pipeline.tables.packed_events import PackedEvents

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_GAP_MS: Final = 30 * _MINUTE_MS
"""Time without any event from which on nothing was recorded: a cluster in use is never silent for as long."""


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

    count: Annotated[int, Described(text="events read")]
    first_ms: int | None
    """First time in ms since 1970, None without events."""
    last_ms: int | None
    """Last time in ms since 1970, None without events."""
    seconds: Annotated[int, Described(text="from the first event to the last")]
    """Without the gaps in it, at least 1."""


Errors = Callable[[str], AbstractContextManager[None]]
"""Returns a context for what is named, in which errors of an engine become errors of one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Recorded events for any number of jobs, and the rows that these make."""

    tables: SqlTables
    """The rows that jobs made, where these run."""
    recorded: RecordedEvents
    run: Callable[[Job], str]
    """Runs a job and returns the name of its rows in `tables`, with the errors of `errors`."""
    table: Callable[[TableSchema], str]
    """Returns the name in `tables` of a table that was ingested."""
    errors: Errors = lambda _: nullcontext()


def recorded_events(tables: SqlTables, events: str) -> RecordedEvents:
    """Count packed events, with their times and the seconds without the gaps between events.

    Rows say when their first and last events were. Only if these leave a gap within an hour, all times are looked at.
    """
    total = tables.query(f"SELECT CAST(coalesce(sum(events), 0) AS BIGINT) AS n FROM {events} WHERE events > 0")
    count, (first_at, last_at) = total["n"][0].as_py(), map(tables.dialect.ms.format, ("first_at", "last_at"))
    if not count:
        return RecordedEvents(count=0, first_ms=None, last_ms=None, seconds=1)
    bounds = f"SELECT {{}} AS at_ms FROM {events} WHERE events > 0"
    known = f"{bounds.format(first_at)} UNION ALL {bounds.format(last_at)}"
    (found,) = tables.query(recorded_time(known)).to_pylist()
    if found.pop("is_open"):  # a row is of one hour
        times = f"SELECT {tables.dialect.elements.format('ts_ms')} AS at_ms FROM {events}"
        (found,) = tables.query(recorded_time(times)).to_pylist()
        found.pop("is_open")
    return RecordedEvents(count=count, **found)


def recorded_time(instants: str) -> str:
    """Return SQL for the times in `RecordedEvents`, and whether a gap within an hour `is_open`.

    `instants` is SQL with a time in ms per row, `at_ms`.
    """
    is_gap = f"begin_ms - before_ms > {_GAP_MS}"
    whole = {name: f"CAST(floor({name} / 1000) AS BIGINT)" for name in ("begin_ms", "before_ms", "end_ms")}
    return f"""SELECT min(begin_ms) AS first_ms, max(end_ms) AS last_ms,
            max({whole["end_ms"]}) - min({whole["begin_ms"]}) + 1
                - CAST(sum(CASE WHEN {is_gap} THEN {whole["begin_ms"]} - {whole["before_ms"]} - 1 ELSE 0 END) AS BIGINT)
                AS seconds,
            max(CASE WHEN {is_gap} AND floor(begin_ms / {_HOUR_MS}) = floor(before_ms / {_HOUR_MS}) THEN 1 ELSE 0 END)
                AS is_open
        FROM (SELECT *, lag(end_ms) OVER (ORDER BY begin_ms) AS before_ms
            FROM (SELECT min(at_ms) AS begin_ms, max(at_ms) AS end_ms FROM ({instants}) AS instants
                GROUP BY floor(at_ms / {_MINUTE_MS})) AS minutes) AS follow"""


@contextmanager
def open_events(request: EventsRequest, watcher: EventsWatcher) -> Iterator[Events]:
    """Open the folder for the block, and stop a Spark session of its jobs afterwards.

    Raises:
        UsageError: No ingest wrote the folder.
        KafkaQuotasError: It can't be read, or Spark does not start.
    """
    packed = _packed_events(request)
    lake, tables = packed.lake, DuckTables()

    def run(job: Job) -> str:
        from kafka_quotas.pipeline.engine.slices import run_here  # noqa: PLC0415 - loads the kernels

        return tables.add(job.name, run_here(job, packed, watch=watcher.progress))

    def table(asked: TableSchema) -> str:
        rows = packed.dataset() if asked is PACKED_EVENTS else lake.table(asked).to_pyarrow_dataset()
        return tables.add(asked.name, rows)

    with ExitStack() as stack:
        stack.callback(tables.forget)
        recorded = _recorded(packed, tables)
        choice = choose_engine(
            request.engine, events=recorded.count, master=request.master, is_remote=not lake.is_local
        )
        watcher.chosen(choice)
        if choice.engine is Engine.LOCAL or not recorded.count:
            yield Events(tables=tables, recorded=recorded, run=run, table=table, errors=duck_errors)
            return
        require_libraries("pyspark")
        from kafka_quotas.pipeline.engine.spark import packed_frame, spark_events  # noqa: PLC0415 - loads PySpark
        from kafka_quotas.pipeline.engine.spark_session import spark_errors, started  # noqa: PLC0415 - as above

        spark = replace(request.spark.for_place(lake.url), is_short=recorded.count <= LOCAL_LIMIT_EVENTS)
        session = started(spark, watcher.progress, stack)
        rows = packed_frame(session, packed)
        errors = partial(spark_errors, log_file=request.spark.log_file)
        events = spark_events(rows, recorded=recorded, packed=packed, watch=watcher.progress, errors=errors)
        stack.callback(events.tables.forget)
        yield events


def recorded_span(request: EventsRequest) -> tuple[int, int] | None:
    """Return the times of the first and the last event in ms since 1970, None without events.

    Spark is not started: of its settings only those of the object store are used.

    Raises:
        UsageError: No ingest made the folder.
        KafkaQuotasError: The table can't be read.
    """
    found = _recorded(_packed_events(request), DuckTables())
    return None if found.first_ms is None or found.last_ms is None else (found.first_ms, found.last_ms)


def _recorded(packed: "PackedEvents", tables: SqlTables) -> RecordedEvents:
    with lake_errors(f"reading {packed.lake.shown(PACKED_EVENTS)}"):
        return recorded_events(tables, tables.add("events", packed.dataset()))


def _packed_events(request: EventsRequest) -> "PackedEvents":
    require_libraries()
    from kafka_quotas.pipeline.tables.packed_events import PackedEvents, keep_memory  # noqa: PLC0415 - loads Arrow

    keep_memory()
    lake = Lake.of(request.data)
    name_object_store(request.spark, lake.url)
    return PackedEvents(lake, request.as_of)
