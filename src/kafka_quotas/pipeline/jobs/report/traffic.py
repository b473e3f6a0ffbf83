"""Usage over all brokers, of the clients that a page names, and counts and sums of all others."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.sharing import common_requests
from kafka_quotas.pipeline.engine.sql import SqlTables
from kafka_quotas.pipeline.jobs.usage.job import UsageTables

Name = tuple[str | None, str | None]
NEARLY_FULL = 0.9
"""A client that uses this share of its limit is near it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The usage of one quota type by one client (or group under one limit), over all brokers.

    `p99`, `limit` and `used` are those of the broker where it is nearest to its limit, or busiest without a limit.
    Rates are in the unit of the quota key.
    """

    quota_type: QuotaType
    user: str | None
    client_id: str | None
    average: float
    """Average rate over the recording, summed over all brokers."""
    p99: float
    limit: float | None
    """Quota, None for none."""
    throttle_ms: int
    throttled_share: float
    """Largest share of active seconds with a throttle time at any broker, 0 to 1."""

    @property
    def used(self) -> float | None:
        """The 99th percentile of the rate by the limit, None without a limit."""
        if self.limit is None:
            return None
        return self.p99 / self.limit if self.limit else math.inf


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
_AMOUNT: Final = """CASE quota_type WHEN 'request' THEN thread_ms * CAST(0.1 AS DOUBLE)
    WHEN 'request_rate' THEN CAST(requests AS DOUBLE) WHEN 'controller_mutation' THEN CAST(mutations AS DOUBLE)
    ELSE CAST(bytes AS DOUBLE) END"""
"""What was used, in the unit of the quota key times seconds."""
_USED: Final = "CASE WHEN quota IS NULL THEN -1 WHEN quota = 0 THEN CAST('Infinity' AS DOUBLE) ELSE p99 / quota END"
_CLIENT: Final = "quota_type, user, client_id"
_KINDS: Final = " ".join(f"WHEN '{kind.value}' THEN {place}" for place, kind in enumerate(QuotaType))
_NEAREST: Final = f"used DESC, CASE quota_type {_KINDS} END, amount DESC, broker_id, user, client_id"


def traffic_rows(used: UsageTables, *, cluster: str) -> str:
    """Name a row of each quota type and client of a cluster, over all brokers.

    `p99` and `quota` are those of the broker where it is nearest to its limit, and `broker_id` is the lowest.
    """
    tables = used.tables
    chosen = tables.add("chosen", pa.table({"cluster": [cluster]}))
    at_brokers = f"""SELECT *, {_AMOUNT} AS amount, row_number() OVER (PARTITION BY {_CLIENT}
            ORDER BY {_USED} DESC, p99 DESC) AS place FROM {used.buckets} JOIN {chosen} USING (cluster)"""
    rows = f"""SELECT {_CLIENT}, min(broker_id) AS broker_id, max(CASE WHEN place = 1 THEN p99 END) AS p99,
            max(CASE WHEN place = 1 THEN quota END) AS quota, CAST(sum(throttle_ms) AS BIGINT) AS throttle_ms,
            max(throttled_share) AS throttled_share, sum(amount) AS amount
        FROM ({at_brokers}) AS at_brokers GROUP BY {_CLIENT}"""
    return tables.define("traffic", f"SELECT *, {_USED} AS used FROM ({rows}) AS of_clients", keep=True)


def client_traffic(used: UsageTables, *, cluster: str, seconds: int) -> ClientTraffic:
    """Return the traffic of a cluster's clients in a recording of some seconds."""
    tables, rows = used.tables, traffic_rows(used, cluster=cluster)
    found = tables.query(
        f"""SELECT count(*) AS clients, count(*) FILTER (WHERE throttle_ms > 0) AS throttled, max(longest) AS longest
        FROM (SELECT user, client_id, sum(throttle_ms) AS throttle_ms,
            max(CASE WHEN throttle_ms > 0 THEN throttled_share END) AS longest FROM {rows} GROUP BY user, client_id)
            AS of_clients"""
    ).to_pylist()[0]
    amounts = tables.query(f"SELECT quota_type, sum(amount) AS amount FROM {rows} GROUP BY quota_type").to_pylist()
    largest = _first_of_kinds(
        tables, f"(SELECT * FROM {rows} WHERE amount > 0) AS used", "amount DESC, broker_id, user, client_id"
    )
    busiest = tables.query(
        f"""SELECT user, client_id, sum(amount) AS amount FROM {rows} WHERE quota_type IN ('produce', 'fetch')
        GROUP BY user, client_id ORDER BY amount DESC, user, client_id LIMIT {BUSIEST_SHOWN}"""
    )
    return ClientTraffic(
        clients=found["clients"],
        amounts=dict.fromkeys(QuotaType, 0.0) | {QuotaType(row["quota_type"]): row["amount"] for row in amounts},
        largest=_by_kind(_traffic(largest, seconds)),
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
        FROM {traffic_rows(used, cluster=cluster)} WHERE quota IS NOT NULL OR throttle_ms > 0""",
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
    of_kinds = _first_of_kinds(tables, f"(SELECT * FROM {shown} WHERE limited > 0) AS limited", _NEAREST)
    return LimitedTraffic(
        count=found["n"],
        limited=found["limited"],
        near=found["near"],
        nearest=_traffic(nearest, seconds),
        nearest_of=_by_kind(_traffic(of_kinds, seconds)),
    )


def _first_of_kinds(tables: SqlTables, rows: str, order: str) -> pa.Table:
    return tables.query(
        f"""SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY quota_type ORDER BY {order}) AS place FROM {rows})
            AS placed WHERE place <= {LARGEST_SHOWN} ORDER BY place"""
    )


def _by_kind(found: tuple[Traffic, ...]) -> dict[QuotaType, tuple[Traffic, ...]]:
    return {kind: tuple(each for each in found if each.quota_type is kind) for kind in QuotaType}


def _traffic(rows: pa.Table, seconds: int) -> tuple[Traffic, ...]:
    return tuple(
        Traffic(
            quota_type=QuotaType(row["quota_type"]),
            user=row["user"] or None,
            client_id=row["client_id"] or None,
            average=row["amount"] / seconds,
            p99=row["p99"],
            limit=row["quota"],
            throttle_ms=row["throttle_ms"],
            throttled_share=row["throttled_share"],
        )
        for row in rows.to_pylist()
    )
