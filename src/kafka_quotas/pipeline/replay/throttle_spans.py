"""The times when a replay throttled a bucket: from a first throttled event to the end of its delays.

Contract: one `SpanCollector` follows the limiters of one proposal and model through a whole task, batch by batch. Rows
are the limiters'. Invariant: spans of one row neither overlap nor touch.
"""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import INT_MAX
from kafka_quotas.core.quotas.simulation import RETRY_BACKOFF_MS
from kafka_quotas.pipeline.buckets.entities import columns_table, task_schema
from kafka_quotas.pipeline.kernels.admission import FAR_MS, STRICT
from kafka_quotas.pipeline.kernels.limiters import Limiters, Trace
from kafka_quotas.pipeline.kernels.order import events_by_row
from kafka_quotas.pipeline.tables.schemas import THROTTLE_SPANS

Int64s = NDArray[np.int64]
Spans = NDArray[np.void]
"""Throttled intervals: `row`, `start_ms` and `end_ms` since 1970, throttled `events`, and their longest `delay_ms`."""
_FIGURES: Final = ("start_ms", "end_ms", "events", "delay_ms")
_SPAN: Final = np.dtype([(name, np.int64) for name in ("row", *_FIGURES)])


class SpanCollector:
    """The spans of one proposal, which must be the only one of its limiters."""

    def __init__(self, limiters: Limiters) -> None:
        self._limiters = limiters
        self._free_ms = np.empty(0, dtype=np.int64)
        self._open: Spans = np.empty(0, dtype=_SPAN)
        self._over: list[Spans] = []

    def run(self, rows: NDArray[np.int32], times_ms: Int64s, values: NDArray[np.float64]) -> None:
        """Run the events as `Limiters.run` does, and record the spans of throttled ones."""
        rows, times_ms, values = events_by_row(rows, times_ms, values, row_count=len(self._limiters.bounds))
        trace = self._limiters.trace(rows, times_ms, values)
        end_ms = trace.happened_ms[:, 0] + self._waits_ms(trace)
        start_ms = self._starts_ms(rows, times_ms, end_ms)
        late = end_ms > start_ms
        self._add(rows[late], start_ms[late], end_ms[late])

    def spans(self) -> Spans:
        """Return all spans, by row and time."""
        return np.sort(np.concatenate([*self._over, self._open]), order=("row", "start_ms"))

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

    def _add(self, rows: NDArray[np.int32], start_ms: Int64s, end_ms: Int64s) -> None:
        """Add events that were throttled from start to end, by row and start, to the spans."""
        added = np.empty(rows.size, dtype=_SPAN)
        added["row"], added["start_ms"], added["end_ms"] = rows, start_ms, end_ms
        added["events"], added["delay_ms"] = 1, end_ms - start_ms
        both = np.concatenate([self._open, added])
        merged = _merged(both[np.argsort(both["row"], kind="stable")])
        is_last = np.append(merged["row"][1:] != merged["row"][:-1], np.ones(min(merged.size, 1), dtype=bool))
        self._over.append(merged[~is_last])
        self._open = merged[is_last]


def span_table(spans: Spans, buckets: Int64s, *, proposal: int, model: str, reason: str) -> pa.Table:
    """Return the spans as a table, with the task's number of each row's bucket."""
    figures = [spans[name] for name in _FIGURES]
    columns = [[proposal] * spans.size, buckets[spans["row"]], [model] * spans.size, *figures, [reason] * spans.size]
    return columns_table(columns, task_schema(THROTTLE_SPANS))


def _merged(spans: Spans) -> Spans:
    """Merge spans that overlap or touch, given by row and start."""
    if not spans.size:
        return spans
    base_ms = int(spans["start_ms"].min())
    width = int(spans["end_ms"].max()) - base_ms + 1
    is_first = np.concatenate([[True], spans["row"][1:] != spans["row"][:-1]])
    offsets = (np.cumsum(is_first) - 1) * width - base_ms
    reached = np.maximum.accumulate(spans["end_ms"] + offsets)  # rows follow each other: none reaches the next
    is_new = is_first | np.concatenate([[True], (spans["start_ms"] + offsets)[1:] > reached[:-1]])
    begins = np.flatnonzero(is_new)
    ends = np.concatenate([begins[1:], [is_new.size]]) - 1
    merged = spans[begins]
    merged["end_ms"] = (reached - offsets)[ends]
    merged["events"] = np.add.reduceat(spans["events"], begins)
    merged["delay_ms"] = np.maximum.reduceat(spans["delay_ms"], begins)
    return merged
