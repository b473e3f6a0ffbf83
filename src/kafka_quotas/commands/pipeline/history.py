"""The changes of a data folder, its compaction, and its conversion from the earlier form."""

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_quotas.pipeline.engine.choice import Engine, EngineChoice, choose_engine, require_libraries
from kafka_quotas.pipeline.engine.progress import JobProgress
from kafka_quotas.pipeline.engine.runner import EventsRequest, EventsWatcher
from kafka_quotas.pipeline.engine.spark_failures import spark_errors
from kafka_quotas.pipeline.engine.spark_session import LazySession
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings, name_object_store
from kafka_quotas.pipeline.tables.lake import Lake

if TYPE_CHECKING:
    from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PastChange:
    """One change of a data folder."""

    number: int
    at_ms: int
    """When it was made, in ms since 1970."""
    operation: str
    """One of ingest, replace, convert and compact."""
    files: int
    """Files that it read."""
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactResult:
    """The result of a compaction."""

    files_before: int
    files_after: int
    removed: int
    """Old files that were deleted."""


def history(data: str, spark: SparkSettings) -> list[PastChange]:
    """Return the changes of a data folder, the latest first.

    Spark is not started: of its settings those of the object store count.

    Raises:
        UsageError: No ingest made the folder.
        KafkaQuotasError: The table can't be read.
    """
    require_libraries("pyarrow", "deltalake")
    from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot  # noqa: PLC0415 - loads Arrow

    return _changes(FolderSnapshot.of(_opened(data, spark)))


def _changes(snapshot: "FolderSnapshot") -> list[PastChange]:
    found: dict[int, PastChange] = {}
    for row in snapshot.changes.to_pylist():
        number = row["sequence"]
        files = (found[number].files if number in found else 0) + bool(row["path"])
        found[number] = PastChange(
            number=number, at_ms=row["at_ms"], operation=row["operation"], files=files, events=row["events"]
        )
    return [found[number] for number in sorted(found, reverse=True)]


def recorded_span(request: EventsRequest) -> tuple[int, int] | None:
    """Return the times of the first and the last event in ms since 1970, None without events.

    Raises:
        UsageError: No ingest made the folder.
        KafkaQuotasError: The table can't be read.
    """
    require_libraries("pyarrow", "deltalake")
    from kafka_quotas.pipeline.tables.arrow import compute as pc  # noqa: PLC0415 - loads Arrow
    from kafka_quotas.pipeline.tables.schemas import CLIENTS  # noqa: PLC0415
    from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot  # noqa: PLC0415

    snapshot = FolderSnapshot.of(_opened(request.data, request.spark), request.as_of)
    clients = snapshot.read(CLIENTS, columns=["first_ms", "last_ms"])
    if not clients.num_rows:
        return None
    return pc.min(clients["first_ms"]).as_py(), pc.max(clients["last_ms"]).as_py()


def compact(request: EventsRequest, watcher: EventsWatcher, *, retention_hours: int) -> CompactResult:
    """Merge small files, drop rows of killed ingests, and delete files that are not needed.

    Raises:
        UsageError: No ingest made the folder.
        KafkaQuotasError: The tables can't be changed, another change came in between, or Spark does not start or fails.
    """
    require_libraries("pyarrow", "deltalake")
    from kafka_quotas.pipeline.ingest import compaction  # noqa: PLC0415 - loads Arrow
    from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot  # noqa: PLC0415

    lake = _opened(request.data, request.spark)

    def chosen(events: int) -> EngineChoice:
        return choose_engine(request.engine, events=events, master=request.master, is_remote=not lake.is_local)

    def done(count: int, total: int) -> None:
        watcher.progress(JobProgress(stage="merge days", done=count, total=total))

    with ExitStack() as stack:
        session = LazySession(request.spark.for_place(lake.url), watcher.progress, stack)
        if not lake.is_local and chosen(0).engine is Engine.SPARK:
            session()  # it may know credentials that the environment lacks
        before, at_ms = FolderSnapshot.of(lake), round(time.time() * 1000)
        choice = chosen(sum(each.events for each in _changes(before)))
        watcher.chosen(choice)
        merge = partial(compaction.merge_locally, before, at_ms=at_ms, done=done)
        clean = partial(compaction.clean_locally, lake, retention_hours=retention_hours)
        if choice.engine is Engine.SPARK:
            require_libraries("pyspark")
            from kafka_quotas.pipeline.ingest import spark_compaction  # noqa: PLC0415 - loads PySpark

            stack.enter_context(spark_errors(f"compacting {request.data}", log_file=request.spark.log_file))
            merge = partial(spark_compaction.merge_on_spark, session(), before, at_ms=at_ms, watch=watcher.progress)
            clean = partial(spark_compaction.clean_on_spark, session(), lake, retention_hours=retention_hours)
        counts = compaction.compact(before, at_ms=at_ms, random=secrets.randbits(20), merge=merge, clean=clean)
    return CompactResult(files_before=counts[0], files_after=counts[1], removed=counts[2])


def convert(old: Path, data: str, spark: SparkSettings, *, done: Callable[[int, int], None]) -> int:
    """Convert a data folder of the earlier form and return its number of events.

    `done` is called with the number of converted ingests and of all.

    Raises:
        UsageError: The folder is none of the earlier form.
        KafkaQuotasError: A file can't be read or written.
    """
    require_libraries("pyarrow", "deltalake")
    from kafka_quotas.pipeline.ingest import conversion  # noqa: PLC0415 - loads Arrow

    return conversion.convert(old, _opened(data, spark), done=done)


def _opened(data: str, spark: SparkSettings) -> Lake:
    """Return the tables of a folder, whose object store may be known to Spark's configuration alone."""
    lake = Lake.of(data)
    name_object_store(spark, lake.url)
    return lake
