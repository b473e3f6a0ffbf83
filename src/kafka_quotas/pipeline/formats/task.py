"""One piece of an ingest: a file or a part of a large one, its format, how to read it, and the rows it gives.

Rows of events have their fields in the order of the declared columns.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka_quotas.core.formats.metric_names import MetricNames
from kafka_quotas.pipeline.formats.lines import SourceFile, file_size

if TYPE_CHECKING:
    import pyarrow as pa

REQUEST_MARK: Final = b"Completed request:"
"""The text before the JSON in every line of a request log."""
SNIFFED_BYTES: Final = 64 * 1024
"""First bytes of a file that decide its format."""


class InputFormat(StrEnum):
    """The format of a file.

    The first three are read line by line and may grow, the others are whole documents.
    """

    REQUEST_LOG = "request-log"
    DAEMON_EVENTS = "daemon-events"
    LIBRDKAFKA_STATS = "librdkafka-stats"
    PROMETHEUS = "prometheus"
    JSON_METRICS = "json-metrics"
    JAVA_CLIENT = "java-client"
    LOAD_TEST = "load-test"

    @property
    def grows(self) -> bool:
        """Whether writers append lines to such a file, and lines once read need not be read again."""
        return self in (InputFormat.REQUEST_LOG, InputFormat.DAEMON_EVENTS, InputFormat.LIBRDKAFKA_STATS)


_SIGNS: Final = (
    (InputFormat.LOAD_TEST, re.compile(rb'\APAR1|\A\s*\{\s*"schema":\s*"kafka-quotas\.load-test/')),
    (InputFormat.REQUEST_LOG, re.compile(re.escape(REQUEST_MARK))),
    (InputFormat.DAEMON_EVENTS, re.compile(rb'^\s*\{"v":', re.MULTILINE)),
    (InputFormat.LIBRDKAFKA_STATS, re.compile(rb'^\s*\{.*"client_id".*"brokers"\s*:', re.MULTILINE)),
    (InputFormat.JAVA_CLIENT, re.compile(rb"^[\w-]+-metrics:[\w.-]+:\{.*\}\s*:", re.MULTILINE)),
    (InputFormat.JSON_METRICS, re.compile(rb"\A\s*(?:\{\s*\"|\[\s*\{)")),
    (
        InputFormat.PROMETHEUS,
        re.compile(rb"^(# (HELP|TYPE) \w|[a-zA-Z_:][\w:]*(\{.*\})?\s+([-+]?[\d.]|NaN|[-+]?Inf))", re.MULTILINE),
    ),
)


def detect_format(head: bytes) -> InputFormat | None:
    """Detect the format of a file by its first bytes, None for an unknown one."""
    return next((form for form, sign in _SIGNS if sign.search(head)), None)


class BadLineError(Exception):
    """The reason why a line can't be read, in words for the quarantine.

    The reader adds where the line is.
    """


AMOUNT_LIMIT = 2**62
"""Upper bound of figures: no broker counts that far, and columns could not hold sums of larger ones."""


_SHOWN_LETTERS = 4096
LAST_MS = 253_402_300_799_999
"""The end of the year 9999: later times have no date."""


class EventRow(NamedTuple):
    """A row of events, whose day follows from `ts_ms`."""

    cluster: str
    broker_id: int
    ts_ms: int
    user: str
    client_id: str
    ip: str
    quota_type: str
    bytes: int
    thread_ms: float | None
    mutations: int
    throttle_ms: int
    api_key: int
    is_exempt: bool
    is_estimated: bool
    is_thread_estimated: bool
    connection: str
    src_file: str
    src_offset: int


Row = dict[str, Any]
"""A row of another table by the names of its columns."""


def shown_text(line: bytes) -> str:
    """Return the beginning of a line for the quarantine, with escapes for bytes that are no UTF-8."""
    return line[: 4 * _SHOWN_LETTERS].decode("utf-8", "backslashreplace")[:_SHOWN_LETTERS]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestTask:
    """Lines of a file from `start` on and before `end`, with the settings to read them."""

    number: int = 0
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
    """What Spark has to know to read a large log line by line, None for every other file."""

    @property
    def size(self) -> int:
        """The bytes of the task's part of its file, of a packed file's end about."""
        return max((file_size(self.path) if self.end is None else self.end) - self.start, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeLog:
    """A log that only Hadoop's file systems reach, too large for the memory of one task."""

    unpacked: int
    """Size of the uncompressed log in bytes, of gzip modulo 2^32."""
    is_packed: bool
    """Whether the log is gzip."""
    is_damaged: bool = False
    """Whether Spark could not read all of it, so that its lines count up to there."""


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
    """That of its file."""
    read_to: int = 0
    """End offset of the last line processed."""


@dataclass(slots=True, kw_only=True)
class ParsedBatch:
    """Parsed rows that wait for their consumer, and the counts of the whole task so far."""

    counts: TaskCounts
    events: list[EventRow] = field(default_factory=list)
    event_batches: list["pa.RecordBatch"] = field(default_factory=list)
    """Further events, a column per field of their rows."""
    metrics: list[Row] = field(default_factory=list)
    client_throttle: list[Row] = field(default_factory=list)
    quarantine: list[Row] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The number of rows."""
        rows: int = len(self.events) + sum(each.num_rows for each in self.event_batches)
        return rows + len(self.metrics) + len(self.client_throttle) + len(self.quarantine)

    def refuse(self, content: bytes, error: BadLineError, *, src_file: str, line_no: int) -> None:
        """Put a line into quarantine."""
        row = {"raw": shown_text(content), "reason": str(error), "src_file": src_file, "line_no": line_no}
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
