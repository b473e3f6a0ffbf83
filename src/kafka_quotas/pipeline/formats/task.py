"""One piece of the work of an ingest: a file, or a part of a large one, and what has to be known to read it."""

from dataclasses import dataclass
from pathlib import Path

from kafka_quotas.core.formats.metric_names import MetricNames
from kafka_quotas.pipeline.formats.detect import FileForm


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestTask:
    """Lines that begin from `start` on and before `end` (None: to the end) of a file.

    `number` counts the tasks of one ingest, `file_number` the files. `zone` is the time zone of stamps without an
    offset, `ts_ms` the time of a scrape that tells none itself.
    """

    number: int
    file_number: int
    path: Path
    form: FileForm
    cluster: str
    broker_id: int | None
    zone: str | None
    names: MetricNames
    ts_ms: int
    start: int = 0
    end: int | None = None


@dataclass(slots=True, kw_only=True)
class TaskCounts:
    """What became of the lines of a task; `read_to` is the offset behind the last line that is done with."""

    number: int
    lines: int = 0
    blank: int = 0
    forwarded: int = 0
    unused: int = 0
    events: int = 0
    metrics: int = 0
    client_throttle: int = 0
    quarantined: int = 0
    read_to: int = 0
