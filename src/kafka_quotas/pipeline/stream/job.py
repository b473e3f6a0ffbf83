"""The running stream: Spark's query, and the work on each of its batches.

Order within a batch: executors reckon it and write its files, its commit is written, its rows go to their target, then
Spark marks it done. A batch that Spark runs again after a crash is reckoned again if its commit is missing; else its
rows go to the target from the files.

A Spark Connect server calls the function of a stream in a process of its own, which has nothing of this package. That
process and the command share a session: the function makes the batch a view of it, and waits until the command has
processed the view. A function that sees no sign of life of the command fails, and ends the query with it.
"""

import fcntl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.job import is_connect, run_watched
from kafka_quotas.pipeline.engine.spark_session import spark_errors, spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.stream.batch_files import HINT, LIVE_ROWS, SET_ASIDE, BatchFiles, BatchPlan, Commit, moved_on
from kafka_quotas.pipeline.stream.lines import UNREADABLE, read_lines, read_loose, read_packed
from kafka_quotas.pipeline.stream.sink import ShowSink, Sink, TableSink, TopicsSink
from kafka_quotas.pipeline.stream.source import FolderSource, Source, TopicSource, connector_packages, read_stream
from kafka_quotas.pipeline.tables.lake import hadoop_url, is_url, lake_url

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
    """Start a stream, again for as long as the server is too slow to start the process for its function.

    Raises:
        KafkaQuotasError: It is too slow for longer than `patience_s` seconds, or until `stop` is set.
    """
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
_STATE: Final = "kafka-quotas-state"
_UNREADABLE: Final = "kafka-quotas-unreadable"
_POLL_S: Final = 0.2
_LOST: Final = "failOnDataLoss"
"""What Spark names where offsets are gone from a topic."""
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The figures of one batch."""

    batch_id: int
    events: int
    """Events that could be read, late ones included."""
    late: int
    """Events that came too late for the state."""
    unreadable: int
    """Lines that are no events, and events from the future."""
    buckets: int
    """Buckets with events in the batch."""
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """The source, pace, rules, checkpoint and target of a stream."""

    source: Source
    target: str | TopicSource | None
    """Path or URL of a Delta table, or a topic, for the rows; None to show each batch."""
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

    @property
    def checkpoint_url(self) -> str:
        """The place of the checkpoint, as `lake_url` returns it."""
        return lake_url(self.checkpoint)

    def settings(self) -> SparkSettings:
        """Return the settings of Spark with the packages that source, checkpoint and target need."""
        places = [place for place in (self.checkpoint, self.target) if isinstance(place, str)]
        settings = self.spark.for_place(*map(lake_url, places))
        if not isinstance(self.source, TopicSource):
            return settings
        return replace(settings, packages=connector_packages(settings.packages), reads_records=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWatcher:
    """Callbacks for batches, and the signal that ends the stream."""

    report: Callable[[BatchReport], None]
    """Called with the figures of each batch."""
    show: Callable[[pa.Table, int], None]
    """Called with the rows of the buckets nearest to their limits, and the number of all, if there is no target."""
    stop: threading.Event
    """Ends the stream once set."""


def stream(plan: StreamPlan, watcher: StreamWatcher) -> None:
    """Run the stream until all is processed (`interval_s` None), or until `watcher.stop` is set.

    Raises:
        KafkaQuotasError: Spark, the source or the target fails, or another stream uses the checkpoint. The checkpoint
            is as before the last batch.
    """
    with _alone(plan.checkpoint), spark_session(plan.settings()) as session:
        _run(session, plan, watcher)


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


def _run(session: "SparkSession", plan: StreamPlan, watcher: StreamWatcher) -> None:
    batches, stop = _Batches(plan, watcher), watcher.stop
    offered = OfferedBatches(session, batches.take) if is_connect(session) else None
    most = _BATCH_RECORDS if isinstance(plan.source, TopicSource) else _BATCH_FILES
    with spark_errors(f"streaming from {plan.source}", log_file=plan.spark.log_file):
        frame = read_stream(session, plan.source, batch_size=plan.batch_size or most)
        writer = frame.writeStream.foreachBatch(offering() if offered else batches.take)
        writer = writer.option("checkpointLocation", hadoop_url(plan.checkpoint_url))
        trigger = (
            writer.trigger(availableNow=True)
            if plan.interval_s is None
            else writer.trigger(processingTime=f"{round(plan.interval_s * 1000)} milliseconds")
        )
        query = start_again(trigger.start, stop) if offered else trigger.start()
        try:
            while query.isActive and not stop.wait(_POLL_S):
                if offered:
                    offered.poll()
        finally:
            query.stop()
        if (failure := query.exception()) is not None and batches.failure is None:
            raise _lost(plan.source) if _LOST in str(failure) else failure
    if batches.failure is not None:
        raise batches.failure


def _lost(source: Source) -> KafkaQuotasError:
    return KafkaQuotasError(
        f"records of {source} were deleted before they were read",
        hint="--allow-data-loss continues without them; a longer retention keeps them",
    )


def _sink(target: str | TopicSource | None, watcher: StreamWatcher) -> Sink:
    if isinstance(target, str):
        return TableSink(lake_url(target))
    return ShowSink(watcher.show) if target is None else TopicsSink(target)


class _Batches:
    """Processes the batches of one stream in order."""

    def __init__(self, plan: StreamPlan, watcher: StreamWatcher) -> None:
        self._plan = plan
        self._files = BatchFiles(hadoop_url(f"{plan.checkpoint_url}/{_STATE}"))
        self._unreadable = TableSink(f"{plan.checkpoint_url}/{_UNREADABLE}", UNREADABLE)
        self._sink = _sink(plan.target, watcher)
        self._report = watcher.report
        self._last: Commit | None = None
        self.failure: KafkaQuotasError | None = None

    def take(self, frame: "DataFrame", batch_id: int) -> None:
        """Process one batch, except for Spark's own checkpoint."""
        started_s = time.monotonic()
        try:
            commit = self._committed(frame, batch_id)
        except KafkaQuotasError as error:
            self.failure = error  # Spark would wrap it in Java's words
            raise
        targets = ((SET_ASIDE, self._unreadable, commit.unreadable), (LIVE_ROWS, self._sink, commit.buckets))
        for kind, sink, rows_found in targets:
            rows = self._files.found(frame.sparkSession, kind, commit) if rows_found else None
            if rows is not None:
                sink.write(rows, commit)
        self._last = commit
        self._report(
            BatchReport(
                batch_id=batch_id,
                events=commit.events,
                late=commit.late,
                unreadable=commit.unreadable,
                buckets=commit.buckets,
                elapsed_s=time.monotonic() - started_s,
            )
        )

    def _committed(self, frame: "DataFrame", batch_id: int) -> Commit:
        """Return the commit of a batch, which is reckoned and written unless that was done before a crash."""
        session, before = frame.sparkSession, self._last
        if before is None:
            commit = self._files.commit(session, batch_id)
            if commit is not None:
                return commit
            before = self._before(session, batch_id)
        plan = self._plan
        tasks = BatchPlan(
            batch_id=batch_id,
            parts=before.parts,
            quotas=plan.quotas(),
            window=plan.window,
            horizons_ms={(cluster, broker): at_ms - plan.lateness_ms for cluster, broker, at_ms in before.clocks},
            now_ms=round(time.time() * 1000),
        )
        read = read_lines
        if isinstance(plan.source, FolderSource) and plan.source.is_parquet:
            read = read_packed if plan.source.is_delta else read_loose
        return self._files.keep(moved_on(frame, self._files.state(session, before), read, tasks), before)

    def _before(self, session: "SparkSession", batch_id: int) -> Commit:
        """Return the commit before a batch, one without any events before the first.

        Raises:
            KafkaQuotasError: It isn't there, or was made with another quota window.
        """
        window = (self._plan.window.samples, self._plan.window.window_s)
        if batch_id == 0:
            parts = int(session.conf.get(_SHUFFLE_PARTITIONS) or 1)
            return Commit(batch_id=-1, stream=uuid.uuid4().hex, parts=parts, window=window)
        before = self._files.commit(session, batch_id - 1)
        if before is None:
            raise KafkaQuotasError(f"{self._plan.checkpoint_url} lacks the state of batch {batch_id - 1}", hint=HINT)
        if before.window != window:
            raise KafkaQuotasError(f"{self._plan.checkpoint_url} has the state of another quota window", hint=HINT)
        return before
