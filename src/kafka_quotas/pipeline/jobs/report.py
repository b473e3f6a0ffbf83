"""A report on traffic: usage over all brokers and by time, limits, and the recommendation.

Clients that a page names come here, with counts and sums of all others.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.buckets.charges import AMOUNTS
from kafka_quotas.pipeline.buckets.proposal import Proposal, common_requests
from kafka_quotas.pipeline.engine.events import Events
from kafka_quotas.pipeline.jobs.recommend.advice import Recommendation
from kafka_quotas.pipeline.jobs.recommend.job import recommend
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan
from kafka_quotas.pipeline.jobs.usage.job import WINDOWS_S, UsagePlan, UsageTables, usage

Name = tuple[str | None, str | None]
NEARLY_FULL = 0.9
"""A client that uses this share of its limit is near it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The usage of one quota type by one client (or group under one limit), over all brokers.

    `p99`, `quota` and `used` are those of the broker where it is nearest to its limit, or busiest without a limit.
    Rates are in the unit of the quota key.
    """

    quota_type: QuotaType
    user: str | None
    client_id: str | None
    average: float
    """Average rate over the recording, summed over all brokers."""
    p99: float
    quota: float | None
    throttle_ms: int
    throttled_share: float
    """Largest share of active seconds with a throttle time at any broker, 0 to 1."""

    @property
    def used(self) -> float | None:
        """The 99th percentile of the rate by the limit, None without a limit."""
        return None if self.quota is None else self.p99 / self.quota if self.quota else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTraffic:
    """The traffic of all clients."""

    clients: int
    """Clients that used anything."""
    amounts: Mapping[QuotaType, float]
    """What all of them used of each quota type, in the unit of its key times seconds."""
    largest: Mapping[QuotaType, tuple[Traffic, ...]]
    """The clients of each quota type with the highest averages, the highest first."""
    busiest: tuple[Name, ...]
    """The clients that wrote and read the most bytes, the largest first."""
    throttled: int
    """Clients with a throttle time."""
    longest_share: float
    """Largest `throttled_share` of theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedTraffic:
    """The traffic under limits, and throttled traffic that no limit explains."""

    count: int
    limited: int
    """How many of these have a limit."""
    near: int
    """How many use `NEARLY_FULL` of theirs or more."""
    nearest: tuple[Traffic, ...]
    """Those nearest to their limits, the nearest first, and behind them those without one."""
    nearest_of: Mapping[QuotaType, tuple[Traffic, ...]]
    """Those of each quota type with a limit, likewise."""


LARGEST_SHOWN: Final = 10
"""Clients of each quota type that a page shows."""
NEAREST_SHOWN: Final = 25
"""Clients near their limits that it shows, of all quota types together."""
BUSIEST_SHOWN: Final = 12
"""Clients that it shows by time."""
_AMOUNTS: Final = " ".join(
    f"WHEN '{kind.value}' THEN {column} * CAST({factor} AS DOUBLE)" for kind, (column, factor) in AMOUNTS.items()
)
_USED: Final = "CASE WHEN quota IS NULL THEN -1 WHEN quota = 0 THEN CAST('Infinity' AS DOUBLE) ELSE p99 / quota END"
_CLIENT: Final = "quota_type, user, client_id"
_KINDS: Final = " ".join(f"WHEN '{kind.value}' THEN {place}" for place, kind in enumerate(QuotaType))
_NEAREST: Final = f"used DESC, CASE quota_type {_KINDS} END, amount DESC, broker_id, user, client_id"


def traffic_rows(used: UsageTables, *, cluster: str, seconds: int) -> str:
    """Name a row of each quota type and client of a cluster, over all brokers.

    `p99` and `quota` are those of the broker where it is nearest to its limit, and `broker_id` is the lowest.
    """
    tables = used.tables
    chosen = tables.add("chosen", pa.table({"cluster": [cluster]}))
    at_brokers = f"""SELECT *, CASE quota_type {_AMOUNTS} END AS amount, row_number() OVER (PARTITION BY {_CLIENT}
            ORDER BY {_USED} DESC, p99 DESC) AS place FROM {used.buckets} JOIN {chosen} USING (cluster)"""
    rows = f"""SELECT {_CLIENT}, min(broker_id) AS broker_id, max(CASE WHEN place = 1 THEN p99 END) AS p99,
            max(CASE WHEN place = 1 THEN quota END) AS quota, CAST(sum(throttle_ms) AS BIGINT) AS throttle_ms,
            max(throttled_share) AS throttled_share, sum(amount) AS amount
        FROM ({at_brokers}) AS at_brokers GROUP BY {_CLIENT}"""
    return tables.define(
        "traffic", f"SELECT *, {_USED} AS used, amount / {seconds} AS average FROM ({rows}) AS of_clients", keep=True
    )


