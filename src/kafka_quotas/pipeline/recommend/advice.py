"""The default and the overrides to set for a quota type, and their evidence.

The default is the lowest limit that throttles at most a tolerated share of the clients for more than a tolerated share
of their active time. A client that it would throttle for longer gets an override: its need, with headroom. Both are
rounded up to two digits. Every limit is per broker, from each client's busiest broker. The default for reading lets one
whole fetch through per second: under a lower one, a consumer with a large record may get nothing at all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import FETCH_BYTES, QuotaKey, ValueType
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import DefaultScope
from kafka_quotas.pipeline.recommend.capacity import Capacities
from kafka_quotas.pipeline.recommend.demand import Demand


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


_LEAST: Final = {QuotaType.FETCH: float(FETCH_BYTES)}
"""Lower bounds of defaults, whatever the usage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The throttling and load that a recommendation may accept."""

    clients_share: float = 0.05
    """Share of clients that the default may throttle for longer, from 0 to below 1."""
    time_share: float = 0.01
    """Share of its active time for which a client may be throttled, from 0 to below 1."""
    headroom: float = 1.2
    """Factor of overrides over the need, from 1."""
    capacity_share: float = 0.8
    """Share of a broker's capacity that quotas may fill, above 0 and at most 1."""

    def __post_init__(self) -> None:
        for name in ("clients_share", "time_share"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', ' ')} must be from 0 to below 1, not {getattr(self, name)}")
        if not 1 <= self.headroom < math.inf:
            raise UsageError(f"headroom must be a factor from 1, not {self.headroom}")
        if not 0 < self.capacity_share <= 1:
            raise UsageError(f"capacity share must be above 0 and at most 1, not {self.capacity_share}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendPlan:
    """The clients that want quotas, the tolerance, and the brokers' capacities and windows."""

    scope: DefaultScope
    """Clients that get a quota each."""
    tolerance: Tolerance
    cluster: str | None = None
    """Cluster to recommend for, None for the only one with events."""
    capacities: Capacities | None = None
    window: QuotaWindow = DEFAULT_WINDOW
    controller_window: QuotaWindow = DEFAULT_WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A limit for one client alone."""

    demand: Demand
    limit: float
    throttled_share_at_default: float
    """Share of active time that the default would throttle, 0 to 1."""
    throttled_share: float
    """Share of active time that the override would throttle, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """The load that clients may put on one broker under the limits, and the broker's capacity."""

    broker_id: int
    demanded: float
    """Sum over clients of the smaller of peak and limit."""
    capacity: float | None
    """Capacity in the unit of the quota key, None where unknown."""
    capacity_share: float
    """Share of the capacity that quotas may fill, 0 to 1."""

    @property
    def fits(self) -> bool | None:
        """Whether the demand is within the share of the capacity that quotas may fill, None where unknown."""
        return None if self.capacity is None else self.demanded <= self.capacity * self.capacity_share


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
    """The default before its lower bound and rounding up."""
    loads: tuple[BrokerLoad, ...] = ()

    @property
    def is_raised(self) -> bool:
        """Whether the clients' need is below the least default that Kafka's clients work with."""
        return self.lowest_default < _LEAST.get(self.quota_type, 0.0)

    @property
    def largest_tolerated_share(self) -> float:
        """The largest share of active time that the default throttles, over clients without an override."""
        satisfied = self.demands[: len(self.demands) - len(self.overrides)]
        return max((each.throttled_share(self.default) for each in satisfied), default=0.0)

    def limits(self) -> dict[tuple[str | None, str | None], float]:
        """Return the overrides by user and client-id, without the default of all other clients."""
        return {(each.demand.user, each.demand.client_id): each.limit for each in self.overrides}


def advise(
    quota_type: QuotaType, demands: Sequence[Demand], *, tolerance: Tolerance, capacities: Capacities | None = None
) -> Advice | None:
    """Recommend the quotas of one quota type, None where no client used it."""
    active = [demand for demand in demands if demand.quota_type is quota_type and demand.peak > 0]
    if not active:
        return None
    ranked = sorted(active, key=lambda each: (each.needed(tolerance.time_share), each.user or "", each.client_id or ""))
    outliers = math.floor(tolerance.clients_share * len(ranked))
    lowest = ranked[len(ranked) - 1 - outliers].needed(tolerance.time_share)
    default = neat_limit(quota_type.key, max(lowest, _LEAST.get(quota_type, 0.0)))
    overrides = tuple(
        _override(quota_type, demand, default, tolerance)
        for demand in reversed(ranked)
        if demand.needed(tolerance.time_share) > default
    )
    advice = Advice(
        quota_type=quota_type,
        default=default,
        overrides=overrides,
        demands=tuple(ranked),
        tolerance=tolerance,
        lowest_default=lowest,
    )
    return replace(advice, loads=_loads(advice, capacities))


def _override(quota_type: QuotaType, demand: Demand, default: float, tolerance: Tolerance) -> Override:
    limit = neat_limit(quota_type.key, max(demand.needed(tolerance.time_share), demand.p99) * tolerance.headroom)
    return Override(
        demand=demand,
        limit=limit,
        throttled_share_at_default=demand.throttled_share(default),
        throttled_share=demand.throttled_share(limit),
    )


def _loads(advice: Advice, capacities: Capacities | None) -> tuple[BrokerLoad, ...]:
    limits = advice.limits()
    demanded = dict.fromkeys(sorted({each.broker_id for demand in advice.demands for each in demand.brokers}), 0.0)
    for demand in advice.demands:
        limit = limits.get((demand.user, demand.client_id), advice.default)
        for each in demand.brokers:
            demanded[each.broker_id] += min(each.peak, limit)
    return tuple(
        BrokerLoad(
            broker_id=broker_id,
            demanded=total,
            capacity=_capacity(advice.quota_type, broker_id, capacities),
            capacity_share=advice.tolerance.capacity_share,
        )
        for broker_id, total in demanded.items()
    )


def _capacity(quota_type: QuotaType, broker_id: int, capacities: Capacities | None) -> float | None:
    found = None if capacities is None else capacities.of(broker_id)
    return None if found is None else found.of(quota_type)
