"""The job `ingest`: logs, scrapes and samples into the tables of a data folder."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.engine.choice import Engine, EngineChoice, choose_engine, require_libraries
from kafka_quotas.pipeline.engine.job import JobProgress, Watch
from kafka_quotas.pipeline.engine.runner import EventsWatcher
from kafka_quotas.pipeline.engine.spark_session import LazySession, spark_errors
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings, name_object_store
from kafka_quotas.pipeline.formats.lines import RemoteFiles
from kafka_quotas.pipeline.formats.task import IngestCounts, IngestTask, TaskCounts
from kafka_quotas.pipeline.ingest.plan import IngestPlan, IngestSettings, KnownFiles, ReadFile, plan_ingest
from kafka_quotas.pipeline.ingest.sources import FoundFile, InspectedFile, find_files, find_paths, inspect_files
from kafka_quotas.pipeline.tables.lake import Lake, is_url, lake_url
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS, QUARANTINE

if TYPE_CHECKING:
    from kafka_quotas.pipeline.ingest.commits import FolderState
    from kafka_quotas.pipeline.ingest.ingested_tables import Fault
    from kafka_quotas.pipeline.tables.staged_files import StagedFile

    StagedRows = tuple[list[TaskCounts], dict[str, list[StagedFile]]]

_ATTEMPTS = 5
_BYTES_PER_EVENT = 1000
"""Approximate size of a request log's line, precise enough to choose an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    """The files to read, their format, the target and the engine."""

    patterns: tuple[str, ...]
    """Patterns of `--source`."""
    paths: tuple[str, ...]
    """Files and folders, as paths or URLs."""
    replaced: tuple[str, ...]
    """Patterns of files to read anew, in place of what earlier ingests made of them."""
    out: str
    """Path or URL of the data folder."""
    settings: IngestSettings
    """Settings for all files."""
    spark: SparkSettings
    """Settings of Spark, for that engine."""
    engine: Engine = Engine.AUTO
    master: str | None = None
    """The Spark master that the user named, None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """The result of an ingest."""

    DOCUMENT: ClassVar = (
        "out change=number engine=choice.engine elapsed_s=rounded_s files unchanged empty counts.lines counts.blank "
        "counts.events counts.metrics counts.client_throttle counts.quarantined counts.forwarded counts.unused"
    )
    out: str
    number: Annotated[int | None, Described(text="null if no line was new")]
    """Delta's version of the table `events` with it."""
    choice: EngineChoice | None
    files: int
    unchanged: int
    """Files that were read before or are found twice."""
    empty: int
    """Files without content."""
    unknown: tuple[str, ...]
    """Files in folders, or matched by patterns, of no known format."""
    read_otherwise: tuple[str, ...]
    """Unchanged files that were read in another time zone, or by another version of the parser."""
    counts: IngestCounts
    faults: "tuple[Fault, ...]" = ()
    elapsed_s: float = 0.0

    @property
    def rounded_s(self) -> float:
        """The seconds that it took, to the millisecond."""
        return round(self.elapsed_s, 3)


def ingest(request: IngestRequest, watcher: EventsWatcher) -> IngestResult:
    """Read the files into the tables in `request.out`, completely or not at all.

    Raises:
        UsageError: A source or setting is invalid.
        KafkaQuotasError: A file can't be read or written.
    """
    require_libraries()
    with ExitStack() as stack:
        places = (request.out, *(name for name in _sources(request) if is_url(name)))
        urls = tuple(map(lake_url, places))
        name_object_store(request.spark, *urls)
        session = LazySession(request.spark.for_place(*urls), watcher.progress, stack)
        return _ingest_found(request, _inspected(request, session), session, watcher)


def _ingest_found(
    request: IngestRequest, inspected: Sequence[InspectedFile], session: LazySession, watcher: EventsWatcher
) -> IngestResult:
    """Read what is new of the files, after what a killed ingest has left to do."""
    from kafka_quotas.pipeline.ingest.commits import FolderState, derive  # noqa: PLC0415 - loads Arrow

    lake = Lake.of(request.out)
    if not lake.exists():
        plan_ingest(inspected, settings=request.settings, known=KnownFiles(()))  # a mistake leaves no folder behind
        lake.create()
    for _ in range(_ATTEMPTS):
        before = FolderState.of(lake)
        derive(lake, before.records)
        plan = plan_ingest(inspected, settings=request.settings, known=before.known_files())
        if not plan.files:
            return _result(request, plan, number=None, choice=None, counts=())
        result = _ingest(request, plan, before=before, lake=lake, session=session, watcher=watcher)
        if result is not None:
            return result
    raise KafkaQuotasError(
        f"other ingests into {request.out} read the same files again and again", hint="let one end, then try again"
    )


