"""The running stream: Spark's query, and the work on each of its batches.

Order within a batch: executors compute it, Delta keeps it, its rows go to their target and its events to a data folder,
then Spark marks it done. A batch that Spark runs again after a crash is computed again unless Delta has it.

A Spark Connect server calls the function of a stream in a process of its own, which has nothing of this package. That
process and the command share a session: the function makes the batch a view of it, and waits until the command has
processed the view. A function that sees no sign of life of the command fails, and ends the query with it.
"""

import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.spark_session import spark_errors, spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings, name_object_store
from kafka_quotas.pipeline.engine.spark_tasks import is_connect, run_watched
from kafka_quotas.pipeline.stream.batch import (
    HINT,
    LIVE_ROWS,
    SET_ASIDE,
    Batch,
    BatchPlan,
    BatchTable,
    add_events,
    nearest,
    send_rows,
    write_table,
)
from kafka_quotas.pipeline.stream.lines import UNREADABLE, read_lines, read_packed
from kafka_quotas.pipeline.stream.source import FolderSource, Source, TopicSource, read_stream
from kafka_quotas.pipeline.tables.lake import Lake, hadoop_url, is_url, lake_url
from kafka_quotas.pipeline.tables.schemas import LIVE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TakeBatch = Callable[["DataFrame", int], None]

VIEW: Final = "kafka_quotas_batch"
"""Name of the view of a batch."""
OFFERED, TAKEN, SIGN = "kafka-quotas.offered", "kafka-quotas.taken", "kafka-quotas.sign"
"""Properties of the session: the batch in the view, the batch that is processed, and what changes while it is."""
_SILENCE_S: Final = 120.0
"""How long a command may be silent, on a machine that is busy."""
_HANDOVER_POLL_S: Final = 0.1
_PATIENCE_S: Final = 600.0
"""How long a server may be too busy to start Python."""
_LATE: Final = ("Python worker failed to connect back", "waiting for the Python worker to connect back")
"""What a server says whose Python needs more than ten seconds to load PySpark, a time that no setting changes."""


def offering(silence_s: float = _SILENCE_S) -> TakeBatch:
    """Return the function that a server calls for each batch.

    It fails with a `TimeoutError` once the command is silent for longer than `silence_s` seconds.
    """

    def offer(frame: "DataFrame", batch_id: int) -> None:  # inside, so that it is sent with all that it needs
        session = frame.sparkSession
        frame.createOrReplaceTempView(VIEW)
        session.conf.set(OFFERED, str(batch_id))
        seen, seen_s = None, time.monotonic()
        while session.conf.get(TAKEN, None) != str(batch_id):
            sign, now_s = session.conf.get(SIGN, None), time.monotonic()
            if sign != seen:
                seen, seen_s = sign, now_s
            elif now_s - seen_s > silence_s:
                raise TimeoutError("the command that started the stream is gone")
            time.sleep(_HANDOVER_POLL_S)

    return offer


def start_again(
    start: "Callable[[], StreamingQuery]", stop: threading.Event, patience_s: float = _PATIENCE_S
) -> "StreamingQuery":
    """Start a stream, again for as long as the server is too slow to start the process for its function."""
    begun_s = time.monotonic()
    while True:
        try:
            return start()
        except Exception as error:  # gRPC's and Spark's own, of many classes
            if not any(late in str(error) for late in _LATE):
                raise
            if stop.is_set() or time.monotonic() - begun_s > patience_s:
                raise KafkaQuotasError(
                    "the Connect server was too busy to start Python, which Spark gives ten seconds",
                    hint="start the stream again when the server's machine has less to do",
                ) from error


class OfferedBatches:
    """Processes the batches that a server offers in a session."""

    def __init__(self, session: "SparkSession", take: TakeBatch) -> None:
        self._session = session
        self._take = take
        self._signs = count()
        self._taken: str | None = None

    def poll(self) -> None:
        """Give a sign of life, and process the batch that is offered, if there is a new one."""
        self._sign()
        offered = self._session.conf.get(OFFERED, None)
        if offered is None or offered == self._taken:
            return
        process = partial(self._take, self._session.table(VIEW), int(offered))
        run_watched(self._session, process, stage="stream", watch=lambda _: self._sign())
        self._session.conf.set(TAKEN, offered)
        self._taken = offered

    def _sign(self) -> None:
        self._session.conf.set(SIGN, str(next(self._signs)))


