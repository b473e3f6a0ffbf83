"""Events sorted as kernels need them: by time, or by row and then by time, with a stable order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.pipeline.kernels.compiled import compiled

Int64s = NDArray[np.int64]
_FEW_TIES = 16
"""Most ties that are sorted by insertion, which costs a quarter of a call of `sort`: busy clients have a few."""
_EARLIEST_MS = np.iinfo(np.int64).min


def order_by_row(rows: NDArray[np.int32], *, row_count: int) -> Int64s:
    """Return the positions of the events row by row, in their order within a row.

    Events of row -1 are left out.
    """
    starts = np.zeros(row_count + 1, dtype=np.int64)
    _count_rows(rows, starts)
    np.cumsum(starts, out=starts)
    order = np.empty(starts[-1], dtype=np.int64)
    _place(rows, starts, order)
    return order


def by_row(rows: NDArray[np.int32], *columns: NDArray[Any], row_count: int) -> list[NDArray[Any]]:
    """Return copies of rows and columns row by row, in their order within a row.

    Events of row -1 are left out.
    """
    if rows.size and rows[0] >= 0 and is_ordered(rows):
        return [each.copy() for each in (rows, *columns)]
    order = order_by_row(rows, row_count=row_count)
    return [each[order] for each in (rows, *columns)]


def events_by_row(
    rows: NDArray[np.int32], times_ms: Int64s, values: NDArray[np.float64], *, row_count: int
) -> tuple[NDArray[np.int32], Int64s, NDArray[np.float64]]:
    """Return rows, times and values row by row.

    Events of one row and one time come smallest first. Events of row -1 are left out.
    """
    rows, times_ms, values = by_row(rows, times_ms, values, row_count=row_count)
    sort_ties(rows, times_ms, values)
    return rows, times_ms, values


def starts_of(*keys: NDArray[Any]) -> Int64s:
    """Return where the values of any key begin anew."""
    is_new = np.zeros(max(keys[0].size - 1, 0), dtype=bool)
    for key in keys:
        is_new |= key[1:] != key[:-1]
    return np.flatnonzero(np.append(np.ones(min(keys[0].size, 1), dtype=bool), is_new))


def is_ordered(numbers: NDArray[np.integer[Any]]) -> bool:
    """Check whether numbers never go back."""
    return bool((numbers[1:] >= numbers[:-1]).all())


def order_within_rows(rows: NDArray[np.int32], times_ms: Int64s, *, row_count: int) -> Int64s | None:
    """Return the positions of the events by time, in their order at equal times.

    Returns:
        None if the events of each row are in order already, which kernels need and no more.
    """
    is_in_order = _is_ordered_within_rows(rows, times_ms, np.full(row_count + 1, _EARLIEST_MS))
    return None if is_in_order else np.argsort(times_ms, kind="stable")


@compiled
def _is_ordered_within_rows(rows, times_ms, last_ms):
    for place in range(rows.shape[0]):
        row, now_ms = rows[place], times_ms[place]
        if now_ms < last_ms[row]:
            return False
        last_ms[row] = now_ms
    return True


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
def sort_ties(rows, times_ms, values):
    """Sort the values of neighbours with the same row and time in place, the smallest first.

    Engines differ in the order of events within one millisecond, and this removes the difference.
    """
    begin = 0
    for end in range(1, rows.shape[0] + 1):
        if end == rows.shape[0] or times_ms[end] != times_ms[begin] or rows[end] != rows[begin]:
            if end - begin > _FEW_TIES:
                values[begin:end].sort()
            else:
                _insert(values, begin, end)
            begin = end


@compiled
def _insert(values, begin, end):
    """Sort a few values by insertion."""
    for position in range(begin + 1, end):
        place, value = position, values[position]
        while place > begin and values[place - 1] > value:
            values[place] = values[place - 1]
            place -= 1
        values[place] = value