def _ingest(
    request: IngestRequest,
    plan: IngestPlan,
    *,
    before: "FolderState",
    lake: Lake,
    session: LazySession,
    watcher: EventsWatcher,
) -> IngestResult | None:
    """Write the rows of a plan and commit them, None if another ingest read one of the files meanwhile."""
    from kafka_quotas.pipeline.ingest.commits import (  # noqa: PLC0415 - loads Arrow
        IngestRecord,
        commit,
        merge_small_files,
    )
    from kafka_quotas.pipeline.ingest.ingested_tables import faults_of  # noqa: PLC0415

    at_ms, started_s = round(time.time() * 1000), time.monotonic()
    choice = choose_engine(
        request.engine,
        events=plan.size // _BYTES_PER_EVENT,
        master=request.master,
        is_remote=bool(plan.remote) or not lake.is_local,
    )
    watcher.chosen(choice)
    tasks = plan.tasks(is_spark=choice.engine is Engine.SPARK)
    if choice.engine is Engine.SPARK:
        counts, staged = _run_on_spark(session, tasks, request, lake=lake, watch=watcher.progress)
    else:
        counts, staged = _run_here(plan, tasks, lake=lake, watch=watcher.progress)
    if not any(each.lines for each in counts):
        return _result(request, plan, number=None, choice=choice, counts=counts)
    events = staged.pop(PACKED_EVENTS.name)
    record = IngestRecord(
        number=0,
        at_ms=at_ms,
        files=tuple(_read_files(plan, tasks, counts)),
        replaced=tuple(sorted(plan.replaced)),
        staged=staged,
    )
    version = commit(lake, record, events, before)
    if version is None:
        return None
    merge_small_files(lake)
    result = _result(request, plan, number=version, choice=choice, counts=counts)
    faults = faults_of(lake, staged[QUARANTINE.name])
    return replace(result, faults=faults, elapsed_s=time.monotonic() - started_s)


def _sources(request: IngestRequest) -> tuple[str, ...]:
    return (*request.patterns, *request.replaced, *request.paths)


def _inspected(request: IngestRequest, session: LazySession) -> list[InspectedFile]:
    """Find and inspect the files, those at URLs by Spark where it reads them and its driver is here.

    Spark starts before anything at a URL is read, for it may know credentials that the environment lacks.
    """
    form = request.settings.input_format
    choice = choose_engine(request.engine, events=0, master=request.master, is_remote=True)
    is_spark = choice.engine is Engine.SPARK and not request.spark.is_connect
    if not is_spark or not any(map(is_url, (request.out, *_sources(request)))):
        return inspect_files(_find(request), input_format=form)
    require_libraries("pyspark")
    from kafka_quotas.pipeline.ingest.sources import HadoopFiles  # noqa: PLC0415 - loads PySpark's gateway

    with spark_errors("looking for files", log_file=request.spark.log_file):
        remote = HadoopFiles(session())
        return inspect_files(_find(request, remote), input_format=form, remote=remote)


def _find(request: IngestRequest, remote: RemoteFiles | None = None) -> list[FoundFile]:
    found = [file for pattern in request.patterns for file in find_files(pattern, remote)]
    found += [replace(file, is_replacing=True) for pattern in request.replaced for file in find_files(pattern, remote)]
    found += [file for path in request.paths for file in find_paths(path, remote)]
    if not found:
        raise UsageError("no source was named", hint="FILE..., or --source 'logs/{broker_id}/*.log'")
    return list({file.place: file for file in sorted(found, key=lambda each: each.is_replacing)}.values())


def _run_here(plan: IngestPlan, tasks: Sequence[IngestTask], *, lake: Lake, watch: Watch) -> "StagedRows":
    from kafka_quotas.pipeline.ingest.local_engine import ingest_locally  # noqa: PLC0415 - loads Arrow

    done: list[TaskCounts] = []

    def report(counts: TaskCounts) -> None:
        done.append(counts)
        rows = sum(each.lines for each in done)
        stage = "read" if len(done) < len(tasks) else "sort and write"
        watch(JobProgress(stage=stage, done=len(done), total=len(tasks), rows=rows))

    watch(JobProgress(stage="read", done=0, total=len(tasks)))
    return ingest_locally(tasks, size=plan.size, lake=lake, done=report)


def _run_on_spark(
    session: LazySession, tasks: Sequence[IngestTask], request: IngestRequest, *, lake: Lake, watch: Watch
) -> "StagedRows":
    require_libraries("pyspark")
    from kafka_quotas.pipeline.ingest.spark_engine import ingest_on_spark  # noqa: PLC0415 - loads PySpark

    with spark_errors(f"ingesting into {request.out}", log_file=request.spark.log_file):
        return ingest_on_spark(session(), tasks, lake=lake, watch=watch)


def _read_files(plan: IngestPlan, tasks: Sequence[IngestTask], counts: Sequence[TaskCounts]) -> list[ReadFile]:
    """Return the files of the plan with how far each was read."""
    read_to = dict.fromkeys(range(len(plan.files)), 0)
    for task, each in zip(tasks, counts, strict=True):
        read_to[task.file_number] = max(read_to[task.file_number], each.read_to)
    return [replace(file.described, read_to=read_to[file.task.file_number]) for file in plan.files]


def _totals(counts: Sequence[TaskCounts]) -> IngestCounts:
    return IngestCounts(
        **{each.name: sum(getattr(count, each.name) for count in counts) for each in fields(IngestCounts)}
    )


def _result(
    request: IngestRequest,
    plan: IngestPlan,
    *,
    number: int | None,
    choice: EngineChoice | None,
    counts: Sequence[TaskCounts],
) -> IngestResult:
    return IngestResult(
        out=request.out,
        number=number,
        choice=choice,
        files=len(plan.files),
        unchanged=plan.unchanged,
        empty=plan.empty,
        unknown=plan.unknown,
        read_otherwise=plan.read_otherwise,
        counts=_totals(counts),
    )
