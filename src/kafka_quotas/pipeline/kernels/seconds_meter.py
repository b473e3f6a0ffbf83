"""Cells of one second for many rows, from events that are kept in no other form: see `seconds` for the compiled pass.

Contract: `SecondsMeter(window)` is fresh, `grow` adds rows, `add` takes the events of whole seconds and returns their
cells. Amounts are added up, smallest first within a millisecond, whatever order events come in.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.pipeline.kernels.compiled import NUMBA
from kafka_quotas.pipeline.kernels.limiters import LimiterRule, Limiters, unlimited
from kafka_quotas.pipeline.kernels.order import order_by_row, sort_ties
from kafka_quotas.pipeline.kernels.seconds import add_up_seconds

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]


class SecondCells(NamedTuple):
    """Row, second since 1970, figures by kind (the last kind counts events), amount and largest rate of each cell."""

    rows: Int64s
    seconds: Int64s
    figures: Int64s
    amounts: Floats
    rates: Floats


class SecondsMeter(Limiters):
    """Rings of many rows that nothing exceeds."""

    def __init__(self, window: QuotaWindow, *, compiled: bool = NUMBA) -> None:
        super().__init__(LimiterRule(window=window), np.empty((0, 1)), compiled=compiled)

    def grow(self, rows: int) -> None:
        """Nothing; there are so many rows from now on."""
        self.rebound(unlimited(rows))

    def add(
        self, rows: NDArray[np.int32], times_ms: Int64s, amounts: Floats, *, events: Int64s, figures: Int64s
    ) -> SecondCells:
        """The cells of these charges; `events` are their places in each line of `figures`."""
        self._require_fit(rows, times_ms, amounts, events)
        order = order_by_row(rows, row_count=len(self.bounds))
        charges, places = (rows[order], times_ms[order], amounts[order]), events[order]
        sort_ties(*charges)  # figures are whole numbers, which add up alike in any order
        if not self._compiled:
            return self._add_in_numpy(*charges, events=places, figures=figures)
        size, window = order.size, self.rule.window
        out = SecondCells(
            rows=np.empty(size, dtype=np.int64),
            seconds=np.empty(size, dtype=np.int64),
            figures=np.empty((len(figures) + 1, size), dtype=np.int64),
            amounts=np.empty(size),
            rates=np.empty(size),
        )
        state = (self._clocks, self._sums, window.samples, window.window_ms)
        count = add_up_seconds(*charges, places, figures, *state, *out)
        return SecondCells(
            rows=out.rows[:count].copy(),
            seconds=out.seconds[:count].copy(),
            figures=out.figures[:, :count].copy(),
            amounts=out.amounts[:count].copy(),
            rates=out.rates[:count].copy(),
        )

    def _add_in_numpy(
        self, rows: NDArray[np.int32], times_ms: Int64s, amounts: Floats, *, events: Int64s, figures: Int64s
    ) -> SecondCells:
        """The cells of charges that come in order."""
        levels = self.trace(rows, times_ms, amounts).level[:, 0]
        row, second = rows.astype(np.int64), times_ms // 1000
        starts = np.flatnonzero(np.concatenate([[True], (row[1:] != row[:-1]) | (second[1:] != second[:-1])]))
        counts = np.diff(np.append(starts, rows.size))
        added = [np.add.reduceat(line[events], starts) for line in figures]
        sums = np.zeros(starts.size)
        np.add.at(sums, np.repeat(np.arange(starts.size), counts), amounts)  # one by one, as the compiled pass does
        return SecondCells(
            rows=row[starts],
            seconds=second[starts],
            figures=np.stack([*added, counts]),
            amounts=sums,
            rates=np.maximum.reduceat(levels, starts),
        )
