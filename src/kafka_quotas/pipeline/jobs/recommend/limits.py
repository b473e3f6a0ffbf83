"""Which default and overrides to advise for a quota type, from figures of its clients.

The default fits the many: it is the largest need within a fence above the clients' upper quartile, by their spread, or
the largest need but those of a wished number of overrides. The few above it get an override: their need. Both have
headroom, and are rounded up to two digits.

A capacity is held against what clients would take at the same time under these limits, minute by minute: limits may add
up to more. Nothing is cut that the record shows to fit. In a minute that doesn't fit, who wants more than a fair share
is cut to it.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.jobs.recommend.advice import Advice, BrokerLoad, Override, Tolerance, cut_limit, neat_limit
from kafka_quotas.pipeline.jobs.recommend.capacity import Capacities, Want, fair_level
from kafka_quotas.pipeline.jobs.recommend.clients import NAMED, NEEDIEST_SHOWN, KindClients
from kafka_quotas.pipeline.jobs.recommend.demand import ClientName, Demand
from kafka_quotas.pipeline.jobs.usage.job import UsageTables

Floats = NDArray[np.float64]

_MINUTE_S: Final = 60
_USED: Final = {
    QuotaType.PRODUCE: ("bytes", 1.0),
    QuotaType.FETCH: ("bytes", 1.0),
    QuotaType.REQUEST: ("thread_ms", 0.1),
}
"""The column of `usage` with what counts for a capacity, and its factor to the unit of the quota key times seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """What the brokers have for one quota type, and who comes first where that is short."""

    capacities: Capacities | None = None
    replication: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """What followers fetch from a broker, and what it fetches as one, in bytes/s."""
    priority: Callable[[Demand], float] = lambda _: 1.0
    """By which factor a client's share exceeds that of others."""

    def capacity(self, quota_type: QuotaType, broker_id: int) -> float | None:
        """Return a broker's capacity in the unit of the quota key, None if unknown."""
        found = None if self.capacities is None else self.capacities.of(broker_id)
        return None if found is None else found.of(quota_type)

    def replicated(self, quota_type: QuotaType, broker_id: int) -> float:
        """Return what replication takes of a broker's capacity, in the unit of the quota key."""
        sent, received = self.replication.get(broker_id, (0.0, 0.0))
        return {QuotaType.FETCH: sent, QuotaType.PRODUCE: received}.get(quota_type, 0.0)


def default_of(quota_type: QuotaType, lowest: float, tolerance: Tolerance) -> float:
    """Return the default by the limit that enough clients need no more than."""
    return neat_limit(quota_type.key, max(lowest * tolerance.headroom, tolerance.least(quota_type)))


def advise(quota_type: QuotaType, found: KindClients, *, lowest: float, tolerance: Tolerance, supply: Supply) -> Advice:
    """Recommend the quotas of one quota type that was used, whatever the brokers' capacity.

    Args:
        quota_type: The quota type.
        found: Its clients.
        lowest: The limit that enough clients need no more than.
        tolerance: The throttling and load to accept.
        supply: What the brokers have.
    """
    default = default_of(quota_type, lowest, tolerance)
    ranked = sorted(found.named, key=lambda each: each.rank, reverse=True)
    held = sorted(
        (each for each in ranked if each.is_lower_bound),
        key=lambda each: (not each.is_unknown, -each.needed, each.name),
    )
    wanted = [
        (each, neat_limit(quota_type.key, each.needed * tolerance.headroom)) for each in ranked if each.needed > default
    ]
    advice = Advice(
        quota_type=quota_type,
        default=default,
        overrides=tuple(Override(demand=each, limit=limit, wanted=limit) for each, limit in wanted),
        clients=found.clients,
        tolerance=tolerance,
        lowest_default=lowest,
        wanted_default=default,
        held=found.held,
        most_held=tuple(held[:NAMED]),
        partial=found.partial,
        most_partial=tuple(each for each in ranked if each.left_out is not None)[:NAMED],
        neediest=tuple(ranked[:NEEDIEST_SHOWN]),
        preferred=tuple(each for each in ranked if supply.priority(each) != 1),
    )
    loads = (
        BrokerLoad(
            broker_id=broker_id,
            clients=clients,
            limits=_sum_of_limits(advice, broker_id, clients),
            replication=supply.replicated(quota_type, broker_id),
            capacity=supply.capacity(quota_type, broker_id),
            capacity_share=tolerance.capacity_share,
        )
        for broker_id, clients in sorted(found.at_broker.items())
    )
    return replace(advice, loads=tuple(loads))


def _sum_of_limits(advice: Advice, broker_id: int, clients: int) -> float:
    own = [each.limit for each in advice.overrides if broker_id in {at.broker_id for at in each.demand.brokers}]
    return math.fsum([advice.default * (clients - len(own)), *own])


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
        total: Floats = np.minimum(self.others, default * self.clients)
        for each, taken in self.own:
            total += np.minimum(taken, limits.get(each.name, default))
        return total

    def cuts(
        self, limits: Mapping[ClientName, float], default: float, *, available: float, supply: Supply
    ) -> tuple[dict[ClientName, float], float]:
        """Return fair shares of those who want more in some minute, and that of the clients under the default."""
        found: dict[ClientName, float] = {}
        for place in np.flatnonzero(self.under(limits, default) > available).tolist():
            mean = self.others[place] / max(self.clients, 1)
            taken = [
                (each, min(own[place], limits.get(each.name, default)), supply.priority(each))
                for each, own in self.own
                if own[place] > 0
            ]
            wants = [Want(limit, priority) for _, limit, priority in taken]
            level = fair_level([*wants, Want(mean, clients=self.clients)], available)
            for each, limit, priority in taken:
                if limit > level * priority:
                    found[each.name] = min(found.get(each.name, math.inf), level * priority)
            default = min(default, level) if mean > level else default
        return found, default


