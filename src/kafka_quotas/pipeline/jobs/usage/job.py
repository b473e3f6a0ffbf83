"""The job `usage`: what each quota bucket used, by windows and over all that was recorded.

A task makes cells of a second, profiles and demands of every bucket from a stream of slices.

Contract: a task knows neither engine nor files. All events of clients that may share a bucket are in one task. A slice
begins at or after the end of the one before.

Invariants: cells are sorted by row, then by time, each once. Bytes, requests, thread time (in ns), partitions and
throttle times are whole numbers, which add up alike in any order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.charges import (
    BucketRows,
    Charges,
    ClientNumbers,
    RowNumbers,
    bucket_columns,
    charges_of,
    numbers,
)
from kafka_quotas.pipeline.buckets.proposal import BucketName, Proposal, ProposedQuotas, partition_columns
from kafka_quotas.pipeline.engine.events import Events
from kafka_quotas.pipeline.engine.job import Job
from kafka_quotas.pipeline.engine.sql import ResultRun, SqlTables, write_result
from kafka_quotas.pipeline.jobs.usage.demand import HeldTime, demand_columns
from kafka_quotas.pipeline.kernels.limiters import SecondCells, SecondsMeter
from kafka_quotas.pipeline.kernels.order import starts_of
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.packed_events import shared_shift
from kafka_quotas.pipeline.tables.results import DEMAND, USED, WINDOW, list_column
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS, KEY, USAGE, USAGE_PROFILE

BYTES, NANOS, MUTATIONS, THROTTLE_MS, THROTTLED, REQUESTS = range(6)

Int64s = NDArray[np.int64]

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


def usage_job(plan: UsagePlan) -> Job:
    """Return the job that sums up the usage of a plan's quotas."""
    return Job(
        name="usage",
        shift=shared_shift(partition_columns([plan.quotas])),
        columns=CHARGE_COLUMNS if plan.horizon_days is None else (*CHARGE_COLUMNS, "connection"),
        task=partial(usage_task, plan=plan),
        schema=USED,
    )


def usage_task(slices: Iterable[pa.Table], plan: UsagePlan) -> pa.Table:
    """Sum up the usage of every charged bucket by windows, and compute its profile, in the columns `USED`."""
    clients, connections = ClientNumbers(), RowNumbers("connection")
    meters = {each: _Meter(plan, each) for each in QuotaType}
    for events in slices:
        of_event, figures = clients.of(events), _event_figures(events)
        of_connection = None if plan.horizon_days is None else connections.of(events)
        for charges in charges_of(events, of_event, meters.__contains__):
            meters[charges.quota_type].add(charges, clients.clients, figures, of_connection)
    return pa.concat_tables([USED.empty_table(), *(each.used(plan) for each in meters.values())])


class _Meter:
    """The buckets of one quota type and their cells."""

    def __init__(self, plan: UsagePlan, quota_type: QuotaType) -> None:
        self._parts: list[SecondCells] = []
        self._quota_type = quota_type
        self._rows = BucketRows([ProposedQuotas(plan.quotas, quota_type)])
        self._meter = SecondsMeter(plan.window)
        self._held = None if plan.horizon_days is None else HeldTime()

    def add(
        self, charges: Charges, clients: Sequence[BucketName], figures: NDArray[np.int64], connections: Int64s | None
    ) -> None:
        """Add the charges of a slice, with its events' connections where demands are wanted."""
        for rows, placed in self._rows.placed(charges, clients):
            self._meter.grow(len(self._rows.names))
            if connections is not None and self._held is not None:
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
        if not self._parts:
            return USED.empty_table()
        cells = _cells_by_second(self._parts)
        self._parts.clear()
        starts = starts_of(cells.rows)
        used = cells.rows[starts]  # a client of one quota type need not be one of another
        names = [self._rows.names[row] for row in used.tolist()]
        matches = [self._rows.matches[row][0] for row in used.tolist()]
        demands: Sequence[Any] = [pa.nulls(used.size, field.type) for field in DEMAND]
        if plan.horizon_days is not None and self._held is not None:
            demands = demand_columns(cells.rows, cells.seconds, cells.rates, self._held, horizon_days=plan.horizon_days)
        cells = cells._replace(rows=np.searchsorted(used, cells.rows))
        columns = [
            *bucket_columns(names, self._quota_type),
            pa.array([None if each is None else int(each.level) for each in matches], pa.int32()),
            pa.array([None if each is None else each.limit for each in matches], pa.float64()),
            *_profile_columns(cells, starts, plan.seconds),
            *_figure_columns(np.add.reduceat(cells.figures, starts, axis=1)),
            *demands,
            _windows(cells, plan.windows_s, used.size),
        ]
        return pa.table(columns, schema=USED)


