"""The need of one client for one quota type, broker by broker.

Invariants: limits and rates are in the unit of the quota key and per broker, as Kafka enforces them. A client's demand
is that of the broker where it needs most, since one limit holds at all of them.
"""

from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.quotas.quota_manager import QuotaType


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A limit that was replayed, and its effect."""

    limit: float
    throttled_share: float
    """Share of its active time for which the client was throttled, 0 to 1."""


_HELD_SHARE: Final = 0.01


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

    @property
    def is_held(self) -> bool:
        """Whether the client was held back for so long that its demand is a lower bound."""
        return self.held_share > _HELD_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDemand:
    """The rates of a client at one broker (Kafka's own, over the quota window) and its trials."""

    broker_id: int
    p50: float
    p99: float
    peak: float
    active_s: int
    """Seconds with traffic."""
    implied: "ImpliedDemand | None" = None
    """Demand by hour of the week, None where only the rates above are known."""
    trials: tuple[Trial, ...] = ()
    """Trials, the lowest limit first."""

    def needed(self, tolerated_share: float) -> float:
        """Return the lowest limit that throttles the client for at most a share of its active time.

        No higher trial throttles it for longer either. Growth is in it, and the busiest hour of the week.

        Returns:
            The peak where every trial throttles it for longer, or there is none: at its peak rate a client is not
            throttled. The implied demand where the client was held back while it was recorded.
        """
        implied = self.implied
        if implied is not None and implied.is_held:
            # what was replayed is what the client was let through: no limit would have held that back much
            return implied.rate
        needed = self.peak
        for trial in reversed(self.trials):
            if trial.throttled_share > tolerated_share:
                break
            needed = trial.limit
        needed = min(needed, self.peak)
        return needed if implied is None else max(needed * implied.growth, implied.rate)

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
    """User, None where clients of all users count as one."""
    client_id: str | None
    """Client-id, None where clients of all client-ids count as one."""
    brokers: tuple[BrokerDemand, ...]

    def busiest(self, tolerated_share: float) -> BrokerDemand:
        """Return the broker where the client needs most, the first of equals."""
        return max(self.brokers, key=lambda each: (each.needed(tolerated_share), each.peak, -each.broker_id))

    def needed(self, tolerated_share: float) -> float:
        """Return the limit that the client needs at its busiest broker."""
        return self.busiest(tolerated_share).needed(tolerated_share)

    def throttled_share(self, limit: float) -> float:
        """Return the largest share of active time that a limit throttles, over the brokers."""
        return max(each.throttled_share(limit) for each in self.brokers)

    @property
    def implied(self) -> ImpliedDemand | None:
        """The implied demand at the broker where it is largest, None where it is known at none."""
        found = [each.implied for each in self.brokers if each.implied is not None]
        return max(found, key=lambda each: (each.is_held, each.rate), default=None)

    @property
    def is_lower_bound(self) -> bool:
        """Whether the client was held back while it was recorded, and may want more."""
        return self.implied is not None and self.implied.is_held

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
