"""Events added up by row and second, with Kafka's largest rate in each, in one compiled pass.

Contract: `SecondsMeter(window)` is fresh, `grow` adds rows, `add` takes the events of whole seconds and returns their
cells.

Invariants: events come row by row and by time, and a call holds whole seconds. Rings carry over from call to call.
Amounts are added up smallest first within a millisecond, whatever order events come in.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_bucket import UNLIMITED
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.limiters import LimiterRule, Limiters
from kafka_quotas.pipeline.kernels.order import by_row, sort_ties
from kafka_quotas.pipeline.kernels.ring import HEAD, record_and_sum, spanned_ms


@compiled
def add_up_seconds(
    rows, times_ms, amounts, events, figures, clocks, sums, samples, window_ms,
    out_rows, out_seconds, out_figures, out_amounts, out_rates,
):  # fmt: skip
    """Add up charges by row and second into the `out_` arrays, and return the number of cells.

    A cell has row, second, figures (with a count of events after them), amount and largest rate.
    """
    cells = -1
    kinds = figures.shape[0]
    for place in range(rows.shape[0]):
        row, now_ms, amount = rows[place], times_ms[place], amounts[place]
        second = now_ms // 1000
        c, s = row * (HEAD + 2 * (samples + 1)), row * (2 + samples)
        total = record_and_sum(clocks, sums, c, s, amount, now_ms, samples, window_ms)
        rate = total / (spanned_ms(clocks, c, now_ms, samples, window_ms) / 1000.0)
        if cells < 0 or out_rows[cells] != row or out_seconds[cells] != second:
            cells += 1
            out_rows[cells], out_seconds[cells] = row, second
            out_amounts[cells], out_rates[cells] = 0.0, rate
            for kind in range(kinds + 1):
                out_figures[kind, cells] = 0
        for kind in range(kinds):
            out_figures[kind, cells] += figures[kind, events[place]]
        out_figures[kinds, cells] += 1
        out_amounts[cells] += amount
        out_rates[cells] = max(out_rates[cells], rate)
    return cells + 1


Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]


class SecondCells(NamedTuple):
    """Sums of one second per row, in parallel arrays."""

    rows: Int64s
    seconds: Int64s
    """Seconds since 1970."""
    figures: Int64s
    """Sums by kind and cell; the last kind counts events."""
    amounts: Floats
    rates: Floats
    """Largest rate per second in each cell."""


class SecondsMeter(Limiters):
    """Rings of many rows without limits, and their sums by second."""

    def __init__(self, window: QuotaWindow) -> None:
        super().__init__(LimiterRule(window=window), np.empty((0, 1)))

    def grow(self, rows: int) -> None:
        """Add rows up to a number of `rows`."""
        self.rebound(np.full((rows, 1), UNLIMITED))

    def add(
        self, rows: NDArray[np.int32], times_ms: Int64s, amounts: Floats, *, events: Int64s, figures: Int64s
    ) -> SecondCells:
        """Record charges and return their cells.

        Args:
            rows: The row of each charge, -1 to skip it.
            times_ms: Times in ms since 1970, of whole seconds.
            amounts: The amount of each charge.
            events: The place of each charge in the lines of `figures`.
            figures: One line of whole numbers per kind.
        """
        self._require_fit(rows, times_ms, amounts, events)
        *charges, places = by_row(rows, times_ms, amounts, events, row_count=len(self.bounds))
        sort_ties(*charges)  # figures are whole numbers, which add up alike in any order
        size, window = places.size, self.rule.window
        out = SecondCells(
            rows=np.empty(size, dtype=np.int64),
            seconds=np.empty(size, dtype=np.int64),
            figures=np.empty((len(figures) + 1, size), dtype=np.int64),
            amounts=np.empty(size),
            rates=np.empty(size),
        )
        state = (self._clocks, self._sums, window.samples, window.window_ms)
        count = add_up_seconds(*charges, places, figures, *state, *out)
        return SecondCells._make(column[..., :count].copy() for column in out)