def coincident_loads(used: UsageTables, advice: Advice, *, cluster: str) -> list[Coincident]:
    """Return what clients took at the same time at each broker."""
    column, factor = _USED[advice.quota_type]
    demands = {each.demand.name: each.demand for each in advice.overrides}
    demands |= {each.name: each for each in (*advice.most_partial, *advice.preferred)}
    tables = used.tables
    of_kind = pa.table({"cluster": [cluster], "quota_type": [advice.quota_type.value], "window_s": [_MINUTE_S]})
    minutes = tables.define(
        "minutes",
        f"""SELECT broker_id, user, client_id, window_start_ms,
            {column} * CAST({factor} AS DOUBLE) / {_MINUTE_S} AS rate
        FROM {used.windows} JOIN {tables.add("kind", of_kind)} USING (cluster, quota_type, window_s)""",
    )
    names = pa.schema([("user", pa.string()), ("client_id", pa.string())])
    own_names = tables.add(
        "own", pa.Table.from_pylist([dict(zip(names.names, name, strict=True)) for name in demands], names)
    )
    all_rows = tables.query(
        f"SELECT broker_id, window_start_ms, sum(rate) AS rate FROM {minutes} GROUP BY broker_id, window_start_ms"
    )
    own_rows = tables.query(f"SELECT * FROM {minutes} JOIN {own_names} USING (user, client_id)")
    total: dict[int, dict[int, float]] = defaultdict(dict)
    for row in all_rows.to_pylist():
        total[row["broker_id"]][row["window_start_ms"]] = row["rate"]
    of_client: dict[tuple[int, ClientName], dict[int, float]] = defaultdict(dict)
    for row in own_rows.to_pylist():
        of_client[row["broker_id"], (row["user"], row["client_id"])][row["window_start_ms"]] = row["rate"]
    loads = []
    for broker_id, clients in ((load.broker_id, load.clients) for load in advice.loads):
        by_minute = total[broker_id]
        starts_ms = np.array(sorted(by_minute), np.int64)
        others = np.array([by_minute[each] for each in starts_ms.tolist()])
        own = []
        for each in demands.values():
            if taken_at := of_client.get((broker_id, each.name)):
                taken = np.array([taken_at.get(at_ms, 0.0) for at_ms in starts_ms.tolist()])
                others = others - taken
                own.append((each, np.where((taken > 0) & each.is_lower_bound, np.maximum(taken, each.needed), taken)))
        others = np.maximum(others, 0.0)
        loads.append(
            Coincident(broker_id=broker_id, starts_ms=starts_ms, others=others, clients=clients - len(own), own=own)
        )
    return loads


def within_capacity(advice: Advice, loads: Sequence[Coincident], supply: Supply) -> Advice:
    """Cut the limits of an advice where brokers have less than clients would take at the same time."""
    key = advice.quota_type.key
    limits = {each.demand.name: each.limit for each in advice.overrides}
    known, default, fair = {each.broker_id: each for each in advice.loads}, advice.default, dict[ClientName, float]()
    for load in loads:
        available = known[load.broker_id].available
        shares, least = load.cuts(limits, advice.default, available=available, supply=supply)
        fair |= {name: min(share, fair.get(name, math.inf)) for name, share in shares.items()}
        default = min(default, least)
    default = advice.default if default == advice.default else cut_limit(key, default)
    own = {each.name: each for load in loads for each, _ in load.own}
    shares = {}
    for name, each in own.items():
        kept = limits.get(name, advice.default if supply.priority(each) > 1 else default)
        shares[name] = cut_limit(key, fair[name]) if name in fair else kept
    changed = {name for name, share in shares.items() if name in limits or share != default}
    overrides = tuple(
        Override(demand=own[name], limit=shares[name], wanted=limits.get(name, advice.default))
        for name in sorted(changed, key=lambda name: own[name].rank, reverse=True)
    )
    found = replace(advice, default=default, overrides=overrides)
    known |= {
        each.broker_id: _with_figures(known[each.broker_id], each, (limits, advice.default), (shares, default))
        for each in loads
    }
    return replace(found, loads=tuple(known[each.broker_id] for each in advice.loads))


_Limits = tuple[Mapping[ClientName, float], float]
"""The limits of some clients, and that of all others."""


def _with_figures(load: BrokerLoad, taken: Coincident, before: _Limits, after: _Limits) -> BrokerLoad:
    """Return the load of a broker with what clients would take before and after limits were cut."""
    wanted = taken.under(*before)
    if not wanted.size:
        return load
    peak = int(wanted.argmax())
    allowed = float(taken.under(*after).max())
    return replace(load, wanted=float(wanted[peak]), at_ms=int(taken.starts_ms[peak]), allowed=allowed)
