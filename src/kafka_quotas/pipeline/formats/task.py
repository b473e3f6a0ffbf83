"""One piece of an ingest: a file or a part of a large one, how to read it, and the rows it gives."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_quotas.core.formats.metric_names import MetricNames
from kafka_quotas.pipeline.formats.detect import InputFormat
from kafka_quotas.pipeline.formats.rows import (
    BadLineError,
    ClientThrottleRow,
    EventRow,
    MetricRow,
    QuarantineRow,
    shown_text,
)
from kafka_quotas.pipeline.formats.source_file import SourceFile

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestTask:
    """Lines of a file from `start` on and before `end`, with the settings to read them."""

    number: int
    """Number of the task within its ingest."""
    file_number: int
    """Number of the file within its ingest."""
    path: SourceFile
    input_format: InputFormat
    cluster: str
    broker_id: int | None
    zone: str | None
    """Time zone of timestamps without an offset."""
    names: MetricNames
    ts_ms: int
    """Time of a scrape that has none, in ms since 1970."""
    is_compiled: bool = False
    """Whether machine code scans the lines of a request log, and the line's parser reads only the odd ones."""
    start: int = 0
    """Offset from which on lines begin."""
    end: int | None = None
    """Offset before which lines begin, None for the end of the file."""
    large: "LargeLog | None" = None
    """What Spark has to know to read a large log at a URL line by line, None for every other file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeLog:
    """A log at a URL that is too large for the memory of one task."""

    unpacked: int
    """Size of the uncompressed log in bytes, of gzip modulo 2^32."""
    is_packed: bool
    """Whether the log is gzip, which is read from its beginning."""
    is_in_order: bool
    """Whether one task reads all lines in their order, since a line depends on those before it."""
    is_damaged: bool = False
    """Whether Spark could not read all of it, so that its lines count up to there."""
    first_split: "FirstSplit | None" = None
    """Where the new lines of a log begin that has grown, None where all lines are new or one task reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSplit:
    """The split of a grown log in which its new lines begin."""

    start: int
    """Offset of the split, or a lower bound of it where all its lines are new."""
    offset: int
    """Offset of its first line."""
    lines_before: int
    lines: int
    """Its lines, old and new, 0 where all are new."""


@dataclass(slots=True, kw_only=True)
class IngestCounts:
    """The number of lines, and of the rows and other results from them."""

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


@dataclass(slots=True, kw_only=True)
class TaskCounts(IngestCounts):
    """The counts of one task."""

    number: int
    read_to: int = 0
    """End offset of the last line processed."""


@dataclass(slots=True, kw_only=True)
class ParsedBatch:
    """Parsed rows that wait for their consumer, and the counts of the whole task so far."""

    counts: TaskCounts
    events: list[EventRow] = field(default_factory=list)
    event_batches: list["pa.RecordBatch"] = field(default_factory=list)
    """Further events, a column per field of their rows."""
    metrics: list[MetricRow] = field(default_factory=list)
    client_throttle: list[ClientThrottleRow] = field(default_factory=list)
    quarantine: list[QuarantineRow] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The number of rows."""
        rows: int = len(self.events) + sum(each.num_rows for each in self.event_batches)
        return rows + len(self.metrics) + len(self.client_throttle) + len(self.quarantine)

    def refuse(self, content: bytes, error: BadLineError, *, src_file: str, line_no: int) -> None:
        """Put a line into quarantine."""
        row = QuarantineRow(raw=shown_text(content), reason=str(error), src_file=src_file, line_no=line_no)
        self.quarantine.append(row)

    def counted(self) -> "ParsedBatch":
        """Add the rows to the counts and return this batch, once before its rows are consumed."""
        self.counts.events += len(self.events) + sum(each.num_rows for each in self.event_batches)
        self.counts.metrics += len(self.metrics)
        self.counts.client_throttle += len(self.client_throttle)
        self.counts.quarantined += len(self.quarantine)
        return self

    def clear(self) -> None:
        """Drop the rows and keep the counts."""
        for rows in (self.events, self.event_batches, self.metrics, self.client_throttle, self.quarantine):
            rows.clear()
