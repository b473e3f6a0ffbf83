"""One task of the usage job: a stream of slices into cells and profiles of every bucket.

Contract: a task knows neither engine nor files. All events of clients that may share a bucket are in one task. A slice
begins at or after the end of the one before. Buckets are numbered within the task: `bucket` is a place in `buckets`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.charges import ChargedClient, Charges, ClientNumbers, charges_of
from kafka_quotas.pipeline.buckets.entities import bucket_table
from kafka_quotas.pipeline.buckets.proposal import BucketRows, Proposal, ProposedQuotas, told_apart_by
from kafka_quotas.pipeline.kernels.seconds import SecondCells, SecondsMeter
from kafka_quotas.pipeline.usage.cells import (
    BYTES,
    MUTATIONS,
    NANOS,
    REQUESTS,
    THROTTLE_MS,
    THROTTLED,
    Cells,
    cells_by_second,
    event_figures,
    widened,
)

WINDOWS_S: Final = (1, 60, 3600)
_PERCENTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
_PROFILE: Final = (*(name for name, _ in _PERCENTILES), "max", "active_share", "burst_ratio", "throttled_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePlan:
    """The quotas in force and the time frame of a usage job."""

    quotas: Proposal
    """Quotas in force; with none, every client has a bucket of its own."""
    seconds: int
    """Length of the recording."""
    window: QuotaWindow = DEFAULT_WINDOW
    """Window of the brokers' rates."""

    def told_apart_by(self) -> tuple[str, ...]:
        """Return the columns whose equal values keep clients that may share a bucket in one task."""
        return told_apart_by([self.quotas])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUsage:
    """The results of a task: its buckets, and cells and profiles by number of the bucket."""

    buckets: pa.Table
    usage: pa.Table
    profiles: pa.Table


def usage_task(slices: Iterable[pa.Table], plan: UsagePlan) -> TaskUsage:
    """Sum up the usage of every charged bucket by windows, and compute its profile."""
    clients = ClientNumbers()
    meters = {each: _Meter(plan, each) for each in QuotaType}
    for events in slices:
        numbers, figures = clients.of(events), event_figures(events)
        for charges in charges_of(events, numbers, meters.__contains__):
            meters[charges.quota_type].add(charges, clients.clients, figures)
    first, buckets, usage, profiles = 0, [], [usage_schema().empty_table()], [profile_schema().empty_table()]
    for meter in meters.values():
        if meter.is_used:
            cells, own = meter.cells_and_buckets()
            usage += [_usage_table(widened(cells, window_s), window_s, first) for window_s in WINDOWS_S]
            profiles.append(_profile_table(cells, plan.seconds, first))
            buckets.append(own)
            first += own.num_rows
    return TaskUsage(
        buckets=pa.concat_tables(buckets) if buckets else bucket_table([], [], QuotaType.PRODUCE),
        usage=pa.concat_tables(usage),
        profiles=pa.concat_tables(profiles),
    )


def usage_schema() -> pa.Schema:
    """Return the columns of cells, where `peak_rate` is in the unit of the quota key."""
    figures = [("bytes", pa.int64()), ("requests", pa.int64()), ("thread_ms", pa.float64()), ("mutations", pa.int64())]
    times = [("bucket", pa.int64()), ("window_start_ms", pa.int64()), ("window_s", pa.int32())]
    return pa.schema(
        [*times, *figures, ("peak_rate", pa.float64()), ("throttle_ms", pa.int64()), ("throttled", pa.int64())]
    )


def profile_schema() -> pa.Schema:
    """Return the columns of profiles."""
    return pa.schema([("bucket", pa.int64()), *((name, pa.float64()) for name in _PROFILE)])


class _Meter:
    """The buckets of one quota type and their cells."""

    def __init__(self, plan: UsagePlan, quota_type: QuotaType) -> None:
        self._parts: list[SecondCells] = []
        self._quota_type = quota_type
        self._rows = BucketRows([ProposedQuotas(plan.quotas, quota_type)])
        self._row_of_client = np.empty(0, dtype=np.int32)
        self._meter = SecondsMeter(plan.window)

    @property
    def is_used(self) -> bool:
        """Whether the quota type has charges."""
        return bool(self._parts)

    def add(self, charges: Charges, clients: Sequence[ChargedClient], figures: NDArray[np.int64]) -> None:
        """Add the charges of a slice."""
        if len(clients) > self._row_of_client.size:
            self._row_of_client = self._rows.grow(clients)
            self._meter.grow(len(self._rows.names))
        rows = self._row_of_client[charges.clients]
        cells = self._meter.add(rows, charges.times_ms, charges.amounts, events=charges.events, figures=figures)
        self._parts.append(cells)

    def cells_and_buckets(self) -> tuple[Cells, pa.Table]:
        """Return all cells by the second and their buckets, once: the collected parts are freed."""
        cells = cells_by_second(self._parts)
        self._parts.clear()
        used = cells.rows[cells.starts]  # a client of one quota type need not be one of another
        names = [self._rows.names[row] for row in used.tolist()]
        matches = [self._rows.matches[row][0] for row in used.tolist()]
        renumbered = replace(cells, rows=np.searchsorted(used, cells.rows))
        return renumbered, bucket_table(names, matches, self._quota_type)


def _usage_table(cells: Cells, window_s: int, first: int) -> pa.Table:
    columns = [
        cells.rows + first,
        cells.windows * window_s * 1000,
        np.full(cells.rows.size, window_s, dtype=np.int32),
        cells.figures[BYTES],
        cells.figures[REQUESTS],
        cells.figures[NANOS] / 1e6,
        cells.figures[MUTATIONS],
        cells.peaks,
        cells.figures[THROTTLE_MS],
        cells.figures[THROTTLED],
    ]
    return pa.table(columns, schema=usage_schema())


def _profile_table(cells: Cells, seconds: int, first: int) -> pa.Table:
    starts = cells.starts
    counts = np.diff(np.append(starts, cells.rows.size))
    rates = cells.rates[np.lexsort((cells.rates, cells.rows))]
    amounts, peaks = np.add.reduceat(cells.amounts, starts), np.maximum.reduceat(cells.peaks, starts)
    throttled = np.add.reduceat((cells.figures[THROTTLED] > 0).astype(np.int64), starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        bursts = np.where(amounts > 0, peaks / (amounts / counts), 1.0)
    columns: list[Any] = [
        cells.rows[starts] + first,
        *(rates[starts + _ranks(counts, share)] for _, share in _PERCENTILES),
        rates[starts + counts - 1],
        counts / seconds,
        bursts,
        throttled / counts,
    ]
    return pa.table(columns, schema=profile_schema())


def _ranks(counts: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """Return the rank of a percentile among N sorted values, for each N in `counts`."""
    ranks: NDArray[np.int64] = np.maximum(np.ceil(counts * share).astype(np.int64) - 1, 0)
    return ranks
