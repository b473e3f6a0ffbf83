"""What replication and clients take of brokers at the same time, and fair shares of their capacity.

A capacity is held against what clients would take at the same time under their limits, minute by minute: limits may
add up to more. Nothing is cut that the record shows to fit. In a minute that doesn't fit, who wants more than a fair
share is cut to it. Shares are weighted max-min fair. Every client gets what it wants up to a common level times its
priority, and the level is as high as the capacity allows: nobody can get more without somebody getting less who has no
more.

**Source:** "Data Networks" (Bertsekas, Gallager), section 6.5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_FLOOR
from typing import Final

import pyarrow as pa

from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.buckets.charges import AMOUNTS
from kafka_quotas.pipeline.engine.events import Events
from kafka_quotas.pipeline.engine.sql import SqlTables
from kafka_quotas.pipeline.jobs.recommend.advice import ROUNDING, Advice, Demand, Override
from kafka_quotas.pipeline.jobs.recommend.plan import neat_limit
from kafka_quotas.pipeline.jobs.usage.job import UsageTables
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS

_MINUTE_S: Final = 60


Replication = Mapping[int, Mapping[QuotaType, float]]
"""What followers fetch from each broker, and what it fetches as one, in bytes/s."""


def replication_of(events: Events, chosen: str, *, seconds: int) -> Replication:
    """Return what replication takes of the brokers of a cluster, by their quota types.

    A follower is recognised by the client-id of its fetcher (`BrokerBlockingSender`, Kafka 4.0). `chosen` names the row
    with the cluster, `seconds` is the length of the recording.
    """
    fetched = f"""SELECT broker_id, total_bytes, regexp_extract(client_id, '^broker-([0-9]{{1,9}})-fetcher-[0-9]+$', 1)
            AS follower FROM {events.table(PACKED_EVENTS)} JOIN {chosen} USING (cluster)
        WHERE is_exempt AND quota_type = 'fetch'"""
    rows = events.tables.query(
        f"""SELECT broker_id, CAST(sum(sent) AS BIGINT) AS sent, CAST(sum(received) AS BIGINT) AS received
        FROM (SELECT broker_id, total_bytes AS sent, 0 AS received FROM ({fetched}) AS sent UNION ALL
            SELECT TRY_CAST(follower AS INT), 0, total_bytes FROM ({fetched}) AS got WHERE follower <> '') AS fetched
        GROUP BY broker_id"""
    )
    return {
        row["broker_id"]: {QuotaType.FETCH: row["sent"] / seconds, QuotaType.PRODUCE: row["received"] / seconds}
        for row in rows.to_pylist()
    }


def within_capacity(used: UsageTables, chosen: str, advice: Advice) -> Advice:
    """Cut limits to fair shares where clients would take more at the same time than a broker has.

    `chosen` names the row with the cluster. A client that was held back wants its need whenever it takes anything.
    """
    plan, limits, tables = advice.plan, advice.limits(), used.tables
    known = {each.broker_id: each for each in advice.loads if each.capacity is not None}
    if not known:
        return advice
    asked = (each for each in advice.named if plan.priority(each) != 1)
    own = {each.name: each for each in (*(each.demand for each in advice.overrides), *advice.most_partial, *asked)}
    taken = _taken(used, chosen, advice, list(own.values()))
    before = [limits.get(name, advice.default) for name in own]
    wants = _wants(tables, taken, [*before, advice.default])
    *fair, of_default = (
        None if share is None else neat_limit(advice.quota_type.key, share, rounding=ROUND_FLOOR)
        for share in fair_shares(tables, wants, clients=len(own) + 1)
    )
    default = advice.default if of_default is None else of_default
    usual = [limits.get(name, advice.default if plan.priority(each) > 1 else default) for name, each in own.items()]
    shares = [limit if share is None else share for limit, share in zip(usual, fair, strict=True)]
    overrides = [
        Override(demand=each, limit=share, wanted=limit, broker_count=len(advice.loads))
        for each, share, limit in zip(own.values(), shares, before, strict=True)
        if each.name in limits or share != default
    ]
    overrides.sort(key=lambda each: (each.demand.needed, each.demand.name), reverse=True)
    for broker_id, wanted, at_ms in _busiest_minutes(tables, wants):
        known[broker_id] = replace(known[broker_id], wanted=wanted, at_ms=at_ms)
    for broker_id, allowed, _ in _busiest_minutes(tables, _wants(tables, taken, [*shares, default])):
        known[broker_id] = replace(known[broker_id], allowed=allowed)
    loads = tuple(known.get(each.broker_id, each) for each in advice.loads)
    return replace(advice, default=default, overrides=tuple(overrides), loads=loads)


def _taken(used: UsageTables, chosen: str, advice: Advice, own: Sequence[Demand]) -> str:
    """Name what clients took of each broker in each minute, by their place, and last what all others did.

    The others are rows of `clients` clients with their average.
    """
    (column, factor), tables, others = AMOUNTS[advice.quota_type], used.tables, len(own)
    brokers = {
        "broker_id": [each.broker_id for each in advice.loads],
        "available": [each.available for each in advice.loads],
        "others": [
            max(each.clients - sum(each.broker_id in (at.broker_id for at in by.brokers) for by in own), 1)
            for each in advice.loads
        ],
    }
    kinds = {"place": pa.int64(), "user": pa.string(), "client_id": pa.string(), "priority": pa.float64()}
    rows = [
        (place, *each.name, advice.plan.priority(each), each.needed if each.implied.is_held else 0.0)
        for place, each in enumerate(own)
    ]
    columns = list(zip(*rows, (others, None, None, 1.0, 0.0), strict=True))
    names = tables.add("own", pa.table(columns, schema=pa.schema(kinds | {"least": pa.float64()})))
    at_brokers = tables.add("brokers", pa.table(brokers))
    return tables.define(
        "taken",
        f"""SELECT broker_id, at_ms, place, priority, available, clients, greatest(rate / clients, least) AS rate
        FROM (SELECT *, CASE WHEN place = {others} THEN others ELSE 1 END AS clients
            FROM (SELECT broker_id, coalesce(place, {others}) AS place, window_start_ms AS at_ms,
                    sum({column} * CAST({factor} AS DOUBLE)) / {_MINUTE_S} AS rate
                FROM {used.windows} JOIN {chosen} USING (cluster) LEFT JOIN {names} USING (user, client_id)
                WHERE quota_type = '{advice.quota_type.value}' AND window_s = {_MINUTE_S}
                GROUP BY broker_id, coalesce(place, {others}), window_start_ms) AS rates
            JOIN {at_brokers} USING (broker_id)) AS counted JOIN {names} USING (place)
        WHERE rate > 0 AND available < CAST('Infinity' AS DOUBLE)""",
        keep=True,
    )


def _wants(tables: SqlTables, taken: str, limits: Sequence[float]) -> str:
    """Return a query for what each client would take under its limit."""
    bounds = tables.add("bounds", pa.table({"place": range(len(limits)), "bound": limits}))
    return f"SELECT *, least(rate, bound) AS want FROM {taken} JOIN {bounds} USING (place)"


def _busiest_minutes(tables: SqlTables, wants: str) -> list[tuple[int, float, int]]:
    """Return the busiest minute of each broker, the first of equals, with what clients would take in it."""
    found = tables.query(
        f"""SELECT broker_id, total, at_ms FROM (SELECT *, row_number() OVER (PARTITION BY broker_id
                ORDER BY total DESC, at_ms) AS place
            FROM (SELECT broker_id, at_ms, sum(want * clients) AS total FROM ({wants}) AS wants
                GROUP BY broker_id, at_ms) AS minutes) AS placed
        WHERE place = 1"""
    )
    return [tuple(row.values()) for row in found.to_pylist()]


def fair_shares(tables: SqlTables, wants: str, *, clients: int) -> list[float | None]:
    """Return the least fair share of each client, by place, over the minutes in which it wants more.

    Clients that want the least by their priority are given it first. The level is what is left for each unit of the
    priorities of the others. It rises until somebody wants more, and would fall from there on.

    `wants` is a query for `want`, `priority`, `clients` and `place` by `broker_id` and `at_ms`, with the broker's
    `available`. There are `clients` places.
    """
    minute = "PARTITION BY broker_id, at_ms"
    ranked = f"{minute} ORDER BY want / priority, place ROWS BETWEEN"
    found = tables.query(
        f"""SELECT place, min(level * priority) AS share
        FROM (SELECT *, max((available - given) / rest) OVER ({minute}) AS level
            FROM (SELECT *, sum(want * clients) OVER ({minute}) AS total,
                    coalesce(sum(want * clients) OVER ({ranked} UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS given,
                    sum(priority * clients) OVER ({ranked} CURRENT ROW AND UNBOUNDED FOLLOWING) AS rest
                FROM ({wants}) AS wants WHERE want > 0) AS ranked
            WHERE total > available * {1 + ROUNDING}) AS short
        WHERE want > level * priority GROUP BY place"""
    )
    shares = dict(zip(*found.to_pydict().values(), strict=True))
    return [shares.get(place) for place in range(clients)]
