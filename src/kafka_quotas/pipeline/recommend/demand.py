"""What one client needs of one quota type, broker by broker.

Invariants: limits and rates are in the unit of the quota key and per broker, as Kafka enforces them; a client's demand
is that of the broker where it needs most, for one limit holds at all of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafka_quotas.core.quotas.quota_manager import QuotaType


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a limit that was tried did: the share of its active time for which the client was held back, 0 to 1."""

    limit: float
    throttled_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDemand:
    """A client at one broker: its rate (Kafka's own, over the quota window) and the limits tried, the lowest first."""

    broker_id: int
    p50: float
    p99: float
    peak: float
    active_s: int
    trials: tuple[Trial, ...] = ()

    def needed(self, tolerated_share: float) -> float:
        """The lowest limit from which on no trial holds the client back for more than that share of its active time.

        The peak where every trial does, or none was made: at its peak rate a client is not throttled.
        """
        needed = self.peak
        for trial in reversed(self.trials):
            if trial.throttled_share > tolerated_share:
                break
            needed = trial.limit
        return min(needed, self.peak)

    def throttled_share(self, limit: float) -> float:
        """The share of active time held back under a limit: that of the highest trial not above it.

        0 from the peak on, 1 below every trial.
        """
        if limit >= self.peak:
            return 0.0
        below = [trial.throttled_share for trial in self.trials if trial.limit <= limit]
        return below[-1] if below else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A client's demand of one quota type at every broker it used; a user or client-id of None is not looked at."""

    quota_type: QuotaType
    user: str | None
    client_id: str | None
    brokers: tuple[BrokerDemand, ...]

    def busiest(self, tolerated_share: float) -> BrokerDemand:
        """The broker where the client needs most; of equals the first."""
        return max(self.brokers, key=lambda each: (each.needed(tolerated_share), each.peak, -each.broker_id))

    def needed(self, tolerated_share: float) -> float:
        """The limit the client needs at its busiest broker."""
        return self.busiest(tolerated_share).needed(tolerated_share)

    def throttled_share(self, limit: float) -> float:
        """The largest share of active time held back, over the brokers."""
        return max(each.throttled_share(limit) for each in self.brokers)

    @property
    def peak(self) -> float:
        """The largest rate at any broker."""
        return max(each.peak for each in self.brokers)

    @property
    def p99(self) -> float:
        """The largest 99th percentile of the rate at any broker."""
        return max(each.p99 for each in self.brokers)

    def skew(self, broker_count: int) -> float:
        """The peak at the busiest broker by the mean of the peaks over all brokers of the cluster, from 1.

        1 is even; the number of brokers is all at one of them.
        """
        total = sum(each.peak for each in self.brokers)
        return self.peak * broker_count / total if total > 0 else 1.0


def broker_ids(demands: Iterable[Demand]) -> tuple[int, ...]:
    """Every broker that anybody used, sorted."""
    return tuple(sorted({each.broker_id for demand in demands for each in demand.brokers}))


def sorted_by_need(demands: Sequence[Demand], tolerated_share: float) -> list[Demand]:
    """The demands, those who need least first; equals by name."""
    return sorted(demands, key=lambda each: (each.needed(tolerated_share), each.user or "", each.client_id or ""))
