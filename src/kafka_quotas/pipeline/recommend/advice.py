"""The default and the overrides that a quota type should get, and what was looked at to say so.

The default is the lowest limit under which at most a tolerated share of the clients would be held back for more than a
tolerated share of their active time. Whoever would be held back for longer gets an override: what it needs, with
headroom. Both are rounded up to two digits. Every limit is per broker, from each client's busiest broker. The default
for reading lets one whole fetch through per second: under less, a consumer with a large record may get nothing at all.

Limits as a person would write them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import FETCH_BYTES, QuotaKey, ValueType
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.recommend.capacity import Capacities
from kafka_quotas.pipeline.recommend.demand import Demand, broker_ids, sorted_by_need


def neat_limit(key: QuotaKey, value: float) -> float:
    """The smallest figure of two digits that is not below the value, such as 1.3 MB for 1,234,567 bytes.

    Whole and at least 1 where the key takes whole numbers only, at least 0.01 otherwise; never above the key's largest.
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
"""Defaults are not below these, however little was used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """What is allowed to happen: shares from 0 to 1, the headroom a factor from 1."""

    clients_share: float = 0.05
    time_share: float = 0.01
    headroom: float = 1.2
    capacity_share: float = 0.8

    def __post_init__(self) -> None:
        for name in ("clients_share", "time_share"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', ' ')} must be from 0 to below 1, not {getattr(self, name)}")
        if not 1 <= self.headroom < math.inf:
            raise UsageError(f"headroom must be a factor from 1, not {self.headroom}")
        if not 0 < self.capacity_share <= 1:
            raise UsageError(f"capacity share must be above 0 and at most 1, not {self.capacity_share}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A limit of one client's own."""

    demand: Demand
    limit: float
    throttled_share_at_default: float
    throttled_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """What clients may ask of one broker at once under the limits, and what it can take.

    `capacity` is None where unknown; `demanded` is the sum over clients of the smaller of peak and limit.
    """

    broker_id: int
    demanded: float
    capacity: float | None
    capacity_share: float

    @property
    def fits(self) -> bool | None:
        """Whether the demand is within the share of the capacity that quotas may fill; None where unknown."""
        return None if self.capacity is None else self.demanded <= self.capacity * self.capacity_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to set for one quota type: clients sorted by need, overrides for those who need most, the neediest first.

    `lowest_default` is the default before it was rounded up.
    """

    quota_type: QuotaType
    default: float
    overrides: tuple[Override, ...]
    demands: tuple[Demand, ...]
    tolerance: Tolerance
    lowest_default: float
    loads: tuple[BrokerLoad, ...] = ()

    @property
    def is_raised(self) -> bool:
        """Whether clients would do with a lower default than clients of Kafka work with."""
        return self.lowest_default < _LEAST.get(self.quota_type, 0.0)

    @property
    def largest_tolerated_share(self) -> float:
        """The largest share of its active time for which the default holds a client back that has no other limit."""
        satisfied = self.demands[: len(self.demands) - len(self.overrides)]
        return max((each.throttled_share(self.default) for each in satisfied), default=0.0)

    def limits(self) -> dict[tuple[str | None, str | None], float]:
        """The limits of their own that clients would have, by user and client-id; all others have the default."""
        return {(each.demand.user, each.demand.client_id): each.limit for each in self.overrides}


def advise(
    quota_type: QuotaType, demands: Sequence[Demand], *, tolerance: Tolerance, capacities: Capacities | None = None
) -> Advice | None:
    """What to set for one quota type; None where nobody used it."""
    active = [demand for demand in demands if demand.quota_type is quota_type and demand.peak > 0]
    if not active:
        return None
    ranked = sorted_by_need(active, tolerance.time_share)
    lowest = _lowest_default(ranked, tolerance)
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


def _lowest_default(ranked: Sequence[Demand], tolerance: Tolerance) -> float:
    """What suffices for all but the tolerated share of the clients, who are ranked by need."""
    outliers = math.floor(tolerance.clients_share * len(ranked))
    return ranked[len(ranked) - 1 - outliers].needed(tolerance.time_share)


def _override(quota_type: QuotaType, demand: Demand, default: float, tolerance: Tolerance) -> Override:
    wanted = max(demand.needed(tolerance.time_share), demand.p99) * tolerance.headroom
    limit = neat_limit(quota_type.key, wanted)
    return Override(
        demand=demand,
        limit=limit,
        throttled_share_at_default=demand.throttled_share(default),
        throttled_share=demand.throttled_share(limit),
    )


def _loads(advice: Advice, capacities: Capacities | None) -> tuple[BrokerLoad, ...]:
    """What is demanded of every broker, by broker id."""
    limits = advice.limits()
    demanded = dict.fromkeys(broker_ids(advice.demands), 0.0)
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
