"""What each bucket used second by second, and the same by the minute and the hour.

Invariants: cells are sorted by row, then by time, each once. Bytes, requests, thread time (in ns), partitions and
throttle times are whole numbers, so that they add up alike in any order.
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
    """What cells add up of a slice's events, a line for each kind, from `BYTES` to `THROTTLED`."""
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
    """Sums by bucket (`rows`) and window; `windows` are numbered from 1970 on.

    `figures` has a line for each kind. `amounts` and `peaks` are in the unit of the quota key: what was charged, and
    the largest rate over one second; `rates` is the largest of Kafka's own rates within the window.
    """

    rows: Int64s
    windows: Int64s
    figures: Int64s
    amounts: Floats
    peaks: Floats
    rates: Floats

    @property
    def starts(self) -> Int64s:
        """Where the cells of each row begin."""
        return _starts(self.rows)


def cells_by_second(parts: Sequence[SecondCells]) -> Cells:
    """The cells of all parts, of which no two have the same row and second."""
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
    """The same by windows that are so many times as long."""
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
    """Where each row, or pair of row and window, begins, in arrays sorted by both."""
    differs = rows[1:] != rows[:-1]
    if windows is not None:
        differs |= windows[1:] != windows[:-1]
    return np.flatnonzero(np.concatenate([[True], differs]))
