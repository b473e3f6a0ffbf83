"""The job `ingest`: logs, scrapes and samples into the tables of a data folder."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.engine.events import EventsRequest, EventsWatcher
from kafka_quotas.pipeline.engine.job import Engine, EngineChoice, choose_engine, require_libraries
from kafka_quotas.pipeline.engine.spark_session import spark_errors, started
from kafka_quotas.pipeline.engine.spark_settings import name_object_store
from kafka_quotas.pipeline.formats.lines import RemoteFile, is_of_hadoop, list_files
from kafka_quotas.pipeline.formats.task import IngestCounts, TaskCounts
from kafka_quotas.pipeline.ingest.plan import IngestPlan, IngestSettings, KnownFiles, plan_ingest
from kafka_quotas.pipeline.ingest.sources import (
    FoundFile,
    InspectedFile,
    ListFiles,
    find_files,
    find_paths,
    hadoop_files,
    inspect_files,
)
from kafka_quotas.pipeline.tables.lake import Lake, is_url, lake_url
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS, QUARANTINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_quotas.pipeline.ingest.commits import IngestRecord
    from kafka_quotas.pipeline.ingest.ingested_tables import Fault
    from kafka_quotas.pipeline.tables.staged_files import StagedFile

    Session = Callable[[int], SparkSession]
    """Returns the session, given about how many bytes of logs it is to read."""

_ATTEMPTS = 5
_SHORT_BYTES = 1 << 29
"""Size of logs below which Spark's start takes longer than the ingest."""
_BYTES_PER_EVENT = 1000
"""Approximate size of a request log's line, precise enough to choose an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    """The files to read, their format and the target."""

    patterns: tuple[str, ...]
    """Patterns of `--source`."""
    paths: tuple[str, ...]
    """Files and folders, as paths or URLs."""
    replaced: tuple[str, ...]
    """Patterns of files to read anew, in place of what earlier ingests made of them."""
    target: EventsRequest
    """The data folder, and the engine that reads and writes."""
    settings: IngestSettings
    """Settings for all files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """The result of an ingest."""

    DOCUMENT: ClassVar = (
        "out change=number engine=choice.engine elapsed_s files unchanged empty counts.lines counts.blank "
        "counts.events counts.metrics counts.client_throttle counts.quarantined counts.forwarded counts.unused"
    )
    out: str
    number: Annotated[int | None, Described(text="null if no line was new")] = None
    """Delta's version of the table `events` with it."""
    choice: EngineChoice | None = None
    files: int
    unchanged: int
    """Files that were read before or are found twice."""
    empty: int
    """Files without content."""
    unknown: tuple[str, ...]
    """Files in folders, or matched by patterns, of no known format."""
    read_otherwise: tuple[str, ...]
    """Unchanged files that were read in another time zone, or by another version of the parser."""
    counts: IngestCounts = field(default_factory=IngestCounts)
    faults: "tuple[Fault, ...]" = ()
    elapsed_s: float = 0.0


def ingest(request: IngestRequest, watcher: EventsWatcher) -> IngestResult:
    """Read the files into the tables in `request.target.data`, completely or not at all.

    Raises:
        UsageError: A source or setting is invalid.
        KafkaQuotasError: A file can't be read or written.
    """
    require_libraries()
    from kafka_quotas.pipeline.ingest.commits import derive, records_of  # noqa: PLC0415 - loads Arrow

    with ExitStack() as stack:
        named = (*request.patterns, *request.replaced, *request.paths)
        places = (request.target.data, *(name for name in named if is_url(name)))
        urls = tuple(map(lake_url, places))
        name_object_store(request.target.spark, *urls)
        spark, kept = request.target.spark.for_place(*urls), list[Any]()

        def session(size: int) -> Any:
            if not kept:
                kept.append(started(replace(spark, is_short=size < _SHORT_BYTES), watcher.progress, stack))
            return kept[0]

        lake = Lake.of(request.target.data)
        for _ in range(_ATTEMPTS):
            inspected = _inspected(request, session)
            if not lake.exists():
                plan_ingest(inspected, settings=request.settings, known=KnownFiles(()))  # a mistake leaves no folder
                lake.create()
            before = records_of(lake)
            derive(lake, before)  # what a killed ingest has left to do
            known = KnownFiles(file for record in before for file in record.files)
            plan = plan_ingest(inspected, settings=request.settings, known=known)
            result = _ingest(request, plan, before=before, lake=lake, session=session, watcher=watcher)
            if result is not None:
                return result
    raise KafkaQuotasError(
        f"other ingests into {request.target.data} read the same files again and again",
        hint="let one end, then try again",
    )


