"""Usage by client, over all brokers and by broker, and by time: from the tables of the job `usage`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.usage.tables import UsageTables
from kafka_quotas.pipeline.usage.task import TOTALS

Name = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The usage of one quota type by one client (or group under one limit), over all brokers.

    `p99`, `limit` and `used` are those of the broker where it is nearest to its limit, or busiest without a limit.
    Rates are in the unit of the quota key.
    """

    quota_type: QuotaType
    user: str | None
    client_id: str | None
    amount: float
    """Used amount in the unit of the quota key times seconds."""
    average: float
    """Average rate over the recording, summed over all brokers."""
    p99: float
    limit: float | None
    """Quota, None for none."""
    throttle_ms: int
    throttled_share: float
    """Largest share of active seconds with a throttle time at any broker, 0 to 1."""
    requests: int

    @property
    def used(self) -> float | None:
        """The 99th percentile of the rate by the limit, None without a limit."""
        return _used(self.p99, self.limit)


_NAMES: Final = pa.schema([(name, pa.string()) for name in ("cluster", "quota_type", "user", "client_id")])
_MOST_SLOTS: Final = 48
_LENGTHS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900)
_DAY_FROM_S: Final = 12 * 3600
_HOUR_S: Final = 3600
_HOURS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """The columns of a heat map."""

    names: tuple[str, ...]
    seconds: tuple[float, ...]
    """Recorded seconds of each column."""
    length_s: int
    """Length of a column."""
    cell_s: int
    """Length of the cells to count: 1, 60 or 3600."""
    first: int | None
    """First column in multiples of `length_s` since 1970, None for hours of the day."""

    def of(self, starts_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the column of each cell by its start."""
        numbers = starts_ms // (self.length_s * 1000)
        return numbers % _HOURS if self.first is None else numbers - self.first


def slots_of(first_ms: int, last_ms: int) -> Slots:
    """Choose the columns for a recording from the first to the last time.

    Recordings of more than half a day get the hours of the day (UTC).
    """
    first_s, end_s = first_ms // 1000, last_ms // 1000 + 1
    if end_s - first_s > _DAY_FROM_S:
        return Slots(
            names=tuple(f"{hour:02}" for hour in range(_HOURS)),
            seconds=_recorded_by_hour(first_s, end_s),
            length_s=_HOUR_S,
            cell_s=_HOUR_S,
            first=None,
        )
    length_s = next((each for each in _LENGTHS_S if (end_s - first_s) / each <= _MOST_SLOTS), _LENGTHS_S[-1])
    first, last = first_s // length_s, (end_s - 1) // length_s
    pattern = "%H:%M" if length_s % 60 == 0 else "%H:%M:%S"
    numbers = range(first, last + 1)
    return Slots(
        names=tuple(datetime.fromtimestamp(number * length_s, UTC).strftime(pattern) for number in numbers),
        seconds=tuple(
            float(min((number + 1) * length_s, end_s) - max(number * length_s, first_s)) for number in numbers
        ),
        length_s=length_s,
        cell_s=60 if length_s % 60 == 0 else 1,
        first=first,
    )


def _recorded_by_hour(first_s: int, end_s: int) -> tuple[float, ...]:
    seconds = [0.0] * _HOURS
    for hour in range(first_s // _HOUR_S, (end_s - 1) // _HOUR_S + 1):
        seconds[hour % _HOURS] += min((hour + 1) * _HOUR_S, end_s) - max(hour * _HOUR_S, first_s)
    return tuple(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Average bytes/s written and read, by client and time."""

    clients: tuple[Name, ...]
    slots: Slots
    rates: tuple[tuple[float, ...], ...]
    """Rates in bytes/s, a line of columns per client."""


def traffic_of(tables: UsageTables, *, cluster: str, seconds: int) -> tuple[Traffic, ...]:
    """Return the usage of each client of a cluster, the largest of each quota type first.

    `seconds` is the length of the recording.
    """
    columns = ("quota", "p99", "throttled_share", *TOTALS)
    rows: dict[tuple[str, Name], list[dict[str, Any]]] = {}
    for row in tables.buckets(columns, only=pc.field("cluster") == cluster).to_pylist():
        rows.setdefault((row["quota_type"], (row["user"], row["client_id"])), []).append(row)
    found = [_traffic(QuotaType(kind), name, each, seconds) for (kind, name), each in rows.items()]
    order = list(QuotaType)
    return tuple(sorted(found, key=lambda each: (order.index(each.quota_type), -each.average)))


def limited_traffic(traffic: Sequence[Traffic]) -> tuple[Traffic, ...]:
    """Return the traffic with a limit, and throttled traffic that no limit of its client explains."""
    names = {(each.user, each.client_id) for each in traffic if each.limit is not None}
    users, client_ids = {user for user, _ in names}, {client_id for _, client_id in names}

    def is_explained(each: Traffic) -> bool:
        if each.user is None and each.client_id is None:
            return bool(names)
        if each.user is None:
            return not client_ids.isdisjoint({each.client_id, None})
        if each.client_id is None:
            return not users.isdisjoint({each.user, None})
        return any(name in names for name in product((each.user, None), (each.client_id, None)))

    return tuple(each for each in traffic if each.limit is not None or (each.throttle_ms and not is_explained(each)))


def largest_clients(traffic: Sequence[Traffic], count: int) -> list[Name]:
    """Return up to `count` clients that wrote and read the most bytes, the largest first."""
    amounts: dict[Name, float] = {}
    for each in traffic:
        if each.quota_type in (QuotaType.PRODUCE, QuotaType.FETCH):
            name = each.user, each.client_id
            amounts[name] = amounts.get(name, 0.0) + each.amount
    return sorted(amounts, key=lambda name: (-amounts[name], name[0] or "", name[1] or ""))[:count]


def heat_map(tables: UsageTables, slots: Slots, clients: Sequence[Name], *, cluster: str) -> HeatMap:
    """Compute the heat map of these clients of a cluster, summed over their brokers."""
    rows = {name: place for place, name in enumerate(clients)}
    wanted = pa.Table.from_pylist(
        [
            {"cluster": cluster, "quota_type": kind, "user": user, "client_id": client_id}
            for kind in ("produce", "fetch")
            for user, client_id in clients
        ],
        _NAMES,
    )
    usage = tables.bytes_of(wanted, window_s=slots.cell_s)
    sums = np.zeros((len(clients), len(slots.names)))
    own = zip(usage["user"].to_pylist(), usage["client_id"].to_pylist(), strict=True)
    places = np.array([rows[name] for name in own], dtype=np.int64)
    np.add.at(sums, (places, slots.of(usage["window_start_ms"].to_numpy())), usage["bytes"].to_numpy())
    rates = sums / np.maximum(np.array(slots.seconds), 1.0)
    return HeatMap(clients=tuple(clients), slots=slots, rates=tuple(tuple(row) for row in rates.tolist()))


def _traffic(quota_type: QuotaType, name: Name, rows: Sequence[dict[str, Any]], seconds: int) -> Traffic:
    nearest = max(rows, key=lambda row: (_used(row["p99"], row["quota"]) or 0.0, row["p99"]))
    amount = sum(_amount(quota_type, row) for row in rows)
    return Traffic(
        quota_type=quota_type,
        user=name[0],
        client_id=name[1],
        amount=amount,
        average=amount / seconds,
        p99=nearest["p99"],
        limit=nearest["quota"],
        throttle_ms=sum(row["throttle_ms"] for row in rows),
        throttled_share=max(row["throttled_share"] for row in rows),
        requests=sum(row["requests"] for row in rows),
    )


def _used(p99: float, limit: float | None) -> float | None:
    if limit is None:
        return None
    return p99 / limit if limit else math.inf


def _amount(quota_type: QuotaType, row: dict[str, Any]) -> float:
    """Return the used amount in the unit of the quota key times seconds."""
    if quota_type is QuotaType.REQUEST:
        return float(row["thread_ms"]) * 0.1
    if quota_type is QuotaType.REQUEST_RATE:
        return float(row["requests"])
    return float(row["mutations"] if quota_type is QuotaType.CONTROLLER_MUTATION else row["bytes"])
