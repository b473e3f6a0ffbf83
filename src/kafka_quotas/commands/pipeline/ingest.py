"""Reading logs, scrapes and samples into the tables of the pipeline."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.engine.choice import Engine, EngineChoice, choose_engine, require_libraries
from kafka_quotas.pipeline.engine.progress import JobProgress, Watch
from kafka_quotas.pipeline.engine.runner import EventsWatcher
from kafka_quotas.pipeline.engine.spark_session import spark_errors, spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.formats.task import TaskCounts
from kafka_quotas.pipeline.ingest.manifest import ReadFile, known_files, write_manifest
from kafka_quotas.pipeline.ingest.plan import IngestPlan, IngestSettings, plan_ingest
from kafka_quotas.pipeline.ingest.source_pattern import FoundFile, find_files, find_paths
from kafka_quotas.pipeline.ingest.staging import Staging, staging
from kafka_quotas.pipeline.tables.layout import DEFAULT_BUCKETS, MANIFEST_FILE

if TYPE_CHECKING:
    from kafka_quotas.pipeline.ingest.ingested_tables import Fault

_BYTES_PER_EVENT = 1000
"""Approximate size of a request log's line, precise enough to choose an engine."""

_WITHOUT_NUMBA = "request logs are read without numba, which is not installed: equal events, a fifth of the speed"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    """The files to read, their format, the target folder and the engine."""

    patterns: tuple[str, ...]
    """Patterns of `--source`."""
    paths: tuple[Path, ...]
    """Files and folders."""
    out: Path
    settings: IngestSettings
    """Settings for all files."""
    spark: SparkSettings
    """Settings of Spark, for that engine."""
    engine: Engine = Engine.AUTO
    master: str | None = None
    """The Spark master that the user named, None for none."""
    buckets: int | None = None
    """Number of buckets, None for that of the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestCounts:
    """The number of lines, and of the rows and other results from them."""

    lines: int
    blank: int
    events: int
    metrics: int
    client_throttle: int
    quarantined: int
    forwarded: int
    """Requests that were logged twice."""
    unused: int
    """Figures of scrapes about other things than quotas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """The result of an ingest."""

    out: Path
    folder: Path | None
    """Folder of the ingest, None where no line was new."""
    choice: EngineChoice | None
    files: int
    unchanged: int
    """Files that were read before or are found twice."""
    empty: int
    """Files without content."""
    counts: IngestCounts
    faults: "tuple[Fault, ...]" = ()
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestWatcher(EventsWatcher):
    """Callbacks for progress, for a wait for another ingest, and for the chosen engine."""

    waiting: Callable[[], None]


def ingest(request: IngestRequest, watcher: IngestWatcher) -> IngestResult:
    """Read the files into the tables in `request.out`, completely or not at all.

    Raises:
        UsageError: A source or setting is invalid.
        KafkaQuotasError: A file can't be read or written.
    """
    require_libraries("pyarrow", "orjson")
    found = _find(request)
    with staging(
        request.out, buckets=request.buckets, default_buckets=DEFAULT_BUCKETS, waiting=watcher.waiting
    ) as place:
        plan = plan_ingest(found, settings=request.settings, known=known_files(place.data))
        if not plan.files:
            return _result(request, plan, folder=None, choice=None, counts=())
        choice = choose_engine(request.engine, events=plan.size // _BYTES_PER_EVENT, master=request.master)
        watcher.chosen(choice)
        if any(task.is_compiled for task in plan.tasks) and find_spec("numba") is None:
            watcher.chosen(replace(choice, reason=_WITHOUT_NUMBA))
        started_s = time.monotonic()
        counts = _run(plan, choice, request, place, watcher.progress)
        from kafka_quotas.pipeline.ingest.ingested_tables import count_faults  # noqa: PLC0415 - loads Arrow

        faults = count_faults(place.path)
        folder = _commit(place, plan, counts) if any(each.lines for each in counts) else None
        result = _result(request, plan, folder=folder, choice=choice, counts=counts)
        return replace(result, faults=faults, elapsed_s=time.monotonic() - started_s)


def _find(request: IngestRequest) -> list[FoundFile]:
    found = [file for pattern in request.patterns for file in find_files(pattern)]
    found += [file for path in request.paths for file in find_paths(path)]
    if not found:
        raise UsageError("no source was named", hint="FILE..., or --source 'logs/{broker_id}/*.log'")
    return list({file.path.absolute(): file for file in found}.values())


def _run(
    plan: IngestPlan, choice: EngineChoice, request: IngestRequest, place: Staging, watch: Watch
) -> list[TaskCounts]:
    """Run all tasks into the staging folder and return their counts."""
    if choice.engine is Engine.SPARK:
        return _run_on_spark(plan, request, place, watch)
    from kafka_quotas.pipeline.ingest.local_engine import ingest_locally  # noqa: PLC0415 - loads Arrow

    done: list[TaskCounts] = []

    def report(counts: TaskCounts) -> None:
        done.append(counts)
        rows = sum(each.lines for each in done)
        stage = "read" if len(done) < len(plan.tasks) else "sort and write"
        watch(JobProgress(stage=stage, done=len(done), total=len(plan.tasks), rows=rows))

    watch(JobProgress(stage="read", done=0, total=len(plan.tasks)))
    return ingest_locally(plan.tasks, size=plan.size, buckets=place.data.buckets, folder=place.path, done=report)


def _run_on_spark(plan: IngestPlan, request: IngestRequest, place: Staging, watch: Watch) -> list[TaskCounts]:
    require_libraries("pyspark")
    from kafka_quotas.pipeline.ingest.spark_engine import ingest_on_spark  # noqa: PLC0415 - loads PySpark

    watch(JobProgress(stage="start Spark", done=0, total=0))
    folder = place.path.absolute()
    with (
        spark_session(request.spark) as session,
        spark_errors(f"ingesting into {request.out}", log_file=request.spark.log_file),
    ):
        return ingest_on_spark(session, plan.tasks, buckets=place.data.buckets, folder=folder, watch=watch)


def _commit(place: Staging, plan: IngestPlan, counts: Sequence[TaskCounts]) -> Path:
    """Write the manifest, which records how far each file was read, and commit the ingest."""
    read_to = dict.fromkeys(range(len(plan.files)), 0)
    for task, each in zip(plan.tasks, counts, strict=True):
        read_to[task.file_number] = max(read_to[task.file_number], each.read_to)
    files: list[ReadFile] = [replace(file.described, read_to=read_to[file.task.file_number]) for file in plan.files]
    write_manifest(place.path / MANIFEST_FILE, files, asdict(_totals(counts)))
    return place.commit()


def _totals(counts: Sequence[TaskCounts]) -> IngestCounts:
    return IngestCounts(
        **{each.name: sum(getattr(count, each.name) for count in counts) for each in fields(IngestCounts)}
    )


def _result(
    request: IngestRequest,
    plan: IngestPlan,
    *,
    folder: Path | None,
    choice: EngineChoice | None,
    counts: Sequence[TaskCounts],
) -> IngestResult:
    return IngestResult(
        out=request.out,
        folder=folder,
        choice=choice,
        files=len(plan.files),
        unchanged=plan.unchanged,
        empty=plan.empty,
        counts=_totals(counts),
    )
