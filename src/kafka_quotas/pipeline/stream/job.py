"""The running stream: Spark's query, and the work on each of its batches.

Order within a batch: load the state before it, write its rows, save its state, then Spark marks it done. After a crash
at any point Spark runs the batch again, from the same state, to the same rows.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.engine.spark_session import spark_errors
from kafka_quotas.pipeline.stream.clock_guard import taken_ms, without_future
from kafka_quotas.pipeline.stream.lines import RAW, REASON, charges_of_lines, files_of_events, read_charges
from kafka_quotas.pipeline.stream.sink import Sink, replace_batch
from kafka_quotas.pipeline.stream.source import FolderSource, Source, read_stream
from kafka_quotas.pipeline.stream.state import LiveState
from kafka_quotas.pipeline.tables.arrow import compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STATE: Final = "kafka-quotas-state"
_UNREADABLE: Final = "kafka-quotas-unreadable"
_POLL_S: Final = 0.2
_LOST: Final = "failOnDataLoss"
"""What Spark names where offsets are gone from a topic."""


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
    """The source, pace and checkpoint of a stream."""

    source: Source
    checkpoint: Path
    interval_s: float | None
    """Seconds between batches, None to process the events that are there and end."""
    batch_size: int
    """Largest batch, in records of a topic or files of a folder."""
    log_file: Path
    """Spark's log file."""
    clock_ms: Callable[[], int]
    """Returns the time in ms since 1970."""


def run_stream(
    session: "SparkSession",
    plan: StreamPlan,
    *,
    state: LiveState,
    sink: Sink,
    report: Callable[[BatchReport], None],
    stop: threading.Event,
) -> None:
    """Run the stream until it has processed all there is (`interval_s` None) or `stop` is set.

    Raises:
        KafkaQuotasError: A batch failed. The checkpoint is as before it.
    """
    batches = _Batches(plan, state=state, sink=sink, report=report)
    stream = read_stream(session, plan.source, batch_size=plan.batch_size)
    rows = files_of_events(stream) if batches.reads_files else charges_of_lines(stream)
    writer = rows.writeStream.foreachBatch(batches.take)
    writer = writer.option("checkpointLocation", plan.checkpoint.absolute().as_uri())
    trigger = (
        writer.trigger(availableNow=True)
        if plan.interval_s is None
        else writer.trigger(processingTime=f"{round(plan.interval_s * 1000)} milliseconds")
    )
    try:
        with spark_errors(f"streaming from {plan.source}", log_file=plan.log_file):
            query = trigger.start()
            try:
                while query.isActive and not stop.wait(_POLL_S):
                    pass
            finally:
                query.stop()
            if (failure := query.exception()) is not None and batches.failure is None:
                raise _lost(plan.source) if _LOST in str(failure) else failure
    finally:
        sink.close()
    if batches.failure is not None:
        raise batches.failure


def _lost(source: Source) -> KafkaQuotasError:
    return KafkaQuotasError(
        f"records of {source} were deleted before they were read",
        hint="--allow-data-loss continues without them; a longer retention keeps them",
    )


class _Batches:
    """Processes the batches of one stream in order."""

    def __init__(
        self, plan: StreamPlan, *, state: LiveState, sink: Sink, report: Callable[[BatchReport], None]
    ) -> None:
        self.reads_files = isinstance(plan.source, FolderSource) and plan.source.is_parquet
        self._folder = plan.checkpoint / _STATE
        self._unreadable = plan.checkpoint / _UNREADABLE
        self._state = state
        self._sink = sink
        self._report = report
        self._clock_ms = plan.clock_ms
        self._done: int | None = None
        self.failure: KafkaQuotasError | None = None

    def take(self, frame: "DataFrame", batch_id: int) -> None:
        """Process one batch, except for Spark's own checkpoint."""
        try:
            if self.reads_files:
                self._take(read_charges(row["file"] for row in frame.coalesce(1).distinct().collect()), None, batch_id)
            else:
                rows = frame.toArrow()
                unreadable = rows.filter(pc.is_valid(rows[REASON])).select([RAW, REASON])
                self._take(rows.filter(pc.is_null(rows[REASON])).drop_columns([RAW, REASON]), unreadable, batch_id)
        except KafkaQuotasError as error:
            self.failure = error  # Spark would wrap it in Java's words
            raise
        except OSError as error:
            self.failure = KafkaQuotasError(
                f"cannot keep batch {batch_id}: {error.strerror or error}",
                hint="it will be run again; is there room on the disk?",
            )
            raise self.failure from error

    def _take(self, found: pa.Table, unreadable: pa.Table | None, batch_id: int) -> None:
        started_s = time.monotonic()
        readable, refused = without_future(found, taken_ms(self._folder, batch_id, self._clock_ms))
        set_aside = refused if unreadable is None else pa.concat_tables([unreadable, refused])
        if self._done is None:
            self._state.load(self._folder, before=batch_id)
        live = self._state.take(readable, batch_id=batch_id)
        if set_aside.num_rows:
            replace_batch(self._unreadable, set_aside, batch_id=batch_id)
        if live.num_rows:
            self._sink.write(live, batch_id=batch_id)
        self._state.save(self._folder, batch_id=batch_id)
        self._done = batch_id
        self._report(
            BatchReport(
                batch_id=batch_id,
                events=readable.num_rows,
                late=pc.sum(live["late_events"]).as_py() or 0,
                unreadable=set_aside.num_rows,
                buckets=live.num_rows,
                elapsed_s=time.monotonic() - started_s,
            )
        )