def _windows(cells: SecondCells, lengths_s: Sequence[int], buckets: int) -> pa.Array:
    """Return the windows of each bucket, of all lengths: hours are summed from minutes."""
    rows, windows, figures, peaks, _ = cells
    length_s = 1
    parts = []
    for window_s in lengths_s:
        windows = windows // (window_s // length_s)
        starts, length_s = starts_of(rows, windows), window_s
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


def _profile_columns(cells: SecondCells, starts: Int64s, seconds: int) -> list[Any]:
    counts = np.diff(np.append(starts, cells.rows.size))
    rates = cells.rates.copy()
    for begin, count in zip(starts.tolist(), counts.tolist(), strict=True):
        rates[begin : begin + count].sort()  # a tenth of the time of sorting by row and rate
    amounts, peaks = np.add.reduceat(cells.amounts, starts), np.maximum.reduceat(cells.amounts, starts)
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


def _figure_columns(sums: Int64s) -> list[Any]:
    """Return sums in the order that windows and buckets have them."""
    return [sums[BYTES], sums[REQUESTS], sums[NANOS] / 1e6, sums[MUTATIONS], sums[THROTTLE_MS], sums[THROTTLED]]


def _event_figures(events: pa.Table) -> Int64s:
    """Return the figures of a slice's events that cells sum, a line per kind from `BYTES` to `THROTTLED`."""
    amounts, mutations, throttle_ms = (numbers(events[name]) for name in ("bytes", "mutations", "throttle_ms"))
    nanos = np.rint(numbers(pc.fill_null(events["thread_ms"], 0.0)) * 1e6)
    lines = (amounts, nanos, mutations, throttle_ms, throttle_ms > 0)
    return np.stack([line.astype(np.int64, copy=False) for line in lines])


def _cells_by_second(parts: Sequence[SecondCells]) -> SecondCells:
    """Join parts without a common row and second into sorted cells."""
    found = SecondCells._make(np.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True))
    order = np.lexsort((found.seconds, found.rows)) if len(parts) > 1 else slice(None)
    return SecondCells._make(column[..., order] for column in found)


_IS_LIMITED: Final = "coalesce(quota > 0, false)"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTables:
    """What was used: rows by the schema `USED`, and one per window."""

    tables: SqlTables
    buckets: str
    """The name of the rows of buckets in `tables`."""
    windows: str
    """That of their windows."""

    @classmethod
    def of(cls, tables: SqlTables, buckets: str) -> "UsageTables":
        """Return what was used, given rows of the job."""
        windows = tables.define("windows", f"SELECT {KEY}, {tables.dialect.inlined.format('windows')} FROM {buckets}")
        return cls(tables=tables, buckets=buckets, windows=windows)

    def count(self) -> int:
        """Return the number of buckets."""
        return int(self.tables.query(f"SELECT count(*) AS buckets FROM {self.buckets}")["buckets"][0].as_py())

    def clusters(self) -> list[str]:
        """Return the clusters of the buckets, sorted."""
        found: list[str] = self.tables.query(f"SELECT DISTINCT cluster FROM {self.buckets}")["cluster"].to_pylist()
        return sorted(found)

    def ranked(self, limit: int | None) -> pa.Table:
        """Return the first buckets: by nearness to their limits, then the largest without one."""
        columns = ", ".join(name for name in USED.names if name != "windows")
        return self.tables.query(
            f"""SELECT {columns} FROM {self.buckets}
            ORDER BY CASE WHEN {_IS_LIMITED} THEN '' ELSE quota_type END,
                CASE WHEN {_IS_LIMITED} THEN p99 / quota ELSE max END DESC NULLS LAST, {KEY}
            {"" if limit is None else f"LIMIT {limit}"}""",
            is_long=limit is None,
        )

    def demands(self) -> pa.Table:
        """Return the names and the demand of each bucket that has one."""
        return self.tables.query(f"SELECT {KEY}, demand FROM {self.buckets} WHERE demand > 0", is_long=True)

    def write(self, out: str, run: ResultRun) -> None:
        """Write the tables `usage` and `usage_profile` below a path or URL, in place of the same days."""
        write_result(self.tables, self.windows, out, USAGE, run, day_of="window_start_ms")
        write_result(self.tables, self.buckets, out, USAGE_PROFILE, run)


def usage(events: Events, plan: UsagePlan) -> UsageTables:
    """Sum up open events, with the errors of `Events.run`."""
    return UsageTables.of(events.tables, events.run(usage_job(plan)))
