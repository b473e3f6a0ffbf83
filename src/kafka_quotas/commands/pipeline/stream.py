"""Live usage and throttle state from a stream of events."""

import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.choice import LIBRARIES, require_libraries
from kafka_quotas.pipeline.engine.spark_session import spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.stream.source import Source, TopicSource, connector_packages
from kafka_quotas.pipeline.tables.lake import is_url, lake_url

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_quotas.pipeline.stream.job import BatchReport
    from kafka_quotas.pipeline.stream.sink import Sink

_BATCH_RECORDS: Final = 5_000_000
_BATCH_FILES: Final = 100
"""Largest batches unless the user says otherwise: executors hold some 30 bytes of an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """The stream, the quotas to measure it against, and its target."""

    source: Source
    target: str | TopicSource | None
    """Path or URL of a Delta table, or a topic, for the rows; None to show each batch."""
    checkpoint: str
    """Path or URL."""
    spark: SparkSettings
    quotas: Callable[[], Proposal]
    """Returns the quotas in force."""
    interval_s: float | None = None
    """Seconds between batches, None to process the events that are there and end."""
    batch_size: int | None = None
    """Largest batch, in records of a topic or files of a folder; None for what executors hold with ease."""
    lateness_ms: int = 10_000
    window: QuotaWindow = DEFAULT_WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWatcher:
    """Callbacks for batches, and the signal that ends the stream."""

    report: "Callable[[BatchReport], None]"
    """Called with the figures of each batch."""
    show: "Callable[[pa.Table, int], None]"
    """Called with the rows of the buckets nearest to their limits, and the number of all, where there is no target."""
    stop: threading.Event
    """Ends the stream once set."""


def stream(request: StreamRequest, watcher: StreamWatcher) -> None:
    """Run the stream until it has processed all there is, or until `watcher.stop` is set.

    Raises:
        KafkaQuotasError: Spark, the source or the target fails. The checkpoint then has the last position.
    """
    require_libraries(*LIBRARIES, "pyspark")
    from kafka_quotas.pipeline.stream.job import StreamPlan, run_stream  # noqa: PLC0415 - loads Arrow

    plan = StreamPlan(
        source=request.source,
        checkpoint=lake_url(request.checkpoint),
        interval_s=request.interval_s,
        batch_size=request.batch_size or _batch_size(request.source),
        quotas=request.quotas,
        lateness_ms=request.lateness_ms,
        window=request.window,
        log_file=request.spark.log_file,
        clock_ms=lambda: round(time.time() * 1000),
    )
    with _alone(request.checkpoint), spark_session(_spark(request)) as session:
        run_stream(session, plan, sink=_sink(request, watcher), report=watcher.report, stop=watcher.stop)


def _batch_size(source: Source) -> int:
    return _BATCH_RECORDS if isinstance(source, TopicSource) else _BATCH_FILES


def _spark(request: StreamRequest) -> SparkSettings:
    places = [place for place in (request.checkpoint, request.target) if isinstance(place, str)]
    settings = request.spark.for_place(*map(lake_url, places))
    if not isinstance(request.source, TopicSource):
        return settings
    return replace(settings, packages=connector_packages(settings.packages), reads_records=True)


def _sink(request: StreamRequest, watcher: StreamWatcher) -> "Sink":
    from kafka_quotas.pipeline.stream.sink import ShowSink, TableSink, TopicsSink  # noqa: PLC0415 - loads Arrow

    if isinstance(request.target, str):
        return TableSink(lake_url(request.target))
    return ShowSink(watcher.show) if request.target is None else TopicsSink(request.target)


@contextmanager
def _alone(place: str) -> Iterator[None]:
    """Lock the checkpoint against other streams for the block: Spark guards one at a URL by itself.

    Raises:
        KafkaQuotasError: Another stream uses the checkpoint, or it can't be written.
    """
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