_BATCH_RECORDS: Final = 5_000_000
_BATCH_FILES: Final = 100
"""Largest batches unless the user says otherwise: executors hold some 30 bytes of an event."""
_CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_STATE: Final = "kafka-quotas-state"
_UNREADABLE: Final = "kafka-quotas-unreadable"
_POLL_S: Final = 0.2
_LOST: Final = "failOnDataLoss"
"""What Spark names where offsets are gone from a topic."""
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """The source, pace, rules, checkpoint and target of a stream, and its callbacks."""

    source: Source
    target: str | TopicSource | None
    """Path or URL of a Delta table, or a topic, for the rows; None to show each batch."""
    data: str | None = None
    """Path or URL of a data folder to which the events are added, None for none."""
    checkpoint: str
    """Path or URL."""
    spark: SparkSettings
    quotas: Callable[[], Proposal]
    """Returns the quotas in force, asked for each batch."""
    interval_s: float | None = None
    """Seconds between batches, None to process the events that are there and end."""
    batch_size: int | None = None
    """Largest batch, in records of a topic or files of a folder; None for what executors hold with ease."""
    lateness_ms: int = 10_000
    window: QuotaWindow = DEFAULT_WINDOW
    report: Callable[[Batch, float], None]
    """Called with the figures of each batch, and the seconds that it took."""
    show: Callable[[pa.Table, int], None]
    """Called with the rows of the buckets nearest to their limits, and the number of all, if there is no target."""
    stop: threading.Event
    """Ends the stream once set."""

    @property
    def checkpoint_url(self) -> str:
        """The place of the checkpoint, as `lake_url` returns it."""
        return lake_url(self.checkpoint)

    def settings(self) -> SparkSettings:
        """Return the settings of Spark with the packages that source, checkpoint and targets need."""
        places = [place for place in (self.checkpoint, self.target, self.data) if isinstance(place, str)]
        settings = self.spark.for_place(*map(lake_url, places))
        if not isinstance(self.source, TopicSource):
            return settings
        return settings.with_packages(f"{_CONNECTOR}:{version('pyspark')}")


def stream(plan: StreamPlan) -> None:
    """Run the stream until all is processed (`interval_s` None), or until `plan.stop` is set.

    Raises:
        UsageError: The events for a data folder are in a table already.
        KafkaQuotasError: Spark, the source or the target fails, or another stream uses the checkpoint. The checkpoint
            is as before the last batch.
    """
    lake = None if plan.data is None else Lake.of(plan.data)
    if lake is not None:
        if isinstance(plan.source, FolderSource) and plan.source.is_delta:
            raise UsageError(f"the events of {plan.source} are in a table already", hint="--event-log takes lines")
        name_object_store(plan.spark, lake.url)
        lake.create()
    with _alone(plan.checkpoint), spark_session(plan.settings()) as session:
        batches = _Batches(plan, lake)
        offered = OfferedBatches(session, batches.take) if is_connect(session) else None
        with spark_errors(f"streaming from {plan.source}", log_file=plan.spark.log_file):
            query = _started(session, plan, offering() if offered else batches.take)
            try:
                while query.isActive and not plan.stop.wait(_POLL_S):
                    if offered:
                        offered.poll()
            finally:
                query.stop()
            if (failure := query.exception()) is not None and batches.failure is None:
                if _LOST not in str(failure):
                    raise failure
                raise KafkaQuotasError(
                    f"records of {plan.source} were deleted before they were read",
                    hint="--allow-data-loss continues without them; a longer retention keeps them",
                )
    if batches.failure is not None:
        raise batches.failure


