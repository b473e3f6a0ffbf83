"""One stat under one quota: recording, checking, and the throttle time of a violation.

This is the general form of what `quotas.quota_bucket` does in one call: any stat, either direction of the bound, and
every step observable. The calculator and the simulator use it.

Invariants: recording comes before the check, and a refused value stays recorded. Checking observes, and observing
resets expired samples and refills buckets: it is part of the state's history. A value equal to the bound is acceptable,
NaN never is. Quotas are equal if their bounds and directions are, and as in Java a bound of NaN equals nothing.

**Source:** `Sensor.record`, `Sensor.checkQuotas`, `QuotaUtils`, `org.apache.kafka.common.metrics.Quota` (Kafka 4.0).
"""

from dataclasses import dataclass
from typing import Protocol

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.metrics.rate import Rate
from kafka_quotas.core.metrics.throttle_time import mutation_throttle_time_ms, throttle_time_ms
from kafka_quotas.core.metrics.token_bucket import TokenBucket


@dataclass(frozen=True, slots=True, eq=False)
class Quota:
    """A bound in the unit of the measurement, by default an upper one."""

    bound: float
    upper: bool = True

    def acceptable(self, value: float) -> bool:
        """Return whether a value is within the bound."""
        return value <= self.bound if self.upper else value >= self.bound

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quota) and (self is other or (self.bound == other.bound and self.upper == other.upper))

    def __hash__(self) -> int:
        return hash((self.bound, self.upper))


class Stat(Protocol):
    """The target of a sensor's records: a ring of samples, a rate or a token bucket."""

    def record(self, value: float, now_ms: int) -> None:
        """Record a value."""

    def measure(self, now_ms: int) -> float:
        """Return the measured value, which may change the state."""
        ...

    def reconfigure(self, samples: int, window_ms: int) -> None:
        """Set the window, keeping what was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A measured value beyond its bound."""

    value: float
    bound: float
    window_ms: int | None
    """The window of the measurement; None for all but rates."""
    throttle_ms: int | None
    """The time to wait, a 64-bit number; None for sums and counts."""


class Sensor:
    """A stat and its optional quota."""

    def __init__(self, stat: Stat, quota: Quota | None = None, *, max_throttle_ms: int | None = None) -> None:
        self.stat = stat
        self.max_throttle_ms = max_throttle_ms
        self.quota = quota

    @property
    def quota(self) -> Quota | None:
        """The quota, or None, whose bound also refills a token bucket."""
        return self._quota

    @quota.setter
    def quota(self, quota: Quota | None) -> None:
        self._quota = quota
        if isinstance(self.stat, TokenBucket):
            self.stat.bound = None if quota is None else quota.bound

    def record(self, value: float, now_ms: int) -> Violation | None:
        """Record a value and return the violation, or None within the quota."""
        self.stat.record(value, now_ms)
        return self.check(now_ms)

    def check(self, now_ms: int) -> Violation | None:
        """Return the violation, or None within the quota."""
        if self._quota is None:
            return None
        value = self.stat.measure(now_ms)
        held = not value < 0 if isinstance(self.stat, TokenBucket) else self._quota.acceptable(value)
        return None if held else self._violation(value, self._quota.bound, now_ms)

    def window_ms(self, now_ms: int) -> int:
        """Return the window in ms of a rate.

        Raises:
            UsageError: The stat is no rate.
        """
        if not isinstance(self.stat, Rate):
            raise UsageError(f"{type(self.stat).__name__} is not a Rate metric, it has no window")
        return self.stat.window_ms(now_ms)

    def _violation(self, value: float, bound: float, now_ms: int) -> Violation:
        window_ms: int | None = None
        throttle_ms: int | None = None
        if isinstance(self.stat, Rate):
            window_ms = self.stat.window_ms(now_ms)
            throttle_ms = throttle_time_ms(value, bound, window_ms)
            if self.max_throttle_ms is not None:
                throttle_ms = min(throttle_ms, self.max_throttle_ms)
        elif isinstance(self.stat, TokenBucket):
            throttle_ms = mutation_throttle_time_ms(value, bound)
        return Violation(value=value, bound=bound, window_ms=window_ms, throttle_ms=throttle_ms)
