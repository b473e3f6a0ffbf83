"""What is asked of a recommendation, and the default and overrides that it advises.

Every limit is per broker, from each client's busiest broker.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import shown_name
from kafka_quotas.core.model.quota_key import FETCH_BYTES, QuotaKey, ValueType
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import DefaultScope, Proposal
from kafka_quotas.pipeline.jobs.recommend.capacity import Capacities
from kafka_quotas.pipeline.jobs.recommend.demand import ClientName, Demand

_LONGEST_HORIZON_DAYS: Final = 3660


def neat_limit(key: QuotaKey, value: float) -> float:
    """Round a value up to two digits, such as 1,234,567 bytes to 1.3 MB.

    Returns:
        A whole number of at least 1 if the key takes whole numbers only, at least 0.01 otherwise, and at most the
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

    overrides: int | None = None
    """Clients that may need more than the default, None for those that need far more than most."""
    time_share: float = 0.01
    """Share of its active time for which a client may be throttled, from 0 to below 1."""
    headroom: float = 1.2
    """Factor of limits over the need, from 1."""
    capacity_share: float = 0.8
    """Share of a broker's capacity that clients may take at the same time, replication included, above 0."""
    fetch_floor: float = float(FETCH_BYTES)
    """Lower bound of the default for reading in bytes/s, by default one whole fetch per second, 0 for none."""

    def __post_init__(self) -> None:
        if self.overrides is not None and self.overrides < 0:
            raise UsageError(f"the number of overrides must be from 0, not {self.overrides}")
        if not 0 <= self.time_share < 1:
            raise UsageError(f"time share must be from 0 to below 1, not {self.time_share}")
        if not 1 <= self.headroom < math.inf:
            raise UsageError(f"headroom must be a factor from 1, not {self.headroom}")
        if not 0 < self.capacity_share < math.inf:
            raise UsageError(f"capacity share must be above 0, not {self.capacity_share}")
        if not 0 <= self.fetch_floor < math.inf:
            raise UsageError(f"fetch floor must be from 0, not {self.fetch_floor}")

    def least(self, quota_type: QuotaType) -> float:
        """Return the lower bound of the default of a quota type, 0 for none."""
        return self.fetch_floor if quota_type is QuotaType.FETCH else 0.0


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
    windows_s: tuple[int, ...] = (60, 3600)
    """Lengths of the windows by which usage is summed up."""
    in_force: Proposal | None = None
    """Quotas in force, with which the recommended ones are compared, None for no comparison."""

    def __post_init__(self) -> None:
        if not 0 <= self.horizon_days <= _LONGEST_HORIZON_DAYS:
            raise UsageError(f"the horizon must be from 0 to {_LONGEST_HORIZON_DAYS} days, not {self.horizon_days}")
        if wrong := next((name for name, each in self.priorities.items() if not 0 < each < math.inf), None):
            raise UsageError(f"the priority of {wrong} must be above 0, not {self.priorities[wrong]}")

    def require_enough(self, recorded_s: int) -> None:
        """Check that enough was recorded for a file of quotas.

        Raises:
            UsageError: It was not.
        """
        if recorded_s < self.min_recorded_s:
            raise UsageError(
                f"not enough data for a file of quotas: {recorded_s:,} s are recorded, {self.min_recorded_s:,} s are "
                "wanted",
                hint=f"record for longer; or --min-recorded {recorded_s}s, or no --file to see what there is",
            )

    def name_of(self, demand: Demand) -> str:
        """Return the name of a client: a user, a client-id, or both with a slash between them."""
        return {
            DefaultScope.USER: demand.user or "",
            DefaultScope.CLIENT_ID: demand.client_id or "",
            DefaultScope.PAIR: f"{demand.user or ''}/{demand.client_id or ''}",
        }[self.scope]

    def shown_name(self, demand: Demand) -> str:
        """Return the name of a client for a sentence, without characters that act on a terminal."""
        return shown_name(self.name_of(demand)) or "(no name)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A limit for one client alone."""

    demand: Demand
    limit: float
    wanted: float
    """The limit before it was cut to a share of a broker's capacity."""
    throttled_share_at_default: float = 0.0
    """Share of active time that the default would throttle, 0 to 1; 0 before a replay."""
    throttled_share: float = 0.0
    """Share of active time that the override would throttle, 0 to 1; 0 before a replay."""

    @property
    def pays(self) -> bool:
        """Whether the limit is below what was recommended before the capacity was shared."""
        return self.limit < self.wanted


