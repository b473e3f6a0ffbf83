"""What is asked of a recommendation, what clients need, and the default and overrides that are advised.

Invariants: limits and rates are in the unit of the quota key and per broker, as Kafka enforces them. A client's demand
is that of the broker where it needs most, since one limit holds at all of them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import shown_name
from kafka_quotas.core.model.quota_key import FETCH_BYTES, QuotaKey, QuotaType, ValueType
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.proposal import DefaultScope, Proposal

Capacities = Mapping[int, Mapping[QuotaType, float]]
"""What each broker has for a quota type, in the unit of its key, by broker id; -1 is every other broker."""
NEEDIEST_SHOWN: Final = 4
"""Clients of each quota type that a report shows with all that was tried."""
NAMED: Final = 20
"""Clients of each quota type that are named for one reason."""
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


ClientName = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A limit that was replayed, and its effect."""

    DOCUMENT: ClassVar = "limit held_back_share=throttled_share"
    limit: float
    throttled_share: float
    """Share of its active time for which the client was throttled, 0 to 1."""


HELD_SHARE: Final = 0.01
"""Share of its time up to which a client that was held back while it was recorded shows what it wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpliedDemand:
    """The demand of a client by hour of the week, as its throttle times imply where it was held back."""

    rate: float
    """99th percentile of the busiest hour of the week, with growth."""
    low: float | None
    """5th percentile over days drawn again, None for too few days."""
    high: float | None
    """95th percentile, likewise."""
    growth: float
    """Factor until the horizon, from 1."""
    busiest_hour: int
    """Hour of the week in UTC, 0 for Monday 0:00."""
    days: int
    """Days with traffic."""
    held_share: float
    """Share of its time for which the client was held back while it was recorded, 0 to 1."""
    is_unknown: bool
    """Whether it was held back so long that the rate is only what it got."""
    declined_from: float | None = None
    """Usual level before it declined, None if it did not; the rate is the one since."""
    incident_ms: int | None = None
    """When its largest incident began, in ms since 1970, None for none; incidents are not in the rate."""
    incident_s: int | None = None
    """How long that lasted."""
    incident_rate: float | None = None
    """The rate that it reached."""

    @property
    def is_held(self) -> bool:
        """Whether the client was held back for so long that its demand is a lower bound."""
        return self.held_share > HELD_SHARE

    @property
    def is_partial(self) -> bool:
        """Whether an incident, or the time before a decline, is left out of the rate."""
        return self.declined_from is not None or self.incident_ms is not None

    @property
    def confidence(self) -> str:
        """How far the recorded days show what the client needs: low below 3 of them, high from a week on."""
        return "high" if self.days >= 7 else "medium" if self.days >= 3 else "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDemand:
    """The rates of a client at one broker (Kafka's own, over the quota window) and its trials."""

    DOCUMENT: ClassVar = "broker_id p50 p99 peak active_s needed tried=trials"
    broker_id: int
    p50: float
    p99: float
    peak: float
    active_s: int
    """Seconds with traffic."""
    needed: float
    """Limit that the client needs there (`clients`)."""
    implied: ImpliedDemand
    trials: tuple[Trial, ...] = ()
    """Trials of a client that is shown with all of them, the lowest limit first."""

    def throttled_share(self, limit: float) -> float:
        """Return the share of active time that a limit throttles, by the highest trial not above it.

        Returns:
            0 from the peak on, 1 below every trial.
        """
        if limit >= self.peak:
            return 0.0
        below = [trial.throttled_share for trial in self.trials if trial.limit <= limit]
        return below[-1] if below else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A client's demand of one quota type at every broker it used."""

    quota_type: QuotaType
    user: str | None
    """User, None if clients of all users count as one."""
    client_id: str | None
    """Client-id, None if clients of all client-ids count as one."""
    brokers: tuple[BrokerDemand, ...]

    @property
    def busiest(self) -> BrokerDemand:
        """The broker where the client needs most, the first of equals."""
        return max(self.brokers, key=lambda each: (each.needed, each.peak, -each.broker_id))

    @property
    def needed(self) -> float:
        """The limit that the client needs at its busiest broker."""
        return self.busiest.needed

    @property
    def name(self) -> ClientName:
        """User and client-id, empty if clients of all count as one."""
        return self.user or "", self.client_id or ""

    def throttled_share(self, limit: float) -> float:
        """Return the largest share of active time that a limit throttles, over the brokers."""
        return max(each.throttled_share(limit) for each in self.brokers)

    @property
    def implied(self) -> ImpliedDemand:
        """The implied demand at the broker where it is largest."""
        return max((each.implied for each in self.brokers), key=lambda each: (each.is_held, each.rate))

    @property
    def is_lower_bound(self) -> bool:
        """Whether the client was held back while it was recorded, and may want more."""
        return self.implied.is_held

    @property
    def is_unknown(self) -> bool:
        """Whether it was held back for so long that what it wants is unknown."""
        return self.implied.is_held and self.implied.is_unknown

    @property
    def left_out(self) -> ImpliedDemand | None:
        """The implied demand at the broker where most is left out of it, None if nothing is."""
        found = [each.implied for each in self.brokers if each.implied.is_partial]
        return max(found, key=lambda each: max(each.incident_rate or 0.0, each.declined_from or 0.0), default=None)

    @property
    def peak(self) -> float:
        """The largest rate at any broker."""
        return max(each.peak for each in self.brokers)

    @property
    def p99(self) -> float:
        """The largest 99th percentile of the rate at any broker."""
        return max(each.p99 for each in self.brokers)

    def skew(self, broker_count: int) -> float:
        """Return the peak at the busiest broker by the mean of the peaks over all brokers of the cluster.

        Returns:
            1 for even use, up to the number of brokers where all is at one of them.
        """
        total = sum(each.peak for each in self.brokers)
        return self.peak * broker_count / total if total > 0 else 1.0


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

    def priority(self, demand: Demand) -> float:
        """Return by which factor a client's share of a short capacity exceeds that of others."""
        return self.priorities.get(self.name_of(demand), 1.0)

    def capacity(self, quota_type: QuotaType, broker_id: int) -> float | None:
        """Return a broker's capacity in the unit of the quota key, None if unknown."""
        known = self.capacities or {}
        return known.get(broker_id, known.get(-1, {})).get(quota_type)

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
    throttled_share_at_default: float | None = 0.0
    """Share of active time that the default would throttle, 0 to 1; 0 before a replay, and None if unknown.

    It is unknown if the client was held back while it was recorded, and the default would have let through what it
    got, which is all that can be replayed.
    """
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

    user: str
    client_id: str
    quota_before: float | None
    """The limit in force, None for none."""
    quota_after: float
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
    tolerance: Tolerance
    default: float
    overrides: tuple[Override, ...]
    """Overrides for the neediest clients, the neediest first."""
    lowest_default: float
    """The default before headroom, its lower bound and rounding up."""
    wanted_default: float
    """The default before it was cut to a share of a broker's capacity."""
    clients: int
    """Clients that used the quota type."""
    held: int
    """Clients that were held back while they were recorded."""
    partial: int
    """Clients with an incident, or a time before a decline, that is left out of their need."""
    named: tuple[Demand, ...]
    """Clients that need more than the default, the neediest, and those with a priority or to explain, by need."""
    explained: Demand | None
    """The client to explain, with all that was tried on it."""
    choices: tuple[tuple[int, float], ...]
    """Numbers of overrides, and the default that each would take."""
    curve: tuple[tuple[float, int], ...]
    """Each tried limit, with the clients that it would hold back for longer than tolerated."""
    loads: tuple[BrokerLoad, ...] = ()
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
    unknown_default: int = 0
    """How many others under the default have an unknown demand; 0 before a replay."""
    changes: LimitChanges | None = None
    """What changes beside the quotas in force, None before a replay, or if these are of other entities."""

    @property
    def neediest(self) -> tuple[Demand, ...]:
        """The neediest of all clients, with all that was tried on them."""
        return self.named[:NEEDIEST_SHOWN]

    @property
    def most_held(self) -> tuple[Demand, ...]:
        """Some clients that were held back: those of unknown demand first, then the neediest."""
        held = (each for each in self.named if each.is_lower_bound)
        return tuple(sorted(held, key=lambda each: (not each.is_unknown, -each.needed, each.name))[:NAMED])

    @property
    def most_partial(self) -> tuple[Demand, ...]:
        """Some clients of which not all that was recorded counts, the neediest first."""
        return tuple(each for each in self.named if each.left_out is not None)[:NAMED]

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
        others = {demand.name for demand, _ in self.exceeding} | {each.demand.name for each in self.overrides}
        return tuple(each for each in self.most_held if each.is_unknown and each.name not in others)

    def pays(self, demand: Demand) -> bool:
        """Check whether a client's limit was cut to a share of a broker's capacity."""
        own = self.override(demand)
        return self.default < self.wanted_default if own is None else own.pays

    def override(self, demand: Demand) -> Override | None:
        """Return the limit of a client alone, None where the default limits it."""
        return next((each for each in self.overrides if each.demand.name == demand.name), None)

    def limits(self) -> dict[ClientName, float]:
        """Return the overrides by name, without the default of all other clients."""
        return {each.demand.name: each.limit for each in self.overrides}
