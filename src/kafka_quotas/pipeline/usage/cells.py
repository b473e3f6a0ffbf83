"""The usage of each bucket by the second, the minute and the hour.

Invariants: cells are sorted by row, then by time, each once. Bytes, requests, thread time (in ns), partitions and
throttle times are whole numbers, which add up alike in any order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.pipeline.buckets.charges import numbers, thread_nanos
from kafka_quotas.pipeline.kernels.seconds import SecondCells

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

BYTES: Final = 0
NANOS: Final = 1
MUTATIONS: Final = 2
THROTTLE_MS: Final = 3
THROTTLED: Final = 4
REQUESTS: Final = 5


def event_figures(events: pa.Table) -> Int64s:
    """Return the figures of a slice's events that cells sum, a line per kind from `BYTES` to `THROTTLED`."""
    throttle_ms = numbers(events["throttle_ms"])
    lines = [
        numbers(events["bytes"]),
        thread_nanos(events),
        numbers(events["mutations"]),
        throttle_ms,
        throttle_ms > 0,
    ]
    return np.stack([line.astype(np.int64, copy=False) for line in lines])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Sums by bucket and window, in parallel arrays."""

    rows: Int64s
    """Buckets by row."""
    windows: Int64s
    """Windows, numbered from 1970 on."""
    figures: Int64s
    """Sums, one line per kind."""
    amounts: Floats
    """Charged amount in the unit of the quota key times seconds."""
    peaks: Floats
    """Largest rate over one second, in the unit of the quota key."""
    rates: Floats
    """Largest of Kafka's own rates within the window."""

    @property
    def starts(self) -> Int64s:
        """The start of each row's cells."""
        return _starts(self.rows)


def cells_by_second(parts: Sequence[SecondCells]) -> Cells:
    """Join parts without a common row and second into sorted cells."""
    rows = np.concatenate([part.rows for part in parts])
    seconds = np.concatenate([part.seconds for part in parts])
    order = np.lexsort((seconds, rows)) if len(parts) > 1 else np.arange(rows.size)
    amounts = np.concatenate([part.amounts for part in parts])[order]
    return Cells(
        rows=rows[order],
        windows=seconds[order],
        figures=np.concatenate([part.figures for part in parts], axis=1)[:, order],
        amounts=amounts,
        peaks=amounts,
        rates=np.concatenate([part.rates for part in parts])[order],
    )


def widened(cells: Cells, factor: int) -> Cells:
    """Sum cells over windows that are `factor` times as long."""
    windows = cells.windows // factor
    starts = _starts(cells.rows, windows)
    return Cells(
        rows=cells.rows[starts],
        windows=windows[starts],
        figures=np.add.reduceat(cells.figures, starts, axis=1),
        amounts=np.add.reduceat(cells.amounts, starts),
        peaks=np.maximum.reduceat(cells.peaks, starts),
        rates=np.maximum.reduceat(cells.rates, starts),
    )


def _starts(rows: NDArray[Any], windows: Int64s | None = None) -> Int64s:
    """Return the start of each row, or of each row and window, in arrays sorted by both."""
    differs = rows[1:] != rows[:-1]
    if windows is not None:
        differs |= windows[1:] != windows[:-1]
    return np.flatnonzero(np.concatenate([[True], differs]))
