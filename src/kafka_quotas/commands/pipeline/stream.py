"""Live usage and throttle state from a stream of events."""

import fcntl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.choice import require_libraries
from kafka_quotas.pipeline.engine.spark_session import spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.stream.source import Source, TopicSource, connector_packages
from kafka_quotas.stores.files.atomic_write import replace_text

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_quotas.pipeline.stream.job import BatchReport
    from kafka_quotas.pipeline.stream.sink import Sink

_IDENTITY: Final = ".kafka-quotas-id"
_BATCH_RECORDS: Final = 1_000_000
_BATCH_FILES: Final = 100
"""Largest batches unless the user says otherwise: about 100 bytes of an event come to this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """The stream, the quotas to measure it against, and its target."""

    source: Source
    target: Path | TopicSource | None
    """Folder or topic for the rows, None to show each batch."""
    checkpoint: Path
    spark: SparkSettings
    quotas: Proposal
    """Quotas in force."""
    interval_s: float | None = None
    """Seconds between batches, None to process the events that are there and end."""
    batch_size: int | None = None
    """Largest batch, in records of a topic or files of a folder; None for what this process holds with ease."""
    lateness_ms: int = 10_000
    window: QuotaWindow = DEFAULT_WINDOW

    def __post_init__(self) -> None:
        if self.spark.is_connect:
            raise UsageError(
                "a stream keeps its state in this process, which a Spark Connect server can't reach",
                hint="--master local[*] or spark://HOST:PORT",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWatcher:
    """Callbacks for batches, and the signal that ends the stream."""

    report: "Callable[[BatchReport], None]"
    """Called with the figures of each batch."""
    show: "Callable[[pa.Table], None]"
    """Called with the rows of each batch where there is no target."""
    stop: threading.Event
    """Ends the stream once set."""


def stream(request: StreamRequest, watcher: StreamWatcher) -> None:
    """Run the stream until it has processed all there is, or until `watcher.stop` is set.

    Raises:
        KafkaQuotasError: Spark, the source or the target fails. The checkpoint then has the last position.
    """
    require_libraries("pyspark", "pyarrow", "orjson")
    from kafka_quotas.pipeline.stream.job import StreamPlan, run_stream  # noqa: PLC0415 - loads Arrow
    from kafka_quotas.pipeline.stream.state import LiveState  # noqa: PLC0415

    state = LiveState(request.quotas, lateness_ms=request.lateness_ms, window=request.window)
    plan = StreamPlan(
        source=request.source,
        checkpoint=request.checkpoint.absolute(),
        interval_s=request.interval_s,
        batch_size=request.batch_size or _batch_size(request.source),
        log_file=request.spark.log_file,
        clock_ms=lambda: round(time.time() * 1000),
    )
    with _alone(request.checkpoint), spark_session(_spark(request)) as session:
        run_stream(session, plan, state=state, sink=_sink(request, watcher), report=watcher.report, stop=watcher.stop)


def _batch_size(source: Source) -> int:
    return _BATCH_RECORDS if isinstance(source, TopicSource) else _BATCH_FILES


def _spark(request: StreamRequest) -> SparkSettings:
    if not isinstance(request.source, TopicSource):
        return request.spark
    return replace(request.spark, packages=connector_packages(request.spark.packages))


def _sink(request: StreamRequest, watcher: StreamWatcher) -> "Sink":
    from kafka_quotas.pipeline.stream.sink import FolderSink, ShowSink, TopicSink  # noqa: PLC0415 - loads Arrow

    if isinstance(request.target, Path):
        return FolderSink(request.target)
    if isinstance(request.target, TopicSource):
        return TopicSink(request.target, name=f"kafka-quotas-stream-{_identity(request.checkpoint)}")
    return ShowSink(watcher.show)


def _identity(checkpoint: Path) -> str:
    """Return the identity of this checkpoint, which a new one in the same place does not share."""
    path = checkpoint / _IDENTITY
    try:
        if not path.exists():
            replace_text(path, [uuid.uuid4().hex])
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise KafkaQuotasError(f"cannot write {checkpoint}: {error.strerror or error}") from error


@contextmanager
def _alone(checkpoint: Path) -> Iterator[None]:
    """Lock the checkpoint against other streams for the block.

    Raises:
        KafkaQuotasError: Another stream uses the checkpoint, or it can't be written.
    """
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
