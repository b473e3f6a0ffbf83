"""Demands from the results of the jobs `usage` and `replay` with a bucket for every client.

The share of its active time for which a client is throttled is the sum of its throttle times in the closed model, where
it waits them out, by its active seconds.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.recommend.demand import BrokerDemand, Demand, ImpliedDemand, Trial
from kafka_quotas.pipeline.replay.outcomes import ReplayOutcomes
from kafka_quotas.pipeline.usage.tables import UsageTables

_RATES: Final = ("p50", "p99", "max", "active_share")
_IMPLIED: Final = ("low", "high", "growth", "busiest_hour", "days", "held_share", "is_unknown")
_NAME: Final = ("cluster", "quota_type", "user", "client_id")
_FETCHER: Final = re.compile(r"broker-(\d{1,9})-fetcher-\d+")
"""The client-id of a follower's fetcher (`BrokerBlockingSender`, Kafka 4.0)."""
Name = tuple[str, str, str | None, str | None]


def demands_of(tables: UsageTables, *, cluster: str, seconds: int) -> tuple[Demand, ...]:
    """Return the usage of each client of a cluster as demands without trials.

    `seconds` is the length of the recording.
    """
    brokers: dict[Name, list[BrokerDemand]] = defaultdict(list)
    for row in tables.buckets([*_RATES, "demand", *_IMPLIED], cluster=cluster).to_pylist():
        brokers[_name(row)].append(
            BrokerDemand(
                broker_id=row["broker_id"],
                p50=row["p50"],
                p99=row["p99"],
                peak=row["max"],
                active_s=max(round(row["active_share"] * seconds), 1),
                implied=_implied(row),
            )
        )
    return tuple(
        Demand(quota_type=QuotaType(kind), user=user, client_id=client_id, brokers=tuple(each))
        for (_, kind, user, client_id), each in brokers.items()
    )


def _implied(row: dict[str, Any]) -> ImpliedDemand | None:
    if row["demand"] is None:
        return None
    return ImpliedDemand(rate=row["demand"], **{name: row[name] for name in _IMPLIED})


def replication_of(tables: UsageTables, *, cluster: str, seconds: int) -> dict[int, tuple[float, float]]:
    """Return what followers fetch from each broker and what each fetches as one, in bytes/s.

    `seconds` is the length of the recording. A follower is recognised by the client-id of its fetcher.
    """
    found: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))  # whole bytes add up alike in any order
    for row in tables.replication().to_pylist():
        if row["cluster"] == cluster:
            amount = row["bytes"]
            sent, received = found[row["broker_id"]]
            found[row["broker_id"]] = (sent + amount, received)
            if follower := _FETCHER.fullmatch(row["follower"]):
                sent, received = found[int(follower[1])]
                found[int(follower[1])] = (sent, received + amount)
    return {broker_id: (sent / seconds, received / seconds) for broker_id, (sent, received) in found.items()}


def with_deciding_trials(
    demands: Iterable[Demand], replayed: ReplayOutcomes, *, cluster: str, tolerated_share: float
) -> tuple[Demand, ...]:
    """Add the trials of a sweep that decide what each client needs, at most two for each of its brokers."""
    demands = tuple(demands)
    active_s = {(_key(demand, cluster), each.broker_id): each.active_s for demand in demands for each in demand.brokers}
    named = {place: name for place, name in _names(replayed.entities(), cluster).items() if name in active_s}
    columns = [pa.array(named, pa.int32()), pa.array([active_s[name] for name in named.values()], pa.int64())]
    known = pa.table(columns, names=["entity_id", "active_s"])
    return _with_trials(demands, replayed.deciding(known, tolerated_share=tolerated_share), named, cluster)


def with_all_trials(
    demands: Iterable[Demand], replayed: ReplayOutcomes, *, cluster: str, chosen: Iterable[Demand]
) -> tuple[Demand, ...]:
    """Add all trials of a sweep to those of the chosen clients."""
    keys = {_key(demand, cluster) for demand in chosen}
    named = {place: name for place, name in _names(replayed.entities(), cluster).items() if name[0] in keys}
    return _with_trials(tuple(demands), replayed.of(list(named)), named, cluster)


def _with_trials(
    demands: tuple[Demand, ...], rows: pa.Table, named: Mapping[int, tuple[Name, int]], cluster: str
) -> tuple[Demand, ...]:
    found: dict[tuple[Name, int], list[tuple[float, int]]] = defaultdict(list)
    columns = rows.select(["entity_id", "quota", "throttle_ms"]).to_pydict()
    for entity_id, quota, throttle_ms in zip(*columns.values(), strict=True):
        found[named[entity_id]].append((quota, throttle_ms))
    return tuple(
        replace(
            demand,
            brokers=tuple(
                replace(each, trials=_merged(each, found.get((_key(demand, cluster), each.broker_id), ())))
                for each in demand.brokers
            ),
        )
        for demand in demands
    )


def throttled_shares(
    demands: Iterable[Demand], replayed: ReplayOutcomes, *, cluster: str
) -> dict[str, dict[int, float]]:
    """Return the share of its active time for which each client is throttled at its worst broker.

    Returns:
        Shares above 0 to 1, by proposal and by `id` of the demand, without clients that are never throttled.
    """
    named = _names(replayed.entities(), cluster)
    active_s = {
        (_key(demand, cluster), each.broker_id): (id(demand), each.active_s)
        for demand in demands
        for each in demand.brokers
    }
    found: dict[str, dict[int, float]] = defaultdict(dict)
    columns = replayed.held().select(["scenario", "entity_id", "throttle_ms"]).to_pydict()
    for proposal, entity_id, throttle_ms in zip(*columns.values(), strict=True):
        if (name := named.get(entity_id)) in active_s:
            number, seconds = active_s[name]
            share = min(throttle_ms / 1000 / seconds, 1.0)
            found[proposal][number] = max(found[proposal].get(number, 0.0), share)
    return found


def _names(entities: pa.Table, cluster: str) -> dict[int, tuple[Name, int]]:
    """Return the client and broker of each entity of a cluster."""
    return {
        row["entity_id"]: (_name(row), row["broker_id"]) for row in entities.to_pylist() if row["cluster"] == cluster
    }


def _merged(demand: BrokerDemand, tried: Iterable[tuple[float, int]]) -> tuple[Trial, ...]:
    shares = {each.limit: each.throttled_share for each in demand.trials}
    shares |= {limit: min(throttle_ms / 1000 / demand.active_s, 1.0) for limit, throttle_ms in tried}
    return tuple(Trial(limit=limit, throttled_share=shares[limit]) for limit in sorted(shares))


def _name(row: dict[str, Any]) -> Name:
    cluster, kind, user, client_id = (row[column] for column in _NAME)
    return cluster, kind, user, client_id


def _key(demand: Demand, cluster: str) -> Name:
    return cluster, demand.quota_type.value, demand.user, demand.client_id
