"""Which default and overrides to advise for a quota type, from figures of its clients.

The default is the lowest limit that throttles at most a tolerated share of the clients (of fewer than twenty: one) for
more than a tolerated share of their active time, with headroom. A client that needs more than it gets an override: its
need, with headroom. Both are rounded up to two digits. Where capacities are known, limits that would add up to more
than a broker has are cut to fair shares.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.recommend.advice import Advice, BrokerLoad, Override, Tolerance, cut_limit, neat_limit
from kafka_quotas.pipeline.recommend.capacity import Capacities, Want, fair_level
from kafka_quotas.pipeline.recommend.demand import ClientName, Demand
from kafka_quotas.pipeline.recommend.part_figures import HELD_SHOWN, NEEDIEST_SHOWN, OwnLimits

FindRaised = Callable[[OwnLimits], list[Demand]]
"""Returns the clients that get a limit of their own only because theirs need not be cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """What the brokers have for one quota type, and who comes first where that is short."""

    capacities: Capacities | None = None
    replication: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """What followers fetch from a broker, and what it fetches as one, in bytes/s."""
    priority: Callable[[Demand], float] = lambda _: 1.0
    """By which factor a client's share exceeds that of others."""

    def capacity(self, quota_type: QuotaType, broker_id: int) -> float | None:
        """Return a broker's capacity in the unit of the quota key, None where unknown."""
        found = None if self.capacities is None else self.capacities.of(broker_id)
        return None if found is None else found.of(quota_type)

    def replicated(self, quota_type: QuotaType, broker_id: int) -> float:
        """Return what replication takes of a broker's capacity, in the unit of the quota key."""
        sent, received = self.replication.get(broker_id, (0.0, 0.0))
        return {QuotaType.FETCH: sent, QuotaType.PRODUCE: received}.get(quota_type, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindClients:
    """The clients of one quota type: how many there are, and those that are named."""

    clients: int
    held: int
    """Clients that were held back while they were recorded."""
    at_broker: Mapping[int, int]
    """Clients that used each broker."""
    named: Sequence[Demand]
    """Those that need more than the default, the neediest, and those with a priority or to explain."""


def default_of(quota_type: QuotaType, lowest: float, tolerance: Tolerance) -> float:
    """Return the default by the limit that enough clients need no more than."""
    return neat_limit(quota_type.key, max(lowest * tolerance.headroom, tolerance.least(quota_type)))


def advise(
    quota_type: QuotaType,
    found: KindClients,
    *,
    lowest: float,
    tolerance: Tolerance,
    supply: Supply,
    raised: FindRaised = lambda _: [],
) -> Advice:
    """Recommend the quotas of one quota type that was used.

    Args:
        quota_type: The quota type.
        found: Its clients.
        lowest: The limit that enough clients need no more than.
        tolerance: The throttling and load to accept.
        supply: What the brokers have.
        raised: Called where a capacity is short.
    """
    default = default_of(quota_type, lowest, tolerance)
    ranked = sorted(found.named, key=lambda each: each.rank, reverse=True)
    held = sorted(
        (each for each in ranked if each.is_lower_bound),
        key=lambda each: (not each.is_unknown, -each.needed, each.name),
    )
    wanted = {
        each.name: neat_limit(quota_type.key, each.needed * tolerance.headroom)
        for each in ranked
        if each.needed > default
    }
    advice = Advice(
        quota_type=quota_type,
        default=default,
        overrides=(),
        clients=found.clients,
        tolerance=tolerance,
        lowest_default=lowest,
        wanted_default=default,
        own=OwnLimits(above=default, default=default),
        held=found.held,
        most_held=tuple(held[:HELD_SHOWN]),
        neediest=tuple(ranked[:NEEDIEST_SHOWN]),
    )
    return _shared(advice, _FairShares(advice, found, supply, wanted), raised)


class _FairShares:
    """The limits that would suffice, and what brokers have of them.

    `wanted` has the limits of clients that need one of their own.
    """

    def __init__(self, advice: Advice, found: KindClients, supply: Supply, wanted: Mapping[ClientName, float]) -> None:
        self._key, self.at_broker = advice.quota_type.key, found.at_broker
        self.wanted, self.priority = wanted, supply.priority
        self._default = advice.default
        self.known = [each for each in found.named if each.name in wanted or supply.priority(each) != 1]
        """Clients that don't get what all others get, or may not."""
        known = by_broker(self.known)
        self.loads, self.levels, self.of_others = {}, {}, {}
        for broker_id, clients in sorted(found.at_broker.items()):
            own = known.get(broker_id, [])
            limits, others = [self.limit(each) for each in own], clients - len(own)
            load = self.loads[broker_id] = BrokerLoad(
                broker_id=broker_id,
                wanted=math.fsum([advice.default * others, *limits]),
                allowed=0.0,
                replication=supply.replicated(advice.quota_type, broker_id),
                capacity=supply.capacity(advice.quota_type, broker_id),
                capacity_share=advice.tolerance.capacity_share,
            )
            wants = [Want(limit, supply.priority(each)) for limit, each in zip(limits, own, strict=True)]
            wants.append(Want(advice.default, clients=others))
            level = self.levels[broker_id] = fair_level(wants, load.available)
            if others:
                self.of_others[broker_id] = self._cut(advice.default, level)

    def limit(self, demand: Demand) -> float:
        """Return what a client would be allowed where nothing is short."""
        return self.wanted.get(demand.name, self._default)

    def share(self, demand: Demand) -> float:
        """Return what a client is allowed at all of its brokers."""
        level = min(self.levels[each.broker_id] for each in demand.brokers)
        return self._cut(self.limit(demand), level * self.priority(demand))

    def _cut(self, limit: float, level: float) -> float:
        return limit if level >= limit else cut_limit(self._key, level)


def by_broker(demands: Iterable[Demand]) -> dict[int, list[Demand]]:
    """Return the clients that used each broker."""
    found: dict[int, list[Demand]] = defaultdict(list)
    for each in demands:
        for broker in each.brokers:
            found[broker.broker_id].append(each)
    return found


def _shared(advice: Advice, fair: _FairShares, raised: FindRaised) -> Advice:
    """Cut the limits to fair shares where they add up to more than a broker has."""
    shares = {each.name: fair.share(each) for each in fair.known}
    others = [each for each in fair.known if each.name not in fair.wanted]
    plain = [shares[each.name] for each in others if fair.priority(each) <= 1]
    default = min([*plain, *fair.of_others.values()], default=advice.default)
    own = OwnLimits(
        above=advice.default,
        default=default,
        shares=fair.of_others if any(each > default for each in fair.of_others.values()) else {},
        known={each.name: shares[each.name] > default for each in others},
    )
    owners = [each for each in fair.known if own.known.get(each.name, True)]
    if own.shares:
        found = [each for each in raised(own) if each.name not in own.known]
        shares |= {each.name: fair.share(each) for each in found}
        owners += found
    overrides = tuple(
        Override(demand=each, limit=shares[each.name], wanted=fair.limit(each))
        for each in sorted(owners, key=lambda each: each.rank, reverse=True)
    )
    limits = by_broker(owners)
    loads = tuple(
        replace(
            load,
            allowed=math.fsum(
                [
                    default * (fair.at_broker[broker_id] - len(limits.get(broker_id, ()))),
                    *(shares[each.name] for each in limits.get(broker_id, ())),
                ]
            ),
        )
        for broker_id, load in fair.loads.items()
    )
    return replace(advice, default=default, overrides=overrides, loads=loads, own=own)
