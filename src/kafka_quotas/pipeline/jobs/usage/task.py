"""One task of the usage job: a stream of slices into cells, profiles and demands of every bucket.

Contract: a task knows neither engine nor files. All events of clients that may share a bucket are in one task. A slice
begins at or after the end of the one before.

Invariants: cells are sorted by row, then by time, each once. Bytes, requests, thread time (in ns), partitions and
throttle times are whole numbers, which add up alike in any order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.charges import (
    ChargedClient,
    Charges,
    ClientNumbers,
    bucket_columns,
    charges_of,
    numbers,
    thread_nanos,
)
from kafka_quotas.pipeline.buckets.proposal import BucketRows, Proposal, ProposedQuotas, partition_columns
from kafka_quotas.pipeline.engine.job import Job
from kafka_quotas.pipeline.jobs.usage.demand import HeldTime, demand_columns
from kafka_quotas.pipeline.kernels.limiters import SecondCells, SecondsMeter
from kafka_quotas.pipeline.tables.results import DEMAND, USED, WINDOW, list_column
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS

BYTES: Final = 0
NANOS: Final = 1
MUTATIONS: Final = 2
THROTTLE_MS: Final = 3
THROTTLED: Final = 4
REQUESTS: Final = 5

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

WINDOWS_S: Final = (60, 3600)
"""Lengths of the windows in the table `usage`: each has the peak of its seconds."""
_PERCENTILES: Final = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePlan:
    """The quotas in force and the time frame of a usage job."""

    quotas: Proposal
    """Quotas in force; with none, every client has a bucket of its own."""
    seconds: int
    """Length of the recording."""
    window: QuotaWindow = DEFAULT_WINDOW
    """Window of the brokers' rates."""
    horizon_days: float | None = None
    """Days after the recording for which demands are wanted, None for no demands."""
    windows_s: tuple[int, ...] = WINDOWS_S
    """Lengths of the windows, each a multiple of the one before, seconds (1) only if they are asked for."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of events that the job reads."""
        return CHARGE_COLUMNS if self.horizon_days is None else (*CHARGE_COLUMNS, "connection")

    def partition_columns(self) -> tuple[str, ...]:
        """Return the columns whose equal values keep clients that may share a bucket in one task."""
        return partition_columns([self.quotas])


def usage_job(plan: UsagePlan) -> Job:
    """Return the job that sums up the usage of a plan's quotas."""
    return Job(
        name="usage",
        partition_columns=plan.partition_columns(),
        columns=plan.columns,
        task=partial(usage_task, plan=plan),
        schema=USED,
    )


def usage_task(slices: Iterable[pa.Table], plan: UsagePlan) -> pa.Table:
    """Sum up the usage of every charged bucket by windows, and compute its profile, in the columns `USED`."""
    clients, connections = ClientNumbers(), _ConnectionNumbers()
    meters = {each: _Meter(plan, each) for each in QuotaType}
    for events in slices:
        of_event, figures = clients.of(events), _event_figures(events)
        of_connection = None if plan.horizon_days is None else connections.of(events)
        for charges in charges_of(events, of_event, meters.__contains__):
            meters[charges.quota_type].add(charges, clients.clients, figures, of_connection)
    found = (each.used(plan) for each in meters.values() if each.is_used)
    return pa.concat_tables([USED.empty_table(), *found])


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


class _Meter:
    """The buckets of one quota type and their cells."""

    def __init__(self, plan: UsagePlan, quota_type: QuotaType) -> None:
        self._parts: list[SecondCells] = []
        self._quota_type = quota_type
        self._rows = BucketRows([ProposedQuotas(plan.quotas, quota_type)])
        self._meter = SecondsMeter(plan.window)
        self._held = HeldTime()

    @property
    def is_used(self) -> bool:
        """Whether the quota type has charges."""
        return bool(self._parts)

    def add(
        self,
        charges: Charges,
        clients: Sequence[ChargedClient],
        figures: NDArray[np.int64],
        connections: Int64s | None,
    ) -> None:
        """Add the charges of a slice, with its events' connections where demands are wanted."""
        for rows, placed in self._rows.placed(charges, clients):
            self._meter.grow(len(self._rows.names))
            if connections is not None:
                self._held.add(
                    rows,
                    connections[placed.events],
                    placed.times_ms,
                    amounts=placed.amounts,
                    throttle_ms=figures[THROTTLE_MS][placed.events],
                )
            cells = self._meter.add(rows, placed.times_ms, placed.amounts, events=placed.events, figures=figures)
            self._parts.append(cells)

    def used(self, plan: UsagePlan) -> pa.Table:
        """Return the buckets with all that is known of them, once: the collected parts are freed."""
        cells = _cells_by_second(self._parts)
        self._parts.clear()
        used = cells.rows[cells.starts]  # a client of one quota type need not be one of another
        names = [self._rows.names[row] for row in used.tolist()]
        matches = [self._rows.matches[row][0] for row in used.tolist()]
        demands: Sequence[Any] = [pa.nulls(used.size, field.type) for field in DEMAND]
        if plan.horizon_days is not None:
            demands = demand_columns(cells.rows, cells.windows, cells.rates, self._held, horizon_days=plan.horizon_days)
        cells = replace(cells, rows=np.searchsorted(used, cells.rows))
        columns = [
            *bucket_columns(names, self._quota_type),
            pa.array([None if each is None else int(each.level) for each in matches], pa.int32()),
            pa.array([None if each is None else each.limit for each in matches], pa.float64()),
            *_profile_columns(cells, plan.seconds),
            *_totals(cells),
            *demands,
            _windows(cells, plan.windows_s, used.size),
        ]
        return pa.table(columns, schema=USED)


