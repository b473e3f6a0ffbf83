"""Events put in the order that kernels like: by time, or by row and then by time, equal times as they came."""

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.pipeline.kernels.compiled import NUMBA, compiled

Int64s = NDArray[np.int64]


def order_by_row(rows: NDArray[np.int32], *, row_count: int) -> Int64s:
    """The positions of the events with a row, row by row; those of one row stay in their order. Row -1 is none."""
    if NUMBA:
        starts = np.zeros(row_count + 1, dtype=np.int64)
        _count_rows(rows, starts)
        np.cumsum(starts, out=starts)
        order = np.empty(starts[-1], dtype=np.int64)
        _place(rows, starts, order)
        return order
    order = np.argsort(rows, kind="stable")
    return order[np.searchsorted(rows[order], 0) :]


def order_ties(order: Int64s, rows: NDArray[np.int32], times_ms: Int64s, values: NDArray[np.float64]) -> Int64s:
    """The same order with neighbours of one row and one time by their value, the smallest first.

    So what was recorded within one millisecond is taken alike whatever order it came in, which engines differ in.
    """
    if NUMBA:
        _sort_ties(order, rows, times_ms, values)
        return order
    row, time = rows[order], times_ms[order]
    group = np.cumsum(np.concatenate([[0], (row[1:] != row[:-1]) | (time[1:] != time[:-1])])[: order.size])
    return order[np.lexsort((values[order], group))]


def is_ordered(times_ms: Int64s) -> bool:
    """Whether times never go back."""
    return bool((times_ms[1:] >= times_ms[:-1]).all())


def order_by_time(times_ms: Int64s) -> Int64s | None:
    """The positions of the events by time, equal times in their order; None where they are in order already."""
    return None if is_ordered(times_ms) else np.argsort(times_ms, kind="stable")


@compiled
def _count_rows(rows, starts):
    for row in rows:
        if row >= 0:
            starts[row + 1] += 1


@compiled
def _place(rows, starts, order):
    for position in range(rows.shape[0]):
        row = rows[position]
        if row >= 0:
            order[starts[row]] = position
            starts[row] += 1


@compiled
def _sort_ties(order, rows, times_ms, values):
    begin, count = 0, order.shape[0]
    while begin < count:
        end = begin + 1
        first = order[begin]
        time_ms = times_ms[first]
        while end < count and times_ms[order[end]] == time_ms and rows[order[end]] == rows[first]:
            end += 1
        if end - begin > 1:
            tied = order[begin:end].copy()
            ranks = np.argsort(values[tied], kind="mergesort")
            for place in range(end - begin):
                order[begin + place] = tied[ranks[place]]
        begin = end
