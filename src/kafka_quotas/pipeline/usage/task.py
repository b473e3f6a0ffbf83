"""One task of the usage job: a stream of slices into cells, profiles and demands of every bucket.

Contract: a task knows neither engine nor files. All events of clients that may share a bucket are in one task. A slice
begins at or after the end of the one before.

Invariants: cells are sorted by row, then by time, each once. Bytes, requests, thread time (in ns), partitions and
throttle times are whole numbers, which add up alike in any order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
    charges_of,
    numbers,
    thread_nanos,
)
from kafka_quotas.pipeline.buckets.entities import bucket_schema, bucket_table, columns_table, numbered, task_schema
from kafka_quotas.pipeline.buckets.proposal import BucketRows, Proposal, ProposedQuotas, partition_columns
from kafka_quotas.pipeline.engine.job import Tables
from kafka_quotas.pipeline.kernels.limiters import SecondCells, SecondsMeter
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS, USAGE, USAGE_DEMAND, USAGE_PROFILE
from kafka_quotas.pipeline.usage.demand import HeldTime, demand_columns

BYTES: Final = 0
NANOS: Final = 1
MUTATIONS: Final = 2
THROTTLE_MS: Final = 3
THROTTLED: Final = 4
REQUESTS: Final = 5

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

TOTALS: Final = ("bytes", "requests", "thread_ms", "mutations", "throttle_ms", "throttled")
"""Columns of `usage` that are summed over all time."""
BUCKETS: Final = pa.schema(
    [
        *list(bucket_schema())[:-1],
        *list(USAGE_PROFILE.arrow_schema())[1:],
        *(USAGE.arrow_schema().field(name) for name in TOTALS),
        *(field.with_nullable(nullable=True) for field in list(USAGE_DEMAND.arrow_schema())[1:]),
        bucket_schema().field("bucket"),
    ]
)
"""All that is known of a bucket: names and limit, profile, sums over all time, and demand, null if none is asked."""
REPLICATION: Final = pa.schema(
    [("cluster", pa.string()), ("broker_id", pa.int32()), ("follower", pa.string()), ("bytes", pa.int64())]
)
"""Bytes that followers fetched, by broker and by the follower's client-id."""
WINDOWS_S: Final = (1, 60, 3600)
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

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of events that the job reads."""
        return CHARGE_COLUMNS if self.horizon_days is None else (*CHARGE_COLUMNS, "connection")

    def partition_columns(self) -> tuple[str, ...]:
        """Return the columns whose equal values keep clients that may share a bucket in one task."""
        return partition_columns([self.quotas])


def usage_task(slices: Iterable[pa.Table], plan: UsagePlan) -> Tables:
    """Sum up the usage of every charged bucket by windows, and compute its profile.

    Returns:
        The tables `buckets` (by the schema `BUCKETS`), `usage`, where `bucket` is a place in `buckets`, and
        `replication`, which is empty unless the plan asks for demands.
    """
    clients, connections = ClientNumbers(), _ConnectionNumbers()
    meters = {each: _Meter(plan, each) for each in QuotaType}
    replication = [REPLICATION.empty_table()]
    for events in slices:
        of_event, figures = clients.of(events), _event_figures(events)
        of_connection = None if plan.horizon_days is None else connections.of(events)
        if of_connection is not None:
            replication.append(_replication(events))
        for charges in charges_of(events, of_event, meters.__contains__):
            meters[charges.quota_type].add(charges, clients.clients, figures, of_connection)
    first, buckets, usage = 0, [BUCKETS.remove(len(BUCKETS) - 1).empty_table()], [task_schema(USAGE).empty_table()]
    for meter in meters.values():
        if meter.is_used:
            cells, own = meter.cells_and_buckets()
            usage += _usage_tables(cells, first)
            known = [*own.columns, *_profile_columns(cells, plan.seconds), *_totals(cells), *meter.demands(cells)]
            buckets.append(pa.table(known, schema=buckets[0].schema))
            first += own.num_rows
    return {
        "buckets": numbered(buckets),
        "usage": pa.concat_tables(usage),
        "replication": pa.concat_tables(replication),
    }


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
        self._horizon_days = plan.horizon_days
        self._used = np.empty(0, dtype=np.int64)

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

    def cells_and_buckets(self) -> tuple[Cells, pa.Table]:
        """Return all cells by the second and their buckets, once: the collected parts are freed."""
        cells = _cells_by_second(self._parts)
        self._parts.clear()
        used = self._used = cells.rows[cells.starts]  # a client of one quota type need not be one of another
        names = [self._rows.names[row] for row in used.tolist()]
        matches = [self._rows.matches[row][0] for row in used.tolist()]
        return replace(cells, rows=np.searchsorted(used, cells.rows)), bucket_table(names, matches, self._quota_type)

    def demands(self, cells: Cells) -> Sequence[Any]:
        """Return the columns of demands for the cells, null if the plan asks for none."""
        if self._horizon_days is None:
            return [pa.nulls(self._used.size, field.type) for field in list(USAGE_DEMAND.arrow_schema())[1:]]
        rows = self._used[cells.rows]
        return demand_columns(rows, cells.windows, cells.rates, self._held, horizon_days=self._horizon_days)


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


def _replication(events: pa.Table) -> pa.Table:
    """Return the bytes that each follower fetched from each broker."""
    exempt = events.filter(events["is_exempt"])
    is_fetch = pc.equal(exempt["quota_type"].cast(pa.string()), QuotaType.FETCH.value)
    fetched = exempt.filter(is_fetch).select(["cluster", "broker_id", "client_id", "bytes"]).unify_dictionaries()
    summed = fetched.group_by(["cluster", "broker_id", "client_id"]).aggregate([("bytes", "sum")])
    return summed.rename_columns(REPLICATION.names).cast(REPLICATION)


def _usage_tables(cells: Cells, first: int) -> Iterator[pa.Table]:
    """Yield a table for each length of windows, the shortest first: hours are summed from minutes."""
    rows, windows, figures, peaks, length_s = cells.rows, cells.windows, cells.figures, cells.peaks, 1
    for window_s in WINDOWS_S:
        windows = windows // (window_s // length_s)
        starts, length_s = _starts(rows, windows), window_s
        if starts.size < rows.size:
            rows, windows = rows[starts], windows[starts]
            figures, peaks = np.add.reduceat(figures, starts, axis=1), np.maximum.reduceat(peaks, starts)
        columns = [
            rows + first,
            windows * window_s * 1000,
            np.full(rows.size, window_s, dtype=np.int32),
            figures[BYTES],
            figures[REQUESTS],
            figures[NANOS] / 1e6,
            figures[MUTATIONS],
            peaks,
            figures[THROTTLE_MS],
            figures[THROTTLED],
        ]
        yield columns_table(columns, task_schema(USAGE))


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
    """Return the columns of `TOTALS` for each bucket."""
    sums = np.add.reduceat(cells.figures, cells.starts, axis=1)
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
