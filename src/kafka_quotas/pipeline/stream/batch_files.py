"""The batches of a stream: their tasks on Spark, and their files beside Spark's checkpoint, on any file system.

    CHECKPOINT/kafka-quotas-state/1/RUN/batch-0/found=state/...   batches 0, 3, 6 ... by turns, and the rest likewise
    CHECKPOINT/kafka-quotas-state/1/RUN/commit-0/...              one row, once all of the above is there

Executors parse, find buckets and keep the state. Each row of a batch has its number, a part, what was found and its
content:

    state        the part's buckets after the batch (`state.PartState`)
    live         its rows of the table `live`, as an Arrow stream
    unreadable   what was set aside, likewise
    summary      the figures of the part as JSON

A Connect server completes what it executes for a command that was killed, while the next one runs already. Each run of
the command therefore writes to a folder of its own. Runs have the folders 0 and 1 by turns, and begin by emptying
theirs, which is never that of the commit from which they continue.

Invariant: a batch counts once its commit is there, that of the last run where several have one.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.spark_tasks import content_row, in_tasks, rows_of
from kafka_quotas.pipeline.stream.lines import UNREADABLE, ReadEvents, without_future
from kafka_quotas.pipeline.stream.state import LONG_AGO_MS, Broker, Partitioner, PartState, unpacked_charges
from kafka_quotas.pipeline.tables.arrow import arrow_frame, packed, unpacked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_COLUMNS: Final = "batch int, part int, found string, content binary"
_PIECE_COLUMNS: Final = "part int, found string, content binary"
ReadBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[ReadEvents]]
STATE, CHARGES, EVENTS, LIVE_ROWS, SET_ASIDE, SUMMARY = "state", "charges", "events", "live", "unreadable", "summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What the tasks of one batch need to know."""

    batch_id: int
    parts: int
    """Number of parts of the state."""
    quotas: Proposal
    """Quotas in force."""
    window: QuotaWindow = DEFAULT_WINDOW
    horizons_ms: Mapping[Broker, int]
    """Time by broker before which an event is late."""
    now_ms: int
    """Time at which the batch is reckoned, in ms since 1970."""


def moved_on(values: "DataFrame", before: "DataFrame", read: ReadBatches, plan: BatchPlan) -> "DataFrame":
    """Return the rows of a batch, to be written.

    Args:
        values: A column of lines, or those of events.
        before: Rows of the state before the batch, with the columns part, found and content.
        read: Reads batches of values.
        plan: What the tasks need to know.
    """
    pieces = in_tasks(values, partial(_pieces, read=read, plan=plan), _PIECE_COLUMNS)
    placed = before.union(pieces).repartition(plan.parts, "part").sortWithinPartitions("part")
    return in_tasks(placed, partial(_moved_on, plan=plan), FILE_COLUMNS)


def unpacked_rows(contents: "DataFrame", columns: Any) -> "DataFrame":
    """Return the rows of tables in a column of Arrow streams."""

    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (content,) in rows_of(batches):
            yield from unpacked(content).to_batches()

    return in_tasks(contents, unpack, columns)


def _pieces(batches: Iterable[pa.RecordBatch], *, read: ReadBatches, plan: BatchPlan) -> Iterator[pa.RecordBatch]:
    """Yield the charges of values by part, and to the first part what was counted."""
    events, set_aside = 0, [UNREADABLE.empty_table()]

    def tables() -> Iterator[pa.Table]:
        nonlocal events
        for each in read(batches):
            found = without_future(each, plan.now_ms)
            events += found.charges.num_rows
            set_aside.append(found.unreadable)
            yield found.charges

    for part, content in Partitioner(plan.quotas, parts=plan.parts).pieces(tables()):
        yield content_row({"part": part, "found": CHARGES}, content)
    if events:
        yield content_row({"part": 0, "found": EVENTS}, pa.py_buffer(str(events).encode()))
    refused = pa.concat_tables(set_aside)
    if refused.num_rows:
        yield content_row({"part": 0, "found": SET_ASIDE}, packed(refused))


def _moved_on(batches: Iterable[pa.RecordBatch], *, plan: BatchPlan) -> Iterator[pa.RecordBatch]:
    rows = rows_of(batches)
    for part, own in groupby(rows, key=lambda row: row[0]):
        found: dict[str, list[pa.Buffer]] = {each: [] for each in (STATE, CHARGES, EVENTS, SET_ASIDE)}
        for _, kind, content in own:
            found[kind].append(content)
        for kind, content in _of_part(found, plan):
            yield content_row({"batch": plan.batch_id, "part": part, "found": kind}, content)


def _of_part(found: Mapping[str, list[pa.Buffer]], plan: BatchPlan) -> Iterator[tuple[str, pa.Buffer]]:
    state = PartState(plan.quotas, window=plan.window)
    for content in found[STATE]:
        if content.size:
            state.load(content.to_pybytes())
    live = state.take(map(unpacked_charges, found[CHARGES]), plan.horizons_ms, batch_id=plan.batch_id)
    yield STATE, pa.py_buffer(state.dump())
    if live.num_rows:
        yield LIVE_ROWS, packed(live)
    refused = [unpacked(each) for each in found[SET_ASIDE]]
    if refused:
        yield SET_ASIDE, packed(pa.concat_tables(refused))
    summary = {
        "events": sum(int(each.to_pybytes()) for each in found[EVENTS]),
        "late": sum(live["late_events"].to_pylist()),
        "unreadable": sum(each.num_rows for each in refused),
        "buckets": live.num_rows,
        "clocks": [[*broker, at_ms] for broker, at_ms in state.clocks_ms().items()],
    }
    yield SUMMARY, pa.py_buffer(json.dumps(summary).encode())


