"""The batches of a stream as files beside Spark's checkpoint, which Spark writes and reads on any file system.

    CHECKPOINT/kafka-quotas-state/1/RUN/batch-0/found=state/...   batches 0, 3, 6 ... by turns, and the rest likewise
    CHECKPOINT/kafka-quotas-state/1/RUN/commit-0/...              one row, once all of the above is there

A Connect server completes what it executes for a command that was killed, while the next one runs already. Each run of
the command therefore writes to a folder of its own. Runs have the folders 0 and 1 by turns, and begin by emptying
theirs, which is never that of the commit from which they continue.

Invariant: a batch counts once its commit is there, that of the last run where several have one.
"""

import json
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.stream.part_tasks import FILE_COLUMNS, STATE, SUMMARY
from kafka_quotas.pipeline.stream.type_state import LONG_AGO_MS, Broker
from kafka_quotas.pipeline.tables.arrow import arrow_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
        """Return the commit of a batch by the last run whose files are there, None where there is none."""
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
