"""The output of a task: rows by table, and the counts."""

from dataclasses import dataclass, field

from kafka_quotas.pipeline.formats.rows import BadLineError, ClientThrottleRow, EventRow, MetricRow, QuarantineRow
from kafka_quotas.pipeline.formats.task import TaskCounts

_SHOWN_LETTERS = 4096


@dataclass(slots=True, kw_only=True)
class ParsedBatch:
    """Parsed rows that wait for their consumer, and the counts of the whole task so far."""

    counts: TaskCounts
    events: list[EventRow] = field(default_factory=list)
    metrics: list[MetricRow] = field(default_factory=list)
    client_throttle: list[ClientThrottleRow] = field(default_factory=list)
    quarantine: list[QuarantineRow] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.events) + len(self.metrics) + len(self.client_throttle) + len(self.quarantine)

    def refuse(self, content: bytes, error: BadLineError, *, src_file: str, line_no: int) -> None:
        """Put a line into quarantine."""
        raw = content[: 4 * _SHOWN_LETTERS].decode("utf-8", "backslashreplace")[:_SHOWN_LETTERS]
        self.quarantine.append(QuarantineRow(raw=raw, reason=str(error), src_file=src_file, line_no=line_no))

    def counted(self) -> "ParsedBatch":
        """Add the rows to the counts and return this batch, once before its rows are consumed."""
        self.counts.events += len(self.events)
        self.counts.metrics += len(self.metrics)
        self.counts.client_throttle += len(self.client_throttle)
        self.counts.quarantined += len(self.quarantine)
        return self

    def clear(self) -> None:
        """Drop the rows and keep the counts."""
        for rows in (self.events, self.metrics, self.client_throttle, self.quarantine):
            rows.clear()
