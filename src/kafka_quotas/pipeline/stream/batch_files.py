"""The batches of a stream as files beside Spark's checkpoint, which Spark writes and reads on any file system.

    CHECKPOINT/kafka-quotas-state/batch-0/found=state/...     batches 0, 3, 6 ... by turns, and the rest likewise
    CHECKPOINT/kafka-quotas-state/commit-0/...                one row, once all of the above is there

Invariant: a batch counts once its commit is there. What a killed stream left of a batch is written over.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.stream.part_tasks import FILE_COLUMNS, STATE, SUMMARY
from kafka_quotas.pipeline.stream.type_state import LONG_AGO_MS, Broker

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
        return Commit(
            batch_id=batch_id, stream=self.stream, parts=self.parts, window=self.window, clocks=clocks, **figures
        )


class BatchFiles:
    """The files of the last batches."""

    def __init__(self, place: str) -> None:
        self._place = place

    def commit(self, session: "SparkSession", batch_id: int) -> Commit | None:
        """Return the commit of a batch, None where there is none."""
        rows = _existing(session, f"{self._place}/commit-{batch_id % _KEPT}", _COLUMNS)
        kept = [] if rows is None else rows.where(f"batch = {batch_id}").collect()
        if not kept:
            return None
        about = json.loads(kept[0]["content"])
        clocks = tuple((cluster, broker, at_ms) for cluster, broker, at_ms in about.pop("clocks"))
        return Commit(**about | {"window": tuple(about["window"]), "clocks": clocks})

    def keep(self, rows: "DataFrame", before: Commit) -> Commit:
        """Write the rows of the batch after a commit, and its own commit last.

        Raises:
            KafkaQuotasError: What executors wrote isn't there.
        """
        session, batch_id = rows.sparkSession, before.batch_id + 1
        writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "static").partitionBy("found")
        writer.parquet(f"{self._place}/batch-{batch_id % _KEPT}")
        written = self.found(session, SUMMARY, batch_id)
        summaries = [] if written is None else [bytes(row["content"]).decode() for row in written.collect()]
        if len(summaries) != before.parts:
            raise KafkaQuotasError(
                f"executors don't write to the {self._place} that this machine reads",
                hint="on a cluster --checkpoint and --out are URLs or on a file system that all machines share",
            )
        commit = before.after(batch_id, summaries)
        row = session.createDataFrame([(batch_id, json.dumps(asdict(commit)))], _COLUMNS)
        row.coalesce(1).write.mode("overwrite").parquet(f"{self._place}/commit-{batch_id % _KEPT}")
        return commit

    def state(self, session: "SparkSession", before: Commit) -> "DataFrame":
        """Return the state after a commit in the columns part, found and content, empty before any.

        Raises:
            KafkaQuotasError: The state isn't there.
        """
        if before.batch_id < 0:
            parts = session.range(before.parts)
            return parts.selectExpr("cast(id as int) part", f"'{STATE}' found", "cast('' as binary) content")
        rows = self.found(session, STATE, before.batch_id)
        if rows is None:
            raise KafkaQuotasError(f"{self._place} lacks the state of batch {before.batch_id}", hint=HINT)
        return rows.selectExpr("part", f"'{STATE}' found", "content")

    def found(self, session: "SparkSession", kind: str, batch_id: int) -> "DataFrame | None":
        """Return what a batch found of one kind in the columns part and content, None for nothing."""
        place = f"{self._place}/batch-{batch_id % _KEPT}/found={kind}"
        rows = _existing(session, place, FILE_COLUMNS.replace(" found string,", ""))
        return None if rows is None else rows.where(f"batch = {batch_id}").select("part", "content")


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
