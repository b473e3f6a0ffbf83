"""One piece of the work of an ingest: a file or a part of a large one, and how to read it."""

from dataclasses import dataclass
from pathlib import Path

from kafka_quotas.core.formats.metric_names import MetricNames
from kafka_quotas.pipeline.formats.detect import FileForm


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestTask:
    """Lines of a file from `start` on and before `end`, with the settings to read them."""

    number: int
    """Number of the task within its ingest."""
    file_number: int
    """Number of the file within its ingest."""
    path: Path
    form: FileForm
    cluster: str
    broker_id: int | None
    zone: str | None
    """Time zone of stamps without an offset."""
    names: MetricNames
    ts_ms: int
    """Time of a scrape that has none, in ms since 1970."""
    start: int = 0
    """Offset from which on lines begin."""
    end: int | None = None
    """Offset before which lines begin, None for the end of the file."""


@dataclass(slots=True, kw_only=True)
class TaskCounts:
    """The number of a task's lines and rows by result."""

    number: int
    lines: int = 0
    blank: int = 0
    forwarded: int = 0
    """Forwarded requests, which the forwarding broker logs as well."""
    unused: int = 0
    """Figures about other things than quotas."""
    events: int = 0
    metrics: int = 0
    client_throttle: int = 0
    quarantined: int = 0
    read_to: int = 0
    """End offset of the last line processed."""
