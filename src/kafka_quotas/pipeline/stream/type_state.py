"""The live state of one quota type: the usage and throttle state of every bucket.

Its limiters report rates and can be saved and restored as arrays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.quota_bucket import UNLIMITED
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import BucketName, ProposedQuotas
from kafka_quotas.pipeline.kernels import loop
from kafka_quotas.pipeline.kernels.admission import measure_rates
from kafka_quotas.pipeline.kernels.limiters import LimiterRule, Limiters
from kafka_quotas.pipeline.kernels.order import order_within_rows
from kafka_quotas.pipeline.stream.bucket_charges import BucketCharges, joined

_SAVED: Final = ("_clocks", "_sums", "_free_ms", "_counts", "_amounts", "_slots", "_pool", "_pool_used")


class LiveLimiters(Limiters):
    """The buckets of one quota type, growing in number, with one limit each."""

    def __init__(self, quota_type: QuotaType, window: QuotaWindow = DEFAULT_WINDOW) -> None:
        rule = LimiterRule(
            tokens=quota_type is QuotaType.CONTROLLER_MUTATION, bounded=quota_type is QuotaType.REQUEST, window=window
        )
        super().__init__(rule, np.empty((0, 1)))

    def limit(self, bounds: list[float | None]) -> None:
        """Set the limits of all buckets from now on, None for none."""
        column = [UNLIMITED if bound is None else bound for bound in bounds]
        self.rebound(np.array(column, dtype=np.float64).reshape(-1, 1))

    def rates(self, rows: NDArray[np.int64], times_ms: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return Kafka's rate of each bucket at its own time, or for mutations the tokens left."""
        self._require_fit(rows, times_ms)
        window = self.rule.window
        if self.rule.tokens:
            return self._sums[rows]
        rates = np.zeros(rows.size)
        measure_rates(rows, times_ms, self._clocks, self._sums, window.samples, window.window_ms, rates)
        return rates

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all recorded state by name."""
        return {name: getattr(self, name) for name in _SAVED}

    def restore(self, arrays: Mapping[str, NDArray[Any]], bounds: list[float | None]) -> None:
        """Restore saved state under new limits.

        Raises:
            ValueError: The state was saved under another rule or for other buckets.
        """
        self.limit(bounds)
        for name in _SAVED:
            setattr(self, name, arrays[name])
        self._require_fit(np.empty(0, dtype=np.int64))


LONG_AGO_MS: Final = -(2**62)
"""A time before any other."""
_OWN_ARRAYS: Final = ("_latest_ms", "_total_events", "_total_amount")

Int64s = NDArray[np.int64]
Broker = tuple[str, int]
"""A cluster and the id of a broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sums:
    """The charges of one batch summed by bucket."""

    events: Int64s
    amount: NDArray[np.float64]
    observed_ms: Int64s
    """Throttle time in the events, in ms."""