def _ingest(
    request: IngestRequest,
    plan: IngestPlan,
    *,
    before: "Sequence[IngestRecord]",
    lake: Lake,
    session: "Session",
    watcher: EventsWatcher,
) -> IngestResult | None:
    """Write the rows of a plan and commit them.

    Returns:
        None if another ingest may have read one of the files meanwhile.
    """
    from kafka_quotas.pipeline.ingest.commits import IngestRecord, commit, merge_small_files  # noqa: PLC0415 - as above
    from kafka_quotas.pipeline.ingest.ingested_tables import faults_of  # noqa: PLC0415

    def is_read(later: KnownFiles) -> bool:
        return any(later.may_have(each.described, each.inspected.head) for each in plan.files)

    result = IngestResult(
        out=request.target.data,
        files=len(plan.files),
        unchanged=plan.unchanged,
        empty=plan.empty,
        unknown=plan.unknown,
        read_otherwise=plan.read_otherwise,
    )
    if not plan.files:
        return result
    at_ms, started_s = round(time.time() * 1000), time.monotonic()
    choice, counts, staged = _read(request, plan, lake, session, watcher)
    totals = {each.name: sum(getattr(count, each.name) for count in counts) for each in fields(IngestCounts)}
    result = replace(result, choice=choice, counts=IngestCounts(**totals))
    if not result.counts.lines:
        return result
    events = staged.pop(PACKED_EVENTS.name, [])
    record = IngestRecord(at_ms=at_ms, files=plan.read_by(counts), replaced=tuple(sorted(plan.replaced)), staged=staged)
    version = commit(lake, record, events, before, is_read)
    if version is None:
        return None
    merge_small_files(lake, events)
    faults = faults_of(lake, staged.get(QUARANTINE.name, ()))
    return replace(result, number=version, faults=faults, elapsed_s=round(time.monotonic() - started_s, 3))


def _read(
    request: IngestRequest, plan: IngestPlan, lake: Lake, session: "Session", watcher: EventsWatcher
) -> "tuple[EngineChoice, list[TaskCounts], dict[str, list[StagedFile]]]":
    """Write the rows of a plan's files on the engine that suits them, and return what is to be committed."""
    choice = choose_engine(
        request.target.engine,
        events=plan.size // _BYTES_PER_EVENT,
        master=request.target.master,
        is_remote=bool(plan.remote) or not lake.is_local,
    )
    watcher.chosen(choice)
    tasks = plan.tasks(is_spark=choice.engine is Engine.SPARK)
    if choice.engine is not Engine.SPARK:
        from kafka_quotas.pipeline.ingest.ingested_tables import ingest_locally  # noqa: PLC0415 - loads Arrow

        return choice, *ingest_locally(tasks, size=plan.size, lake=lake, watch=watcher.progress)
    require_libraries("pyspark")
    from kafka_quotas.pipeline.ingest.spark_engine import ingest_on_spark  # noqa: PLC0415 - loads PySpark

    with spark_errors(f"ingesting into {request.target.data}", log_file=request.target.spark.log_file):
        spark = session(sum(task.size for task in tasks))
        return choice, *ingest_on_spark(spark, tasks, lake=lake, watch=watcher.progress)


def _inspected(request: IngestRequest, session: "Session") -> list[InspectedFile]:
    """Find and inspect the files, on Spark those that only Hadoop reaches by its driver, if that is here."""
    form = request.settings.input_format
    choice = choose_engine(request.target.engine, events=0, master=request.target.master, is_remote=True)
    if choice.engine is Engine.LOCAL or request.target.spark.is_connect:
        return inspect_files(_find(request, list_files), input_format=form)

    def listed(folder: str) -> Iterable[RemoteFile]:
        if not is_of_hadoop(folder):
            return list_files(folder)
        require_libraries("pyspark")
        return hadoop_files(session(_SHORT_BYTES), folder)

    with spark_errors("looking for files", log_file=request.target.spark.log_file):
        return inspect_files(_find(request, listed), input_format=form)


def _find(request: IngestRequest, listed: ListFiles) -> list[FoundFile]:
    found = [file for pattern in request.patterns for file in find_files(pattern, listed)]
    found += [replace(file, is_replacing=True) for pattern in request.replaced for file in find_files(pattern, listed)]
    found += [file for path in request.paths for file in find_paths(path, listed)]
    if not found:
        raise UsageError("no source was named", hint="FILE..., or --source 'logs/{broker_id}/*.log'")
    return list({file.place: file for file in sorted(found, key=lambda each: each.is_replacing)}.values())
