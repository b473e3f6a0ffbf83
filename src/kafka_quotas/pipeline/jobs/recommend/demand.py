"""The need of one client for one quota type, broker by broker.

Invariants: limits and rates are in the unit of the quota key and per broker, as Kafka enforces them. A client's demand
is that of the broker where it needs most, since one limit holds at all of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from kafka_quotas.core.quotas.quota_manager import QuotaType

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
    implied: "ImpliedDemand | None" = None
    """Demand by hour of the week, None if only the rates above are known."""
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

    @property
    def rank(self) -> tuple[float, ClientName]:
        """The key that sorts clients of one quota type, the least needy first."""
        return self.needed, self.name

    def throttled_share(self, limit: float) -> float:
        """Return the largest share of active time that a limit throttles, over the brokers."""
        return max(each.throttled_share(limit) for each in self.brokers)

    @property
    def implied(self) -> ImpliedDemand | None:
        """The implied demand at the broker where it is largest, None if it is known at none."""
        found = [each.implied for each in self.brokers if each.implied is not None]
        return max(found, key=lambda each: (each.is_held, each.rate), default=None)

    @property
    def is_lower_bound(self) -> bool:
        """Whether the client was held back while it was recorded, and may want more."""
        return self.implied is not None and self.implied.is_held

    @property
    def is_unknown(self) -> bool:
        """Whether it was held back for so long that what it wants is unknown."""
        return self.implied is not None and self.implied.is_held and self.implied.is_unknown

    @property
    def left_out(self) -> ImpliedDemand | None:
        """The implied demand at the broker where most is left out of it, None if nothing is."""
        found = [each.implied for each in self.brokers if each.implied is not None and each.implied.is_partial]
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


def demands_of(rows: Iterable[Mapping[str, Any]]) -> list[Demand]:
    """Return the clients of rows, each with what it needs at one broker, in the order of their first rows."""
    brokers: dict[tuple[str, str, str], list[BrokerDemand]] = defaultdict(list)
    implied = [each.name for each in fields(ImpliedDemand) if each.name != "rate"]
    for row in rows:
        known = None
        if row["demand"] is not None:
            known = ImpliedDemand(rate=row["demand"], **{name: row[name] for name in implied})
        own = {name: row[name] for name in ("broker_id", "p50", "p99", "peak", "active_s", "needed")}
        brokers[row["quota_type"], row["user"], row["client_id"]].append(BrokerDemand(**own, implied=known))
    return [
        Demand(quota_type=QuotaType(kind), user=user or None, client_id=client_id or None, brokers=tuple(each))
        for (kind, user, client_id), each in brokers.items()
    ]
