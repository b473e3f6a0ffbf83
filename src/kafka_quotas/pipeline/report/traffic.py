"""Usage over all brokers, of the clients that a page names, and counts and sums of all others."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_quotas.core.quotas.quota_manager import QuotaType

Name = tuple[str | None, str | None]
NEARLY_FULL = 0.9
"""A client that uses this share of its limit is near it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The usage of one quota type by one client (or group under one limit), over all brokers.

    `p99`, `limit` and `used` are those of the broker where it is nearest to its limit, or busiest without a limit.
    Rates are in the unit of the quota key.
    """

    quota_type: QuotaType
    user: str | None
    client_id: str | None
    average: float
    """Average rate over the recording, summed over all brokers."""
    p99: float
    limit: float | None
    """Quota, None for none."""
    throttle_ms: int
    throttled_share: float
    """Largest share of active seconds with a throttle time at any broker, 0 to 1."""

    @property
    def used(self) -> float | None:
        """The 99th percentile of the rate by the limit, None without a limit."""
        if self.limit is None:
            return None
        return self.p99 / self.limit if self.limit else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTraffic:
    """The traffic of all clients."""

    clients: int
    """Clients that used anything."""
    amounts: Mapping[QuotaType, float]
    """What all of them used of each quota type, in the unit of its key times seconds."""
    largest: Mapping[QuotaType, tuple[Traffic, ...]]
    """The clients of each quota type with the highest averages, the highest first."""
    busiest: tuple[Name, ...]
    """The clients that wrote and read the most bytes, the largest first."""
    throttled: int
    """Clients with a throttle time."""
    longest_share: float
    """Largest `throttled_share` of theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedTraffic:
    """The traffic under limits, and throttled traffic that no limit explains."""

    count: int
    limited: int
    """How many of these have a limit."""
    near: int
    """How many use `NEARLY_FULL` of theirs or more."""
    nearest: tuple[Traffic, ...]
    """Those nearest to their limits, the nearest first, and behind them those without one."""
    nearest_of: Mapping[QuotaType, tuple[Traffic, ...]]
    """Those of each quota type with a limit, likewise."""
