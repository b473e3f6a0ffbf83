"""The times when a replay throttled a bucket: from a first throttled event to the end of its delays.

Contract: one `HoldCollector` follows the limiters of one proposal and model through a whole task, batch by batch; rows
are the limiters'. Invariant: spans of one row neither overlap nor touch.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import INT_MAX
from kafka_quotas.core.quotas.simulation import RETRY_BACKOFF_MS
from kafka_quotas.pipeline.kernels.admission import STRICT
from kafka_quotas.pipeline.kernels.limiters import Limiters, Trace
from kafka_quotas.pipeline.kernels.order import events_by_row
from kafka_quotas.pipeline.kernels.ring import FAR_MS

Int64s = NDArray[np.int64]
_FIGURES: Final = ("start_ms", "end_ms", "events", "delay_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleSpans:
    """Throttled intervals of rows, in parallel arrays."""

    rows: Int64s
    start_ms: Int64s
    """Start in ms since 1970."""
    end_ms: Int64s
    """End in ms since 1970."""
    events: Int64s
    """Throttled events in the span."""
    delay_ms: Int64s
    """Longest delay of one of them, in ms."""

    def pick(self, places: NDArray[np.bool_] | Int64s) -> "ThrottleSpans":
        """Return the spans at these places."""
        return ThrottleSpans(rows=self.rows[places], **{name: getattr(self, name)[places] for name in _FIGURES})


def span_schema() -> pa.Schema:
    """Return the columns of a task's spans, where `proposal` is the proposal's number in the plan."""
    columns = [("bucket", pa.int64()), ("proposal", pa.int32()), ("model", pa.string())]
    return pa.schema([*columns, *((name, pa.int64()) for name in _FIGURES), ("reason", pa.string())])


class HoldCollector:
    """The spans of one proposal, which must be the only one of its limiters."""

    def __init__(self, limiters: Limiters) -> None:
        self._limiters = limiters
        self._free_ms = np.empty(0, dtype=np.int64)
        self._open = _NONE
        self._over: list[ThrottleSpans] = []

    def run(self, rows: NDArray[np.int32], times_ms: Int64s, values: NDArray[np.float64]) -> None:
        """Run the events as `Limiters.run` does, and record the spans of throttled ones."""
        rows, times_ms, values = events_by_row(rows, times_ms, values, row_count=len(self._limiters.bounds))
        trace = self._limiters.trace(rows, times_ms, values)
        end_ms = trace.happened_ms[:, 0] + self._waits_ms(trace)
        start_ms = self._starts_ms(rows, times_ms, end_ms)
        late = end_ms > start_ms
        self._add(rows[late].astype(np.int64), start_ms[late], end_ms[late])

    def spans(self) -> ThrottleSpans:
        """Return all spans, by row and time."""
        found = _joined([*self._over, self._open])
        return found.pick(np.lexsort((found.start_ms, found.rows)))

    def _waits_ms(self, trace: Trace) -> Int64s:
        """Return how long the client waits after the last attempt of each event, in ms."""
        rule = self._limiters.rule
        waits_ms = np.clip(trace.throttle_ms[:, 0], 0, INT_MAX)
        if not (rule.closed and rule.operation == STRICT):
            return waits_ms
        return np.where(trace.held[:, 0], waits_ms, np.maximum(waits_ms, RETRY_BACKOFF_MS))

    def _starts_ms(self, rows: NDArray[np.int32], times_ms: Int64s, end_ms: Int64s) -> Int64s:
        """Return the time of each event's first attempt.

        It is the recorded time or, in a closed loop, the end of the event before if that is later.
        """
        if not self._limiters.rule.closed or not rows.size:
            return times_ms
        grown = len(self._limiters.bounds) - self._free_ms.size
        self._free_ms = np.concatenate([self._free_ms, np.full(grown, -FAR_MS, dtype=np.int64)])
        is_first = np.concatenate([[True], rows[1:] != rows[:-1]])
        before_ms = np.where(is_first, self._free_ms[rows], np.concatenate([[0], end_ms[:-1]]))
        is_last = np.concatenate([is_first[1:], [True]])
        self._free_ms[rows[is_last]] = end_ms[is_last]
        return np.maximum(times_ms, before_ms)

    def _add(self, rows: Int64s, start_ms: Int64s, end_ms: Int64s) -> None:
        """Add events that were throttled from start to end, by row and start, to the spans."""
        ones = np.ones(rows.size, dtype=np.int64)
        held = ThrottleSpans(rows=rows, start_ms=start_ms, end_ms=end_ms, events=ones, delay_ms=end_ms - start_ms)
        both = _joined([self._open, held])
        merged = _merged(both.pick(np.argsort(both.rows, kind="stable")))
        is_last = np.concatenate([merged.rows[1:] != merged.rows[:-1], np.ones(min(merged.rows.size, 1), dtype=bool)])
        self._over.append(merged.pick(~is_last))
        self._open = merged.pick(is_last)


def span_table(spans: ThrottleSpans, buckets: Int64s, *, proposal: int, model: str, reason: str) -> pa.Table:
    """Return the spans as a table, with the task's number of each row's bucket."""
    count = spans.rows.size
    columns = [
        pa.array(buckets[spans.rows], pa.int64()),
        pa.array(np.full(count, proposal, dtype=np.int32)),
        pa.array([model] * count, pa.string()),
        *(pa.array(getattr(spans, name), pa.int64()) for name in _FIGURES),
        pa.array([reason] * count, pa.string()),
    ]
    return pa.table(columns, schema=span_schema())


def _merged(spans: ThrottleSpans) -> ThrottleSpans:
    """Merge spans that overlap or touch, given by row and start."""
    if not spans.rows.size:
        return spans
    base_ms = int(spans.start_ms.min())
    width = int(spans.end_ms.max()) - base_ms + 1
    is_first = np.concatenate([[True], spans.rows[1:] != spans.rows[:-1]])
    offsets = (np.cumsum(is_first) - 1) * width - base_ms
    reached = np.maximum.accumulate(spans.end_ms + offsets)  # rows follow each other: none reaches the next
    is_new = is_first | np.concatenate([[True], (spans.start_ms + offsets)[1:] > reached[:-1]])
    begins = np.flatnonzero(is_new)
    ends = np.concatenate([begins[1:], [is_new.size]]) - 1
    return ThrottleSpans(
        rows=spans.rows[begins],
        start_ms=spans.start_ms[begins],
        end_ms=(reached - offsets)[ends],
        events=np.add.reduceat(spans.events, begins),
        delay_ms=np.maximum.reduceat(spans.delay_ms, begins),
    )


def _joined(parts: list[ThrottleSpans]) -> ThrottleSpans:
    return ThrottleSpans(
        **{name: np.concatenate([getattr(each, name) for each in parts]) for name in ("rows", *_FIGURES)}
    )


def _nothing() -> Int64s:
    return np.empty(0, dtype=np.int64)


_NONE: Final = ThrottleSpans(
    rows=_nothing(), start_ms=_nothing(), end_ms=_nothing(), events=_nothing(), delay_ms=_nothing()
)
