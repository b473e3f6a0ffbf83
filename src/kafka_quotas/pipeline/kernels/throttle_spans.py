"""Spans of time for which rows were throttled, merged while events run through the limiters of one proposal.

Invariant: spans of one row neither overlap nor touch.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.pipeline.kernels.admission import FAR_MS, RECORD
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.limiters import Limiters
from kafka_quotas.pipeline.kernels.loop import wait_after
from kafka_quotas.pipeline.kernels.order import events_by_row

Int64s = NDArray[np.int64]

START_MS: Final = 0
END_MS: Final = 1
EVENTS: Final = 2
DELAY_MS: Final = 3
_FIGURES: Final = 4


class SpanCollector:
    """The throttle spans of one proposal, which must be the only one of its limiters."""

    def __init__(self, limiters: Limiters) -> None:
        self._limiters = limiters
        self._free_ms = np.empty(0, dtype=np.int64)
        self._open = np.empty((0, _FIGURES), dtype=np.int64)
        self._over: list[Int64s] = []

    def run(self, rows: NDArray[np.int32], times_ms: Int64s, values: NDArray[np.float64]) -> None:
        """Run the events as `Limiters.run` does, and record the spans of throttled ones."""
        row_count = len(self._limiters.bounds)
        rows, times_ms, values = events_by_row(rows, times_ms, values, row_count=row_count)
        trace = self._limiters.trace(rows, times_ms, values)
        grown = row_count - self._free_ms.size
        self._free_ms = np.concatenate([self._free_ms, np.full(grown, -FAR_MS, dtype=np.int64)])
        self._open = np.concatenate([self._open, np.zeros((grown, _FIGURES), dtype=np.int64)])
        rule, over = self._limiters.rule, np.empty((rows.size, 1 + _FIGURES), dtype=np.int64)
        attempts = trace.happened_ms[:, 0], trace.throttle_ms[:, 0], trace.held[:, 0]
        state = self._free_ms, self._open, over
        count = merge_spans(rows, times_ms, *attempts, rule.operation, rule.closed, *state)
        self._over.append(over[:count].copy())

    def spans(self) -> Int64s:
        """Return all spans by row and time, each a row and the figures from `START_MS` to `DELAY_MS`."""
        rows = np.flatnonzero(self._open[:, EVENTS])
        found = np.concatenate([*self._over, np.column_stack([rows, self._open[rows]])])
        return found[np.lexsort((found[:, 1 + START_MS], found[:, 0]))]


@compiled
def merge_spans(rows, times_ms, happened_ms, throttle_ms, held, op, closed, free_ms, opened, over):
    """Merge throttled events into the open span of each row, and return how many spans are over.

    An event is throttled from its first attempt on: the recorded time or, in a closed loop, the end of the event before
    if that is later. Spans that overlap or touch are one.
    """
    count = 0
    for place in range(rows.shape[0]):
        row, admitted = rows[place], held[place] or op == RECORD
        end_ms = happened_ms[place] + wait_after(op, admitted, closed, throttle_ms[place])
        start_ms = max(times_ms[place], free_ms[row]) if closed else times_ms[place]
        free_ms[row] = end_ms
        if end_ms <= start_ms:
            continue
        if opened[row, EVENTS] > 0 and start_ms <= opened[row, END_MS]:
            opened[row, END_MS] = max(opened[row, END_MS], end_ms)
            opened[row, EVENTS] += 1
            opened[row, DELAY_MS] = max(opened[row, DELAY_MS], end_ms - start_ms)
            continue
        if opened[row, EVENTS] > 0:
            over[count, 0] = row
            over[count, 1:] = opened[row]
            count += 1
        opened[row, START_MS], opened[row, END_MS] = start_ms, end_ms
        opened[row, EVENTS], opened[row, DELAY_MS] = 1, end_ms - start_ms
    return count
