"""What replication and clients take of brokers at the same time, and fair shares of their capacity.

A capacity is held against what clients would take at the same time under their limits, minute by minute: limits may
add up to more. Nothing is cut that the record shows to fit. In a minute that doesn't fit, who wants more than a fair
share is cut to it. Shares are weighted max-min fair. Every client gets what it wants up to a common level times its
priority, and the level is as high as the capacity allows: nobody can get more without somebody getting less who has no
more.

**Source:** "Data Networks" (Bertsekas, Gallager), section 6.5.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.buckets.charges import AMOUNTS
from kafka_quotas.pipeline.engine.events import Events
from kafka_quotas.pipeline.jobs.recommend.advice import Advice, ClientName, Demand, Override
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan, neat_limit
from kafka_quotas.pipeline.jobs.usage.job import UsageTables
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS

Floats = NDArray[np.float64]

_MINUTE_S: Final = 60


class Want(NamedTuple):
    """What clients would be allowed at a broker."""

    limit: float
    """What one of them would be allowed, in the unit of the quota key."""
    priority: float = 1.0
    """By which factor its share exceeds that of others, above 0."""
    clients: int = 1
    """Clients of whom each wants that much."""


def fair_level(wants: Iterable[Want], capacity: float) -> float:
    """Return the level up to which wants at a broker are met, per unit of priority, infinity if all fit."""
    left = max(capacity, 0.0)
    ranked = sorted(
        (each for each in wants if each.limit * each.clients > 0), key=lambda each: each.limit / each.priority
    )
    if sum(each.limit * each.clients for each in ranked) <= left:
        return math.inf
    priorities = sum(each.priority * each.clients for each in ranked)
    for each in ranked:
        level = left / priorities
        if each.limit / each.priority > level:
            return level
        left -= each.limit * each.clients
        priorities -= each.priority * each.clients
    return math.inf


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Coincident:
    """What clients would take of one broker in each minute of the recording, in the unit of the quota key."""

    broker_id: int
    starts_ms: NDArray[np.int64]
    others: Floats
    """Sums of the clients under the default of which all counts."""
    clients: int
    """How many of these there are."""
    own: Sequence[tuple[Demand, Floats]]
    """What each other client takes, and wants where it was held back."""

    def under(self, limits: Mapping[ClientName, float], default: float) -> Floats:
        """Return the sum of all clients under limits, those under the default alone as they were recorded."""
        total = self.others.clip(max=default * self.clients)
        for each, taken in self.own:
            total += taken.clip(max=limits.get(each.name, default))
        return total

    def cuts(
        self, limits: Mapping[ClientName, float], default: float, *, available: float, plan: RecommendPlan
    ) -> Iterator[tuple[ClientName | None, float]]:
        """Yield the fair share of each client that wants more in some minute, and that of the default (None)."""
        priorities = {each.name: plan.priority(each) for each, _ in self.own}
        for place in (self.under(limits, default) > available).nonzero()[0].tolist():
            mean = self.others[place] / max(self.clients, 1)
            taken = {
                each.name: Want(min(own[place], limits.get(each.name, default)), priorities[each.name])
                for each, own in self.own
                if own[place] > 0
            }
            level = fair_level([*taken.values(), Want(mean, clients=self.clients)], available)
            yield from (
                (name, level * each.priority) for name, each in taken.items() if each.limit > level * each.priority
            )
            if mean > level:
                default = min(default, level)
                yield None, level


def coincident_loads(used: UsageTables, chosen: str, advice: Advice) -> list[Coincident]:
    """Return what clients of the cluster that `chosen` names took at the same time at each broker."""
    column, factor = AMOUNTS[advice.quota_type]
    others = (*advice.most_partial, *(each for each in advice.named if advice.plan.priority(each) != 1))
    demands = {each.name: each for each in (*(each.demand for each in advice.overrides), *others)}
    names = pa.schema([("user", pa.string()), ("client_id", pa.string()), ("place", pa.int64())])
    own = [(*name, place) for place, name in enumerate(demands)]
    own_names = used.tables.add("own", pa.table(list(zip(*own, strict=True)) or [()] * 3, schema=names))
    found = used.tables.query(
        f"""SELECT broker_id, coalesce(place, -1) AS place, window_start_ms,
            sum({column} * CAST({factor} AS DOUBLE)) / {_MINUTE_S} AS rate
        FROM {used.windows} JOIN {chosen} USING (cluster) LEFT JOIN {own_names} USING (user, client_id)
        WHERE quota_type = '{advice.quota_type.value}' AND window_s = {_MINUTE_S}
        GROUP BY broker_id, place, window_start_ms"""
    )
    brokers, places, at_ms, rates = (column.to_numpy() for column in found.columns)
    loads = []
    for load in advice.loads:
        is_here, wanted = brokers == load.broker_id, []
        starts_ms = np.unique(at_ms[is_here])
        by_minute = {place: np.zeros(starts_ms.size) for place in range(-1, len(demands))}
        for place, minutes in by_minute.items():
            is_own = is_here & (places == place)
            minutes[np.searchsorted(starts_ms, at_ms[is_own])] = rates[is_own]
            if place >= 0 and is_own.any():
                demand = demands[own[place][:2]]
                if demand.implied.is_held:
                    minutes[minutes > 0] = np.maximum(minutes[minutes > 0], demand.needed)
                wanted.append((demand, minutes))
        loads.append(
            Coincident(
                broker_id=load.broker_id,
                starts_ms=starts_ms,
                others=by_minute[-1],
                clients=load.clients - len(wanted),
                own=wanted,
            )
        )
    return loads


def within_capacity(advice: Advice, loads: Sequence[Coincident]) -> Advice:
    """Cut limits to fair shares where clients would take more at the same time than a broker has."""
    plan, limits = advice.plan, advice.limits()
    known = {each.broker_id: each for each in advice.loads}
    fair: dict[ClientName | None, float] = defaultdict(lambda: math.inf)
    for load in loads:
        available = known[load.broker_id].available
        for name, share in load.cuts(limits, advice.default, available=available, plan=plan):
            fair[name] = min(fair[name], share)

    def kept(name: ClientName | None, limit: float) -> float:
        return neat_limit(advice.quota_type.key, fair[name], rounding=ROUND_FLOOR) if name in fair else limit

    default = kept(None, advice.default) if fair[None] < advice.default else advice.default
    own = {each.name: each for load in loads for each, _ in load.own}
    shares = {
        name: kept(name, limits.get(name, advice.default if plan.priority(each) > 1 else default))
        for name, each in own.items()
    }
    overrides = [
        Override(
            demand=own[name],
            limit=share,
            wanted=limits.get(name, advice.default),
            broker_count=len(advice.loads),
        )
        for name, share in shares.items()
        if name in limits or share != default
    ]
    overrides.sort(key=lambda each: (each.demand.needed, each.demand.name), reverse=True)
    for load in loads:
        if load.starts_ms.size:
            wanted = load.under(limits, advice.default)
            known[load.broker_id] = replace(
                known[load.broker_id],
                wanted=float(wanted.max()),
                at_ms=int(load.starts_ms[wanted.argmax()]),
                allowed=float(load.under(shares, default).max()),
            )
    return replace(advice, default=default, overrides=tuple(overrides), loads=tuple(known.values()))