class LiveType:
    """Buckets by cluster, broker, user and client-id, with rows numbered in order of appearance."""

    def __init__(self, quota_type: QuotaType, quotas: ProposedQuotas, window: QuotaWindow = DEFAULT_WINDOW) -> None:
        self._type = quota_type
        self._quotas = quotas
        self._limiters = LiveLimiters(quota_type, window)
        self._rows: dict[BucketName, int] = {}
        self._bounds: list[float | None] = []
        self._latest_ms: Int64s = np.empty(0, dtype=np.int64)
        self._brokers: dict[Broker, int] = {}
        self._broker_of_row: list[int] = []
        self._total_events: Int64s = np.empty(0, dtype=np.int64)
        self._total_amount = np.empty(0)

    @property
    def buckets(self) -> list[BucketName]:
        """The buckets by row."""
        return list(self._rows)

    def take(self, found: Iterable[BucketCharges], horizons_ms: Mapping[Broker, int]) -> dict[str, list[Any]]:
        """Apply charges to their buckets and return these buckets' rows of `live`, without the batch's number.

        Charges older than the horizon of their broker are late: counted but not applied. Others that are older than
        the bucket's latest are applied at that time, as a broker's clock would have it.
        """
        charges = self._in_order(found)
        rows = charges.rows
        of_broker = np.array([horizons_ms.get(each, LONG_AGO_MS) for each in self._brokers], dtype=np.int64)
        late = charges.times_ms < of_broker[np.array(self._broker_of_row, dtype=np.int64)][rows]
        prompt = rows[~late]
        times_ms = np.maximum(charges.times_ms[~late], self._latest_ms[prompt])
        before = self._limiters.counts[:, 0, :].copy()
        self._limiters.run(prompt.astype(np.int32), times_ms, charges.amounts[~late])
        np.maximum.at(self._latest_ms, prompt, times_ms)
        taken, missed = (self._sums(charges, picked) for picked in (~late, late))
        self._total_events += taken.events + missed.events
        self._total_amount += taken.amount + missed.amount
        return self._report(np.flatnonzero(taken.events + missed.events), before, taken, missed)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays, to be saved with `buckets`."""
        return {name: getattr(self, name) for name in _OWN_ARRAYS} | self._limiters.arrays()

    def restore(self, buckets: Iterable[BucketName], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore saved buckets and arrays under today's quotas."""
        for bucket in buckets:
            self._add(bucket)
        self._limiters.restore(arrays, self._bounds)
        for name in _OWN_ARRAYS:
            setattr(self, name, arrays[name])

    def clocks_ms(self) -> dict[Broker, int]:
        """Return the latest time that was applied of each broker."""
        latest_ms = np.full(len(self._brokers), LONG_AGO_MS)
        np.maximum.at(latest_ms, np.array(self._broker_of_row, dtype=np.int64), self._latest_ms)
        return dict(zip(self._brokers, latest_ms.tolist(), strict=True))

    def _in_order(self, found: Iterable[BucketCharges]) -> BucketCharges:
        """Return all charges with rows of this state, each row's by time."""
        own = [each._replace(rows=self._rows_of(each.buckets)[each.rows]) for each in found]
        charges = joined(own)
        order = order_within_rows(charges.rows.astype(np.int32), charges.times_ms, row_count=len(self._bounds))
        return (
            charges
            if order is None
            else charges._replace(
                **{name: getattr(charges, name)[order] for name in ("rows", "times_ms", "amounts", "throttle_ms")}
            )
        )

    def _rows_of(self, buckets: Iterable[BucketName]) -> Int64s:
        """Return the row of each bucket, and add rows for new ones."""
        known = len(self._bounds)
        rows = np.array([self._add(each) for each in buckets], dtype=np.int64)
        added = len(self._bounds) - known
        if added:
            self._limiters.limit(self._bounds)
            self._latest_ms = np.concatenate([self._latest_ms, np.full(added, LONG_AGO_MS)])
            self._total_events = np.concatenate([self._total_events, np.zeros(added, dtype=np.int64)])
            self._total_amount = np.concatenate([self._total_amount, np.zeros(added)])
        return rows

    def _add(self, name: BucketName) -> int:
        if name not in self._rows:
            match = self._quotas.match((name.user, name.client_id))
            self._rows[name] = len(self._bounds)
            self._bounds.append(None if match is None else match.limit)
            self._broker_of_row.append(self._brokers.setdefault(name[:2], len(self._brokers)))
        return self._rows[name]

    def _sums(self, charges: BucketCharges, picked: NDArray[np.bool_]) -> _Sums:
        size, rows = len(self._bounds), charges.rows
        return _Sums(
            events=np.bincount(rows[picked], minlength=size),
            amount=np.bincount(rows[picked], weights=charges.amounts[picked], minlength=size).astype(np.float64),
            observed_ms=np.bincount(rows[picked], weights=charges.throttle_ms[picked], minlength=size).astype(np.int64),
        )

    def _report(self, rows: Int64s, before: Int64s, taken: _Sums, missed: _Sums) -> dict[str, list[Any]]:
        counts = self._limiters.counts[rows, 0, :]
        gained = counts - before[rows]
        latest_ms, end_ms = self._latest_ms[rows], counts[:, loop.END_MS]
        is_known = latest_ms > LONG_AGO_MS
        rates = self._limiters.rates(rows[is_known], latest_ms[is_known])
        rate_of = dict(zip(rows[is_known].tolist(), rates.tolist(), strict=True))
        buckets = self.buckets
        named = [buckets[row] for row in rows.tolist()]
        held = (counts[:, loop.THROTTLED] > 0) & (end_ms > latest_ms)
        return {
            "ts_ms": np.where(is_known, latest_ms, 0).tolist(),
            "cluster": [name[0] for name in named],
            "broker_id": [name[1] for name in named],
            "quota_type": [self._type.value] * rows.size,
            "user": [name[2] for name in named],
            "client_id": [name[3] for name in named],
            "events": taken.events[rows].tolist(),
            "amount": taken.amount[rows].tolist(),
            "rate": [rate_of.get(row, 0.0) for row in rows.tolist()],
            "quota": [self._bounds[row] for row in rows],
            "throttled_events": gained[:, loop.THROTTLED].tolist(),
            "throttle_ms": gained[:, loop.THROTTLE_MS].tolist(),
            "throttled_until_ms": [
                end if is_held else None for end, is_held in zip(end_ms.tolist(), held, strict=True)
            ],
            "observed_throttle_ms": (taken.observed_ms + missed.observed_ms)[rows].tolist(),
            "late_events": missed.events[rows].tolist(),
            "late_amount": missed.amount[rows].tolist(),
            "total_events": self._total_events[rows].tolist(),
            "total_amount": self._total_amount[rows].tolist(),
        }
