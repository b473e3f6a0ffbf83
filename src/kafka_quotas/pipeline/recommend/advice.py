"""The default and the overrides to set for a quota type, and their evidence.

The default is the lowest limit that throttles at most a tolerated share of the clients (of fewer than twenty: one) for
more than a tolerated share of their active time, with headroom. A client that needs more than it gets an override: its
need, with headroom. Both are rounded up to two digits. Every limit is per broker, from each client's busiest broker.
Where capacities are known, limits that would add up to more than a broker has are cut to fair shares.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import FETCH_BYTES, QuotaKey, ValueType
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import DefaultScope
from kafka_quotas.pipeline.recommend.capacity import Capacities
from kafka_quotas.pipeline.recommend.demand import Demand
from kafka_quotas.pipeline.recommend.shares import Want, fair_level

NEEDIEST_SHOWN: Final = 4
"""Clients of each quota type that a report shows with all that was tried."""
_LONGEST_HORIZON_DAYS: Final = 3660


def neat_limit(key: QuotaKey, value: float) -> float:
    """Round a value up to two digits, such as 1,234,567 bytes to 1.3 MB.

    Returns:
        A whole number of at least 1 where the key takes whole numbers only, at least 0.01 otherwise, and at most the
        key's largest value.
    """
    whole = key.value_type is not ValueType.DOUBLE
    least = 1.0 if whole else 0.01
    if value <= least:
        return least
    if value >= key.unlimited:
        return float(key.unlimited)
    step = Fraction(10) ** (math.floor(math.log10(value)) - 1)
    neat = math.ceil(Fraction(value) / step) * step
    return float(min(math.ceil(neat) if whole else neat, Fraction(key.unlimited)))


def cut_limit(key: QuotaKey, value: float) -> float:
    """Round a value down to two digits, to at least the least limit that `neat_limit` gives."""
    if value <= 0:
        return neat_limit(key, value)
    step = Fraction(10) ** (math.floor(math.log10(value)) - 1)
    return neat_limit(key, float(math.floor(Fraction(value) / step) * step))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The throttling and load that a recommendation may accept."""

    clients_share: float = 0.05
    """Share of clients that the default may throttle for longer, from 0 to below 1."""
    time_share: float = 0.01
    """Share of its active time for which a client may be throttled, from 0 to below 1."""
    headroom: float = 1.2
    """Factor of limits over the need, from 1."""
    capacity_share: float = 0.8
    """Share of a broker's capacity that limits may add up to, above 0.

    Above 1 it does not suffice for all clients at once.
    """
    fetch_floor: float = float(FETCH_BYTES)
    """Lower bound of the default for reading in bytes/s, by default one whole fetch per second, 0 for none."""

    def __post_init__(self) -> None:
        for name in ("clients_share", "time_share"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', ' ')} must be from 0 to below 1, not {getattr(self, name)}")
        if not 1 <= self.headroom < math.inf:
            raise UsageError(f"headroom must be a factor from 1, not {self.headroom}")
        if not 0 < self.capacity_share < math.inf:
            raise UsageError(f"capacity share must be above 0, not {self.capacity_share}")
        if not 0 <= self.fetch_floor < math.inf:
            raise UsageError(f"fetch floor must be from 0, not {self.fetch_floor}")

    def least(self, quota_type: QuotaType) -> float:
        """Return the lower bound of the default of a quota type, 0 for none."""
        return self.fetch_floor if quota_type is QuotaType.FETCH else 0.0

    def outliers(self, clients: int) -> int:
        """Return how many clients may need more than the default: one in a small cluster, never all."""
        share = math.floor(self.clients_share * clients)
        return min(max(share, 1 if self.clients_share > 0 else 0), clients - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendPlan:
    """The clients that want quotas, the tolerance, and the brokers' capacities and windows."""

    scope: DefaultScope
    """Clients that get a quota each."""
    tolerance: Tolerance
    cluster: str | None = None
    """Cluster to recommend for, None for the only one with events."""
    capacities: Capacities | None = None
    priorities: Mapping[str, float] = field(default_factory=dict)
    """By which factor a client's share of a short capacity exceeds that of others, by name as `scope` has it."""
    horizon_days: float = 0.0
    """Days for which the quotas are to suffice as usage grows, from 0."""
    min_recorded_s: int = 86_400
    """Seconds below which a recording is not enough to set quotas from."""
    explained: str | None = None
    """A client of which all that is tried is wanted, by name as `scope` has it, None for none."""
    window: QuotaWindow = DEFAULT_WINDOW
    controller_window: QuotaWindow = DEFAULT_WINDOW

    def __post_init__(self) -> None:
        if not 0 <= self.horizon_days <= _LONGEST_HORIZON_DAYS:
            raise UsageError(f"the horizon must be from 0 to {_LONGEST_HORIZON_DAYS} days, not {self.horizon_days}")
        if wrong := next((name for name, each in self.priorities.items() if not 0 < each < math.inf), None):
            raise UsageError(f"the priority of {wrong} must be above 0, not {self.priorities[wrong]}")

    def name_of(self, demand: Demand) -> str:
        """Return the name of a client: a user, a client-id, or both with a slash between them."""
        return {
            DefaultScope.USER: demand.user or "",
            DefaultScope.CLIENT_ID: demand.client_id or "",
            DefaultScope.PAIR: f"{demand.user or ''}/{demand.client_id or ''}",
        }[self.scope]


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A limit for one client alone."""

    demand: Demand
    limit: float
    wanted: float
    """The limit before it was cut to a share of a broker's capacity."""
    throttled_share_at_default: float
    """Share of active time that the default would throttle, 0 to 1."""
    throttled_share: float
    """Share of active time that the override would throttle, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """The load that clients may put on one broker under the limits, and the broker's capacity."""

    broker_id: int
    wanted: float
    """Sum of the limits of the clients that used the broker, before they were cut."""
    allowed: float
    """Sum of the limits that are recommended."""
    replication: float
    """What followers took of the capacity while it was recorded."""
    capacity: float | None
    """Capacity in the unit of the quota key, None where unknown."""
    capacity_share: float
    """Share of the capacity that limits and replication may fill."""

    @property
    def available(self) -> float:
        """What clients may share, infinity where the capacity is unknown."""
        return math.inf if self.capacity is None else max(self.capacity * self.capacity_share - self.replication, 0.0)

    @property
    def fits(self) -> bool | None:
        """Whether the clients' limits fitted before they were cut, None where the capacity is unknown."""
        return None if self.capacity is None else self.wanted <= self.available


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The quotas to set for one quota type."""

    quota_type: QuotaType
    default: float
    overrides: tuple[Override, ...]
    """Overrides for the neediest clients, the neediest first."""
    demands: tuple[Demand, ...]
    """All clients, the least needy first."""
    tolerance: Tolerance
    lowest_default: float
    """The default before headroom, its lower bound and rounding up."""
    wanted_default: float
    """The default before it was cut to a share of a broker's capacity."""
    largest_tolerated_share: float = 0.0
    """Largest share of active time that the default throttles, over clients without an override; 0 before a replay."""
    loads: tuple[BrokerLoad, ...] = ()

    @property
    def is_raised(self) -> bool:
        """Whether the default is its lower bound, and the clients' need with headroom is below."""
        least = self.tolerance.least(self.quota_type)
        return self.lowest_default * self.tolerance.headroom < least <= self.default

    @property
    def without_override(self) -> tuple[Demand, ...]:
        """The clients under the default, the least needy first."""
        own = {id(each.demand) for each in self.overrides}
        return tuple(each for each in self.demands if id(each) not in own)

    @property
    def is_cut(self) -> bool:
        """Whether a broker has less than the limits would add up to, and clients pay for it."""
        return any(load.fits is False for load in self.loads)

    def pays(self, demand: Demand) -> bool:
        """Check whether a client's limit is below what was recommended before the capacity was shared."""
        own = next((each for each in self.overrides if each.demand is demand), None)
        return self.default < self.wanted_default if own is None else own.limit < own.wanted

    def limits(self) -> dict[tuple[str | None, str | None], float]:
        """Return the overrides by user and client-id, without the default of all other clients."""
        return {(each.demand.user, each.demand.client_id): each.limit for each in self.overrides}


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


def advise(
    quota_type: QuotaType, demands: Sequence[Demand], *, tolerance: Tolerance, supply: Supply | None = None
) -> Advice | None:
    """Recommend the quotas of one quota type, None where no client used it."""
    active = [demand for demand in demands if demand.quota_type is quota_type and demand.peak > 0]
    if not active:
        return None
    share = tolerance.time_share
    ranked = sorted(active, key=lambda each: (each.needed(share), each.user or "", each.client_id or ""))
    lowest = ranked[len(ranked) - 1 - tolerance.outliers(len(ranked))].needed(share)
    default = neat_limit(quota_type.key, max(lowest * tolerance.headroom, tolerance.least(quota_type)))
    overrides = [
        _override(demand, neat_limit(quota_type.key, demand.needed(share) * tolerance.headroom), default)
        for demand in reversed(ranked)
        if demand.needed(share) > default
    ]
    advice = Advice(
        quota_type=quota_type,
        default=default,
        overrides=tuple(overrides),
        demands=tuple(ranked),
        tolerance=tolerance,
        lowest_default=lowest,
        wanted_default=default,
    )
    return _shared(advice, supply or Supply())


def _override(demand: Demand, limit: float, default: float, *, wanted: float | None = None) -> Override:
    return Override(
        demand=demand,
        limit=limit,
        wanted=limit if wanted is None else wanted,
        throttled_share_at_default=demand.throttled_share(default),
        throttled_share=demand.throttled_share(limit),
    )


def _shared(advice: Advice, supply: Supply) -> Advice:
    """Cut the limits to fair shares where they add up to more than a broker has."""
    key, own = advice.quota_type.key, {id(each.demand): each.limit for each in advice.overrides}
    wanted = {id(each): own.get(id(each), advice.default) for each in advice.demands}
    brokers = sorted({each.broker_id for demand in advice.demands for each in demand.brokers})
    at_broker = {
        broker_id: [each for each in advice.demands if any(at.broker_id == broker_id for at in each.brokers)]
        for broker_id in brokers
    }
    loads = {
        broker_id: BrokerLoad(
            broker_id=broker_id,
            wanted=sum(wanted[id(each)] for each in clients),
            allowed=0.0,
            replication=supply.replicated(advice.quota_type, broker_id),
            capacity=supply.capacity(advice.quota_type, broker_id),
            capacity_share=advice.tolerance.capacity_share,
        )
        for broker_id, clients in at_broker.items()
    }
    levels = {
        broker_id: fair_level(
            (Want(wanted[id(each)], supply.priority(each)) for each in clients), loads[broker_id].available
        )
        for broker_id, clients in at_broker.items()
    }

    def share(demand: Demand) -> float:
        level = min(levels[each.broker_id] for each in demand.brokers)
        limit = wanted[id(demand)]
        return limit if level * supply.priority(demand) >= limit else cut_limit(key, level * supply.priority(demand))

    shares = {id(each): share(each) for each in advice.demands}
    plain = [shares[id(each)] for each in advice.demands if id(each) not in own and supply.priority(each) <= 1]
    default = min(plain, default=advice.default)
    overrides = tuple(
        _override(each, shares[id(each)], default, wanted=wanted[id(each)])
        for each in reversed(advice.demands)
        if id(each) in own or shares[id(each)] > default
    )
    limits = {id(each.demand): each.limit for each in overrides}
    summed = tuple(
        replace(loads[broker_id], allowed=sum(limits.get(id(each), default) for each in clients))
        for broker_id, clients in at_broker.items()
    )
    return replace(advice, default=default, overrides=overrides, loads=summed)
