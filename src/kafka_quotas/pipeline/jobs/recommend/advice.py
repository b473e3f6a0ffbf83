"""What clients need, and the default and overrides that are advised.

Invariants: limits and rates are in the unit of the quota key and per broker, as Kafka enforces them. A client's demand
is that of the broker where it needs most, since one limit holds at all of them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, NamedTuple

from kafka_quotas.core.described import Described
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan

if TYPE_CHECKING:  # help texts of the commands need this module, and no Arrow
    from kafka_quotas.pipeline.engine.events import RecordedEvents
    from kafka_quotas.pipeline.jobs.usage.job import UsageTables

NEEDIEST_SHOWN: Final = 4
"""Clients of each quota type that a report shows with all that was tried."""
NAMED: Final = 20
"""Clients of each quota type that are named for one reason."""

ROUNDING: Final = 1e-9
"""Share by which sums of an engine differ with the order of their rows."""

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
    """The demand of a client by hour of the week, as its throttle times imply where it was held back.

    `rate` and all others are columns of the table `usage_profile`, which says what they are.
    """

    rate: float
    low: float | None
    high: float | None
    growth: float
    busiest_hour: Annotated[int, Described(text="of the week in UTC, 0 for Monday 0:00")]
    days: int
    held_share: float
    is_unknown: bool
    declined_from: float | None = None
    incident_ms: int | None = None
    incident_s: int | None = None
    incident_rate: float | None = None

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
        """Return the share of active time that a limit throttles, by the highest trial not above it, else 1."""
        if limit >= self.peak:
            return 0.0
        below = [trial.throttled_share for trial in self.trials if trial.limit <= limit]
        return below[-1] if below else 1.0


class BrokerNeed(NamedTuple):
    """What a table keeps of a client's demand at one broker."""

    broker_id: int
    needed: float
    p99: float
    peak: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A client's demand of one quota type at every broker it used."""

    quota_type: QuotaType
    user: str | None
    """User, None if clients of all users count as one."""
    client_id: str | None
    """Client-id, None if clients of all client-ids count as one."""
    has_name: bool
    """Whether a quota can be set on it, which Kafka refuses for empty names."""
    brokers: tuple[BrokerDemand, ...]

    @property
    def needs(self) -> tuple[BrokerNeed, ...]:
        """The demand at each broker."""
        return tuple(BrokerNeed(each.broker_id, each.needed, each.p99, each.peak) for each in self.brokers)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A limit for one client alone."""

    DOCUMENT: ClassVar = (
        "busiest_broker=demand.busiest.broker_id demand.needed wanted is_lower_bound=demand.implied.is_held "
        "demand.implied.confidence demand.implied demand.p99 demand.peak skew throttled_share_at_default "
        "brokers=demand.needs can_be_set=demand.has_name"
    )
    demand: Demand
    limit: float
    wanted: float
    """The limit before it was cut to a share of a broker's capacity."""
    broker_count: int
    """Brokers that clients used the quota type at."""
    throttled_share_at_default: float | None = 0.0
    """Share of active time that the default would throttle, 0 to 1; 0 before a replay.

    None if the client was held back while recorded, and the default would have let through what it got.
    """
    throttled_share: float = 0.0
    """Share of active time that the override would throttle, 0 to 1; 0 before a replay."""

    @property
    def pays(self) -> bool:
        """Whether the limit is below what was recommended before the capacity was shared."""
        return self.limit < self.wanted

    @property
    def skew(self) -> float:
        """The peak at the busiest broker by the mean of the peaks over all brokers, from 1 for even use."""
        total = sum(each.peak for each in self.demand.brokers)
        return self.demand.peak * self.broker_count / total if total > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """What clients would take of one broker at the same time under the limits, and its capacity."""

    DOCUMENT: ClassVar = "broker_id limits wanted at_ms allowed replication capacity fits"
    broker_id: int
    clients: int
    """Clients that used the broker."""
    limits: Annotated[float, Described(text="sum of the limits of its clients")]
    """More than the capacity is usual."""
    replication: float
    """What followers took of the capacity while it was recorded."""
    capacity: float | None
    """Capacity in the unit of the quota key, None if unknown."""
    capacity_share: float
    """Share of the capacity that clients and replication may take."""
    wanted: Annotated[float, Described(text="what clients would take in the busiest minute before limits are cut")] = (
        0.0
    )
    """0 without a capacity, as is `allowed`."""
    at_ms: int | None = None
    """When that minute begins, in ms since 1970, None without a capacity."""
    allowed: Annotated[float, Described(text="what they would take under the limits")] = 0.0

    @property
    def available(self) -> float:
        """What clients may share, infinity if the capacity is unknown."""
        return math.inf if self.capacity is None else max(self.capacity * self.capacity_share - self.replication, 0.0)

    @property
    def fits(self) -> bool | None:
        """Whether what clients would take at the same time fits uncut limits, None if the capacity is unknown."""
        return None if self.capacity is None else self.wanted <= self.available * (1 + ROUNDING)


class LimitChange(NamedTuple):
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
    """What the recommended quotas do beside those in force to clients of one quota type."""

    counts: Mapping[str, int]
    """Clients whose limit is `tightened`, `loosened` or `unchanged`."""
    first: tuple[LimitChange, ...]
    """Some of those whose limit changes: whom it throttles longer than before comes first, then the tightened ones."""


class Choice(NamedTuple):
    """A number of overrides, and the default that it would take."""

    overrides: int
    default: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The quotas to set for one quota type."""

    DOCUMENT: ClassVar = (
        "clients clients_with_overrides choices tolerated_time_share=plan.time_share plan.headroom "
        "wanted=wanted_default clients_held_back_while_recorded=held clients_under_default.enough=fitting "
        "clients_under_default.unknown=unknown_default clients_under_default.throttled=exceeding_default brokers=loads"
    )
    quota_type: QuotaType
    plan: RecommendPlan
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
    choices: tuple[Choice, ...]
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
        held = (each for each in self.named if each.implied.is_held)
        return tuple(sorted(held, key=lambda each: (not each.is_unknown, -each.needed, each.name))[:NAMED])

    @property
    def most_partial(self) -> tuple[Demand, ...]:
        """Some clients of which not all that was recorded counts, the neediest first."""
        return tuple(each for each in self.named if each.left_out is not None)[:NAMED]

    @property
    def is_raised(self) -> bool:
        """Whether the default is its lower bound, and the clients' need with headroom is below."""
        return self.lowest_default * self.plan.headroom < self.plan.least(self.quota_type) <= self.default

    @property
    def clients_with_overrides(self) -> int:
        """The number of overrides."""
        return len(self.overrides)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The quotas to set, with the results of replaying all of them."""

    plan: RecommendPlan
    events: "RecordedEvents"
    cluster: str
    observed: "UsageTables"
    """Recorded usage, with a bucket for every client."""
    advices: tuple[Advice, ...] = ()
    """Advice for every quota type that was used."""
    clients: int = 0
    """Clients that used any of these quota types."""

    @property
    def is_short(self) -> bool:
        """Whether less was recorded than quotas should be set from."""
        return self.events.seconds < self.plan.min_recorded_s