def client_traffic(used: UsageTables, *, cluster: str, seconds: int) -> ClientTraffic:
    """Return the traffic of a cluster's clients in a recording of some seconds."""
    tables, rows = used.tables, traffic_rows(used, cluster=cluster, seconds=seconds)
    found = tables.query(
        f"""SELECT count(*) AS clients, count(*) FILTER (WHERE throttle_ms > 0) AS throttled, max(longest) AS longest
        FROM (SELECT user, client_id, sum(throttle_ms) AS throttle_ms,
            max(CASE WHEN throttle_ms > 0 THEN throttled_share END) AS longest FROM {rows} GROUP BY user, client_id)
            AS of_clients"""
    ).to_pylist()[0]
    amounts = tables.query(f"SELECT quota_type, sum(amount) AS amount FROM {rows} GROUP BY quota_type").to_pylist()
    busiest = tables.query(
        f"""SELECT user, client_id, sum(amount) AS amount FROM {rows} WHERE quota_type IN ('produce', 'fetch')
        GROUP BY user, client_id ORDER BY amount DESC, user, client_id LIMIT {BUSIEST_SHOWN}"""
    )
    return ClientTraffic(
        clients=found["clients"],
        amounts=dict.fromkeys(QuotaType, 0.0) | {QuotaType(row["quota_type"]): row["amount"] for row in amounts},
        largest=_first_of_kinds(used, f"{rows} WHERE amount > 0", "amount DESC, broker_id, user, client_id"),
        busiest=tuple((row["user"] or None, row["client_id"] or None) for row in busiest.to_pylist()),
        throttled=found["throttled"],
        longest_share=found["longest"] or 0.0,
    )


def limited_traffic(used: UsageTables, *, cluster: str, seconds: int) -> LimitedTraffic:
    """Return the traffic of a cluster under limits, and the throttled traffic that no limit explains.

    A limit explains it that any request of its client may fall under, whatever its quota type.
    """
    tables = used.tables
    rows = tables.define(
        "asking",
        f"""SELECT *, 'all' AS part, 'all' AS asks, CASE WHEN quota IS NULL THEN 0 ELSE 1 END AS limited
        FROM {traffic_rows(used, cluster=cluster, seconds=seconds)} WHERE quota IS NOT NULL OR throttle_ms > 0""",
        keep=True,
    )
    common = common_requests(rows, ["limited"])
    explained = f"SELECT asks, user, client_id, limited > 0 AS is_explained FROM ({common}) AS common"
    shown = tables.define(
        "shown",
        f"""SELECT {rows}.* FROM {rows} LEFT JOIN ({explained}) AS explained USING (asks, user, client_id)
        WHERE quota IS NOT NULL OR NOT coalesce(is_explained, false)""",
        keep=True,
    )
    found = tables.query(
        f"""SELECT count(*) AS n, count(*) FILTER (WHERE limited > 0) AS limited,
            count(*) FILTER (WHERE used >= {NEARLY_FULL}) AS near FROM {shown}"""
    ).to_pylist()[0]
    nearest = tables.query(f"SELECT * FROM {shown} ORDER BY {_NEAREST} LIMIT {NEAREST_SHOWN}")
    return LimitedTraffic(
        count=found["n"],
        limited=found["limited"],
        near=found["near"],
        nearest=_traffic(nearest),
        nearest_of=_first_of_kinds(used, f"{shown} WHERE limited > 0", _NEAREST),
    )


def _first_of_kinds(used: UsageTables, rows: str, order: str) -> dict[QuotaType, tuple[Traffic, ...]]:
    found = used.tables.query(
        f"""SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY quota_type ORDER BY {order}) AS place FROM {rows})
            AS placed WHERE place <= {LARGEST_SHOWN} ORDER BY place"""
    )
    first = _traffic(found)
    return {kind: tuple(each for each in first if each.quota_type is kind) for kind in QuotaType}


def _traffic(rows: pa.Table) -> tuple[Traffic, ...]:
    names = [each.name for each in fields(Traffic)]
    return tuple(
        Traffic(
            **row
            | {"quota_type": QuotaType(row["quota_type"])}
            | {name: row[name] or None for name in ("user", "client_id")}
        )
        for row in rows.select(names).to_pylist()
    )


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
    first: int | None
    """First column in multiples of `length_s` since 1970, None for hours of the day."""

    @property
    def cell_s(self) -> int:
        """Length of the cells to count: 1, 60 or 3600."""
        return _HOUR_S if self.first is None else 60 if self.length_s % 60 == 0 else 1