@contextmanager
def _alone(place: str) -> Iterator[None]:
    """Lock the checkpoint against other streams for the block: Spark guards one at a URL by itself."""
    if is_url(place):
        yield
        return
    checkpoint = Path(lake_url(place))
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        with (checkpoint / ".kafka-quotas-lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise KafkaQuotasError(
                    f"another stream uses {checkpoint}", hint="each stream needs a --checkpoint of its own"
                ) from error
            yield
    except OSError as error:
        raise KafkaQuotasError(f"cannot write {checkpoint}: {error.strerror or error}") from error


def _started(session: "SparkSession", plan: StreamPlan, take: TakeBatch) -> "StreamingQuery":
    most = _BATCH_RECORDS if isinstance(plan.source, TopicSource) else _BATCH_FILES
    lines = read_stream(session, plan.source, batch_size=plan.batch_size or most, has_places=plan.data is not None)
    writer = lines.writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", hadoop_url(plan.checkpoint_url))
    if plan.interval_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(plan.interval_s * 1000)} milliseconds")
    return start_again(writer.start, plan.stop) if is_connect(session) else writer.start()


class _Batches:
    """Processes the batches of one stream in order."""

    def __init__(self, plan: StreamPlan, lake: Lake | None) -> None:
        self._plan = plan
        self._lake = lake
        self._table: BatchTable | None = None
        self._last: Batch | None = None
        self.failure: KafkaQuotasError | None = None

    def take(self, frame: "DataFrame", batch_id: int) -> None:
        """Process one batch, except for Spark's own checkpoint."""
        started_s = time.monotonic()
        if self._table is None:
            self._table = BatchTable(frame.sparkSession, f"{self._plan.checkpoint_url}/{_STATE}")
            self._last = self._table.last()
        try:
            batch = self._kept(self._table, frame, batch_id)
        except KafkaQuotasError as error:
            self.failure = error  # Spark would wrap it in Java's words
            raise
        self._pass_on(self._table, batch)
        if self._lake is not None:
            add_events(self._lake, frame, batch)
        self._last = batch
        self._plan.report(batch, time.monotonic() - started_s)

    def _pass_on(self, table: BatchTable, batch: Batch) -> None:
        """Give what a batch found to the stream's target, once even if the batch comes again."""
        if batch.unreadable:
            refused = table.rows(SET_ASIDE).select(*UNREADABLE.names)
            write_table(refused, f"{self._plan.checkpoint_url}/{_UNREADABLE}", batch)
        rows, target = table.rows(LIVE_ROWS), self._plan.target
        if not batch.buckets:
            return
        if isinstance(target, TopicSource):
            send_rows(rows, target, batch)
        elif target is not None:
            write_table(rows.select(*LIVE.column_names), lake_url(target), batch)
        else:
            self._plan.show(nearest(rows), batch.buckets)

    def _kept(self, table: BatchTable, frame: "DataFrame", batch_id: int) -> Batch:
        """Return a batch, which is computed and kept unless that was done before a crash."""
        plan, before = self._plan, self._last
        window = (plan.window.samples, plan.window.window_s)
        if before is not None and before.batch_id == batch_id:
            return before
        if batch_id == 0:
            before = None
        elif before is None or before.batch_id != batch_id - 1:
            raise KafkaQuotasError(f"{plan.checkpoint_url} lacks the state of batch {batch_id - 1}", hint=HINT)
        elif before.window != window:
            raise KafkaQuotasError(f"{plan.checkpoint_url} has the state of another quota window", hint=HINT)
        batch = Batch(
            batch_id=batch_id,
            stream=before.stream if before else uuid4().hex,
            parts=before.parts if before else int(frame.sparkSession.conf.get(_SHUFFLE_PARTITIONS) or 1),
            window=window,
            now_ms=round(time.time() * 1000),
            clocks=before.clocks if before else {},
        )
        tasks = BatchPlan(batch=batch, quotas=plan.quotas(), lateness_ms=plan.lateness_ms)
        if isinstance(plan.source, FolderSource) and plan.source.is_delta:
            return table.take(frame, read_packed, tasks)
        return table.take(frame.select("value"), read_lines, tasks)