class _ConnectionNumbers:
    """Numbers of connections, in order of appearance."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, events: pa.Table) -> Int64s:
        """Return the number of each event's connection."""
        known, parts = self._known, [np.empty(0, np.int64)]
        for chunk in events["connection"].chunks:
            encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            found = np.array([known.setdefault(name, len(known)) for name in encoded.dictionary.to_pylist()], np.int64)
            parts.append(found[encoded.indices.to_numpy()])
        return np.concatenate(parts)


def _windows(cells: Cells, lengths_s: Sequence[int], buckets: int) -> pa.Array:
    """Return the windows of each bucket, of all lengths: hours are summed from minutes."""
    rows, windows, figures, peaks, length_s = cells.rows, cells.windows, cells.figures, cells.peaks, 1
    parts = []
    for window_s in lengths_s:
        windows = windows // (window_s // length_s)
        starts, length_s = _starts(rows, windows), window_s
        if starts.size < rows.size:
            rows, windows = rows[starts], windows[starts]
            figures, peaks = np.add.reduceat(figures, starts, axis=1), np.maximum.reduceat(peaks, starts)
        columns = [
            windows * window_s * 1000,
            np.full(rows.size, window_s, dtype=np.int32),
            *_figure_columns(figures),
            peaks,
        ]
        parts.append((rows, pa.table(columns, schema=WINDOW)))
    return list_column(np.concatenate([own for own, _ in parts]), [table for _, table in parts], buckets)


def _profile_columns(cells: Cells, seconds: int) -> list[Any]:
    starts = cells.starts
    counts = np.diff(np.append(starts, cells.rows.size))
    rates = cells.rates.copy()
    for begin, count in zip(starts.tolist(), counts.tolist(), strict=True):
        rates[begin : begin + count].sort()  # a tenth of the time of sorting by row and rate
    amounts, peaks = np.add.reduceat(cells.amounts, starts), np.maximum.reduceat(cells.peaks, starts)
    throttled = np.add.reduceat((cells.figures[THROTTLED] > 0).astype(np.int64), starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        bursts = np.where(amounts > 0, peaks / (amounts / counts), 1.0)
    ranks = (np.maximum(np.ceil(counts * share).astype(np.int64) - 1, 0) for share in _PERCENTILES)
    return [
        *(rates[starts + rank] for rank in ranks),
        rates[starts + counts - 1],
        counts / seconds,
        bursts,
        throttled / counts,
    ]


def _totals(cells: Cells) -> list[Any]:
    return _figure_columns(np.add.reduceat(cells.figures, cells.starts, axis=1))


def _figure_columns(sums: Int64s) -> list[Any]:
    """Return the columns `TOTALS` of sums."""
    return [sums[BYTES], sums[REQUESTS], sums[NANOS] / 1e6, sums[MUTATIONS], sums[THROTTLE_MS], sums[THROTTLED]]


def _event_figures(events: pa.Table) -> Int64s:
    """Return the figures of a slice's events that cells sum, a line per kind from `BYTES` to `THROTTLED`."""
    throttle_ms = numbers(events["throttle_ms"])
    lines = [numbers(events["bytes"]), thread_nanos(events), numbers(events["mutations"]), throttle_ms, throttle_ms > 0]
    return np.stack([line.astype(np.int64, copy=False) for line in lines])


def _cells_by_second(parts: Sequence[SecondCells]) -> Cells:
    """Join parts without a common row and second into sorted cells."""
    found = SecondCells._make(np.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True))
    order = np.lexsort((found.seconds, found.rows)) if len(parts) > 1 else slice(None)
    rows, seconds, figures, amounts, rates = SecondCells._make(column[..., order] for column in found)
    return Cells(rows=rows, windows=seconds, figures=figures, amounts=amounts, peaks=amounts, rates=rates)


def _starts(rows: NDArray[Any], windows: Int64s | None = None) -> Int64s:
    """Return the start of each row, or of each row and window, in arrays sorted by both."""
    differs = rows[1:] != rows[:-1]
    if windows is not None:
        differs |= windows[1:] != windows[:-1]
    return np.flatnonzero(np.concatenate([[True], differs]))