def slots_of(first_ms: int, last_ms: int) -> Slots:
    """Choose the columns for a recording from the first to the last time.

    Recordings of more than half a day get the hours of the day (UTC).
    """
    first_s, end_s = first_ms // 1000, last_ms // 1000 + 1
    is_by_hour = end_s - first_s > _DAY_FROM_S
    fitting = (each for each in _LENGTHS_S if (end_s - first_s) / each <= _MOST_SLOTS)
    length_s = _HOUR_S if is_by_hour else next(fitting, _LENGTHS_S[-1])
    numbers = np.arange(first_s // length_s, (end_s - 1) // length_s + 1)
    seconds = np.minimum((numbers + 1) * length_s, end_s) - np.maximum(numbers * length_s, first_s)
    pattern = "%H:%M" if length_s % 60 == 0 else "%H:%M:%S"
    names = tuple(datetime.fromtimestamp(number * length_s, UTC).strftime(pattern) for number in numbers.tolist())
    if is_by_hour:
        names = tuple(f"{hour:02}" for hour in range(_HOURS))
        seconds = np.bincount(numbers % _HOURS, weights=seconds, minlength=_HOURS)
    first = None if is_by_hour else int(numbers[0])
    return Slots(names=names, seconds=tuple(map(float, seconds)), length_s=length_s, first=first)


def rates_by_slot(
    used: UsageTables, slots: Slots, clients: Sequence[Name], *, cluster: str
) -> tuple[tuple[float, ...], ...]:
    """Return the average bytes/s that clients of a cluster wrote and read in each column of a heat map."""
    wanted = [
        {"cluster": cluster, "place": place, "user": user or "", "client_id": client_id or ""}
        for place, (user, client_id) in enumerate(clients)
    ]
    names = pa.schema(
        [("cluster", pa.string()), ("place", pa.int32()), ("user", pa.string()), ("client_id", pa.string())]
    )
    slot = f"CAST(floor(window_start_ms / {slots.length_s * 1000}) AS BIGINT)"
    slot = f"{slot} % {_HOURS}" if slots.first is None else f"{slot} - {slots.first}"
    found = used.tables.query(
        f"""SELECT place, {slot} AS slot, CAST(sum(bytes) AS BIGINT) AS bytes
        FROM {used.windows} JOIN {used.tables.add("wanted", pa.Table.from_pylist(wanted, names))}
            USING (cluster, user, client_id)
        WHERE quota_type IN ('produce', 'fetch') AND window_s = {slots.cell_s} GROUP BY place, slot"""
    )
    sums = np.zeros((len(clients), len(slots.names)))
    sums[found["place"].to_numpy(), found["slot"].to_numpy()] = found["bytes"].to_numpy()
    return tuple(map(tuple, (sums / np.maximum(np.array(slots.seconds), 1.0)).tolist()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficReport:
    """The content of a report."""

    quotas: str
    """Name of the quotas in force."""
    clients: ClientTraffic
    """Traffic of the clients, in the scope of the recommendation."""
    limited: LimitedTraffic
    """Traffic of the buckets of the quotas in force that have a limit or were throttled."""
    slots: Slots
    """The columns of a heat map."""
    rates: tuple[tuple[float, ...], ...]
    """Average bytes/s of the busiest clients in each column."""
    recommendation: Recommendation


def report(events: Events, plan: RecommendPlan, quotas: Proposal, *, step: Callable[[str], None]) -> TrafficReport:
    """Compute the content of a report, with the errors of `recommend`.

    `quotas` are those in force. `step` is called with the name of each step as it begins.

    Raises:
        UsageError: There are no events.
    """
    recorded = events.recorded
    if recorded.first_ms is None or recorded.last_ms is None:
        raise UsageError("there are no events", hint="kafka-quotas pipeline ingest reads them")
    slots = slots_of(recorded.first_ms, recorded.last_ms)
    advised = recommend(
        events, replace(plan, in_force=quotas, windows_s=tuple(sorted({slots.cell_s, *WINDOWS_S}))), step=step
    )
    step("usage by quota")
    in_force = usage(events, UsagePlan(quotas=quotas, seconds=recorded.seconds, window=plan.window))
    own, cluster = advised.observed, advised.cluster
    with events.errors("summing up usage by client"):
        clients = client_traffic(own, cluster=cluster, seconds=recorded.seconds)
        return TrafficReport(
            quotas=quotas.name,
            clients=clients,
            limited=limited_traffic(in_force, cluster=cluster, seconds=recorded.seconds),
            slots=slots,
            rates=rates_by_slot(own, slots, clients.busiest, cluster=cluster),
            recommendation=advised,
        )
