"""A token bucket, and any stat under one quota: recording, checking, and the throttle time of a violation.

The bucket fills with the bound per second up to the burst (`samples * window * bound`), and may go into debt. A new one
holds 0 tokens at time 0: on a real clock its first refill fills it up to the burst, on a clock that starts at 0 it is
empty. A clock that goes back takes tokens away. A new bound counts from the last refill on. Without a bound the bucket
records nothing.

A sensor is the general form of what `quotas.quota_bucket` does in one call: any stat, either direction of the bound,
and every step observable. The calculator and the simulator use it.

Invariants: recording comes before the check, and a refused value stays recorded. Checking observes, and observing
resets expired samples and refills buckets: it is part of the state's history. A value equal to the bound is acceptable,
NaN never is. Quotas are equal if their bounds and directions are, and as in Java a bound of NaN equals nothing.

**Source:** `TokenBucket`, `Sensor.record`, `Sensor.checkQuotas`, `QuotaUtils`, `org.apache.kafka.common.metrics.Quota`
of Kafka 4.0; KIP-599.
"""

from dataclasses import dataclass
from typing import Protocol

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.metrics.rate import Rate
from kafka_quotas.core.metrics.throttle_time import mutation_throttle_time_ms, throttle_time_ms
from kafka_quotas.core.model.quota_key import LONG_MAX


class TokenBucket:
    """The tokens of one bucket, below 0 while a strict quota admits nothing more."""

    __slots__ = ("_bound", "_burst", "_last_ms", "_per_second", "_samples", "_tokens", "_window_ms")

    def __init__(self, samples: int, window_ms: int, bound: float | None = None) -> None:
        self._tokens = 0.0
        self._last_ms = 0
        self._samples = samples
        self._window_ms = window_ms
        self.bound = bound

    @property
    def bound(self) -> float | None:
        """The tokens per second, or None for no quota."""
        return self._bound

    @bound.setter
    def bound(self, bound: float | None) -> None:
        self._bound = None if bound is None else float(bound)
        self._per_second = 0.0 if bound is None else float(bound)
        self._burst = self._samples * (self._window_ms / 1000.0) * self._per_second

    @property
    def burst(self) -> float:
        """The capacity in tokens, 0 without a quota."""
        return self._burst

    def reconfigure(self, samples: int, window_ms: int) -> None:
        """Set the window, and with it the burst, which cuts the tokens with the next refill."""
        self._samples = samples
        self._window_ms = window_ms
        self.bound = self._bound

    @property
    def snapshot(self) -> tuple[float, ...]:
        """The snapshot for `restore`: the tokens and the time of that count."""
        return (self._tokens, float(self._last_ms))

    def restore(self, snapshot: tuple[float, ...], shift_ms: int) -> None:
        """Restore the state of another bucket, with its time moved by `shift_ms`."""
        self._tokens, last_ms = snapshot
        self._last_ms = int(last_ms) + shift_ms

    def measure(self, now_ms: int) -> float:
        """Refill the bucket and return its tokens, or the 64-bit maximum without a quota."""
        if self._bound is None:
            return float(LONG_MAX)
        self._tokens = tokens = self.peek(now_ms)
        self._last_ms = now_ms
        return tokens

    def record(self, value: float, now_ms: int) -> None:
        """Refill the bucket and take a value out, or put a negative one back in, up to the burst."""
        if self._bound is None:
            return
        tokens = self.measure(now_ms) - value
        self._tokens = min(tokens, self._burst)

    def peek(self, now_ms: int) -> float:
        """Return the tokens that `measure` would find, without a refill."""
        if self._bound is None:
            return float(LONG_MAX)
        tokens = self._tokens + self._per_second * ((now_ms - self._last_ms) / 1000.0)
        return min(tokens, self._burst)


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
        """Return the window in ms of a rate."""
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