def is_nameable(override: Override, scope: DefaultScope) -> bool:
    """Check whether a quota can be set on a client, which Kafka refuses for empty names."""
    return all(name != "" for _, name in scope.entity(override.demand.user, override.demand.client_id).parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """What clients would take of one broker at the same time under the limits, and its capacity."""

    broker_id: int
    clients: int
    """Clients that used the broker."""
    limits: float
    """Sum of the limits of the clients that used the broker; more than the capacity is usual."""
    replication: float
    """What followers took of the capacity while it was recorded."""
    capacity: float | None
    """Capacity in the unit of the quota key, None if unknown."""
    capacity_share: float
    """Share of the capacity that clients and replication may take."""
    wanted: float = 0.0
    """What clients would take in the busiest minute before limits were cut, 0 without a capacity."""
    at_ms: int | None = None
    """When that minute begins, in ms since 1970, None without a capacity."""
    allowed: float = 0.0
    """What they would take in their busiest minute under the recommended limits, 0 without a capacity."""

    @property
    def available(self) -> float:
        """What clients may share, infinity if the capacity is unknown."""
        return math.inf if self.capacity is None else max(self.capacity * self.capacity_share - self.replication, 0.0)

    @property
    def fits(self) -> bool | None:
        """Whether what clients would take at the same time fits uncut limits, None if the capacity is unknown."""
        return None if self.capacity is None else self.wanted <= self.available


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChange:
    """What the recommended quotas do to a client beside those in force."""

    name: ClientName
    before: float | None
    """The limit in force, None for none."""
    after: float
    held_before: float
    """Share of its active time that the limit in force throttles in the replay, 0 to 1."""
    held_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChanges:
    """The clients of one quota type by what the recommended quotas do to them beside those in force."""

    tightened: int
    loosened: int
    unchanged: int
    first: tuple[LimitChange, ...]
    """Some of those whose limit changes: whom it throttles longer than before comes first, then the tightened ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The quotas to set for one quota type."""

    quota_type: QuotaType
    default: float
    overrides: tuple[Override, ...]
    """Overrides for the neediest clients, the neediest first."""
    clients: int
    """Clients that used the quota type."""
    tolerance: Tolerance
    lowest_default: float
    """The default before headroom, its lower bound and rounding up."""
    wanted_default: float
    """The default before it was cut to a share of a broker's capacity."""
    loads: tuple[BrokerLoad, ...] = ()
    held: int = 0
    """Clients that were held back while they were recorded."""
    most_held: tuple[Demand, ...] = ()
    """Some of these by name: those of unknown demand first, then the neediest."""
    partial: int = 0
    """Clients with an incident, or a time before a decline, that is left out of their need."""
    most_partial: tuple[Demand, ...] = ()
    """Some of these by name, the neediest first."""
    preferred: tuple[Demand, ...] = ()
    """Clients with a priority."""
    choices: tuple[tuple[int, float], ...] = ()
    """Numbers of overrides, and the default that each would take."""
    neediest: tuple[Demand, ...] = ()
    """The neediest of all clients, with all that was tried on them, the neediest first."""
    explained: Demand | None = None
    """The client to explain, with all that was tried on it."""
    curve: tuple[tuple[float, int], ...] = ()
    """Each tried limit, with the clients that it would hold back for longer than tolerated."""
    largest_tolerated_share: float = 0.0
    """Largest share of active time that the default throttles, over clients without an override; 0 before a replay."""
    peak: float | None = None
    """Largest rate of a client without an override, None if there is none, and before a replay."""
    exceeding: tuple[tuple[Demand, float], ...] = ()
    """Clients that the quotas would throttle for longer than tolerated, with the share, the largest first."""
    exceeding_clients: int = 0
    """How many such clients there are."""
    exceeding_default: int = 0
    """How many of them the default throttles."""
    changes: LimitChanges | None = None
    """What changes beside the quotas in force, None before a replay, or if these are of other entities."""
    unknown_default: int = 0
    """How many others under the default have an unknown demand; 0 before a replay."""

    @property
    def is_raised(self) -> bool:
        """Whether the default is its lower bound, and the clients' need with headroom is below."""
        least = self.tolerance.least(self.quota_type)
        return self.lowest_default * self.tolerance.headroom < least <= self.default

    @property
    def without_override(self) -> int:
        """The number of clients under the default."""
        return self.clients - len(self.overrides)

    @property
    def fitting(self) -> int:
        """The number of clients under the default whose demand is known, and for which it was enough."""
        return self.without_override - self.exceeding_default - self.unknown_default

    @property
    def unknown(self) -> tuple[Demand, ...]:
        """The clients under the default whose demand is unknown, of those that are named."""
        own, exceeding = self.limits(), {demand.name for demand, _ in self.exceeding}
        return tuple(
            each
            for each in self.most_held
            if each.is_unknown and (each.user, each.client_id) not in own and each.name not in exceeding
        )

    def pays(self, demand: Demand) -> bool:
        """Check whether a client's limit was cut to a share of a broker's capacity."""
        own = next((each.pays for each in self.overrides if each.demand.name == demand.name), None)
        return self.default < self.wanted_default if own is None else own

    @property
    def is_cut(self) -> bool:
        """Whether a broker has less than the limits would add up to, and clients pay for it."""
        return any(load.fits is False for load in self.loads)

    def limits(self) -> dict[tuple[str | None, str | None], float]:
        """Return the overrides by user and client-id, without the default of all other clients."""
        return {(each.demand.user, each.demand.client_id): each.limit for each in self.overrides}