HINT: Final = "name another --checkpoint to begin anew"
_KEPT: Final = 3
"""Number of batches on disk: Spark runs no batch older than the last again."""
_COLUMNS: Final = "batch int, content string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What the command needs to know of a batch that is kept."""

    batch_id: int
    stream: str
    """Identity of the stream, which a new one with the same checkpoint does not share."""
    parts: int
    """Number of parts of the state, fixed at the stream's start."""
    window: tuple[int, int]
    """Samples and seconds of the quota window."""
    run: int = 0
    """Number of the run that kept the batch, 0 before the first."""
    folder: str = ""
    """Folder of that run."""
    clocks: tuple[tuple[str, int, int], ...] = ()
    """Cluster, broker and latest time in ms of its events."""
    events: int = 0
    late: int = 0
    unreadable: int = 0
    buckets: int = 0

    def after(self, batch_id: int, summaries: Iterable[str]) -> "Commit":
        """Return the commit of the next batch, from the summaries of all parts."""
        found = [json.loads(each) for each in summaries]
        latest: dict[Broker, int] = {(cluster, broker): at_ms for cluster, broker, at_ms in self.clocks}
        for cluster, broker, at_ms in (clock for each in found for clock in each.pop("clocks")):
            latest[cluster, broker] = max(at_ms, latest.get((cluster, broker), LONG_AGO_MS))
        figures = {name: sum(each[name] for each in found) for name in ("events", "late", "unreadable", "buckets")}
        clocks = tuple((*broker, at_ms) for broker, at_ms in latest.items())
        return replace(self, batch_id=batch_id, clocks=clocks, **figures)


class BatchFiles:
    """The files of the last batches, of this run and of those before it."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._run = 0
        self._folder = ""

    def commit(self, session: "SparkSession", batch_id: int) -> Commit | None:
        """Return the commit of a batch by the last run whose files are there, None if there is none."""
        rows = _existing(session, f"{self._place}/*/*/commit-{batch_id % _KEPT}", _COLUMNS)
        kept = [] if rows is None else rows.where(f"batch = {batch_id}").collect()
        found = sorted((_commit_of(row["content"]) for row in kept), key=lambda each: each.run, reverse=True)
        return next((each for each in found if self.found(session, SUMMARY, each) is not None), None)

    def keep(self, rows: "DataFrame", before: Commit) -> Commit:
        """Write the rows of the batch after a commit, and its own commit last.

        Raises:
            KafkaQuotasError: What executors wrote isn't there.
        """
        session, batch_id = rows.sparkSession, before.batch_id + 1
        own = self._of_this_run(session, before)
        writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "static").partitionBy("found")
        writer.parquet(f"{self._place}/{own.folder}/batch-{batch_id % _KEPT}")
        written = self.found(session, SUMMARY, replace(own, batch_id=batch_id))
        summaries = [] if written is None else [bytes(row["content"]).decode() for row in written.collect()]
        if len(summaries) != before.parts:
            raise KafkaQuotasError(
                f"executors don't write to the {self._place} that this machine reads",
                hint="on a cluster --checkpoint and --out are URLs or on a file system that all machines share",
            )
        commit = own.after(batch_id, summaries)
        about = {"batch": pa.array([batch_id], pa.int32()), "content": [json.dumps(asdict(commit))]}
        row = arrow_frame(session, pa.table(about))
        row.coalesce(1).write.mode("overwrite").parquet(f"{self._place}/{own.folder}/commit-{batch_id % _KEPT}")
        return commit

    def _of_this_run(self, session: "SparkSession", before: Commit) -> Commit:
        """Return a commit as one of this run, whose folder is made with its first batch."""
        if not self._folder:
            self._run = before.run + 1
            turn = str(self._run % 2)
            session.range(0).write.mode("overwrite").parquet(f"{self._place}/{turn}")
            self._folder = f"{turn}/{uuid.uuid4().hex}"
        return replace(before, run=self._run, folder=self._folder)

    def state(self, session: "SparkSession", before: Commit) -> "DataFrame":
        """Return the state after a commit in the columns part, found and content, empty before any.

        Raises:
            KafkaQuotasError: The state isn't there.
        """
        if before.batch_id < 0:
            parts = session.range(before.parts)
            return parts.selectExpr("cast(id as int) part", f"'{STATE}' found", "cast('' as binary) content")
        rows = self.found(session, STATE, before)
        if rows is None:
            raise KafkaQuotasError(f"{self._place} lacks the state of batch {before.batch_id}", hint=HINT)
        return rows.selectExpr("part", f"'{STATE}' found", "content")

    def found(self, session: "SparkSession", kind: str, commit: Commit) -> "DataFrame | None":
        """Return what a batch found of one kind in the columns part and content, None for nothing."""
        place = f"{self._place}/{commit.folder}/batch-{commit.batch_id % _KEPT}/found={kind}"
        rows = _existing(session, place, FILE_COLUMNS.replace(" found string,", ""))
        return None if rows is None else rows.where(f"batch = {commit.batch_id}").select("part", "content")


def _commit_of(content: str) -> Commit:
    about = json.loads(content)
    clocks = tuple((cluster, broker, at_ms) for cluster, broker, at_ms in about.pop("clocks"))
    return Commit(**about | {"window": tuple(about["window"]), "clocks": clocks})


def _existing(session: "SparkSession", place: str, columns: str) -> "DataFrame | None":
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - the command's help must not load it

    try:
        rows = session.read.schema(columns).parquet(place)
        _ = rows.columns  # a Connect session looks only now
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    return rows
