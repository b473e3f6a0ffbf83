"""A bucket without a window, which allows one second's worth of tokens and may be overdrawn.

A window lets a fast client spend ten seconds' quota at once and then nothing for as long; the smooth bucket lets it
spend one second's.
Invariants: it records everything, its throttle time ends when the debt does, and a clock that goes back neither gives
nor takes tokens. A snapshot is plain figures that survive a restart.
"""

from typing import Final

from kafka_quotas.core.metrics.throttle_time import mutation_throttle_time_ms
from kafka_quotas.core.model.quota_key import INT_MAX, LONG_MAX
from kafka_quotas.core.quotas.quota_bucket import UNLIMITED
from kafka_quotas.core.resolution.quota_resolver import Bucket

BURST_S: Final = 1
"""The burst of a rested client, in seconds of its quota."""


class SmoothBucket:
    """A token bucket under a byte or time quota, with tokens in the unit of the quota."""

    __slots__ = (
        "_bound",
        "_factor",
        "_last_ms",
        "_max_throttle_ms",
        "_reserved",
        "_reserved_base",
        "_spent",
        "generation",
        "name",
        "recorded_ms",
        "total",
    )

    def __init__(self, name: Bucket, max_throttle_ms: int = LONG_MAX) -> None:
        self.name = name
        self.generation = 0
        self.recorded_ms: int | None = None
        self._bound = UNLIMITED
        self._spent = 0.0
        self._reserved = self._reserved_base = self._factor = 0.0
        self.total = 0.0
        """The sum of all records since the start."""
        self._last_ms = 0
        self._max_throttle_ms = min(max_throttle_ms, INT_MAX)

    def set_bound(self, bound: float) -> None:
        """Set the bound (per second), keeping what was spent."""
        self._bound = bound

    def record(self, value: float, now_ms: int) -> None:
        """Spend a value without a check, or give it back if it is negative."""
        self._spent = max(0.0, self.peek(now_ms) * BURST_S + value)
        self._last_ms = max(now_ms, self._last_ms)
        self.recorded_ms = now_ms
        self.total += value

    @property
    def capacity(self) -> float:
        """The most that a rested client may take without a throttle time."""
        return self._bound * BURST_S

    @property
    def reserved(self) -> float:
        """The part of the second's worth that is left to others by now."""
        return self._reserved + self._factor * (self.total - self._reserved_base)

    def used(self, now_ms: int) -> float:
        """Return what is spent and not yet refilled."""
        return self.peek(now_ms) * BURST_S

    def window_ms(self, now_ms: int) -> int:  # noqa: ARG002 - it never changes
        """Return the time whose limit is the capacity."""
        return BURST_S * 1000

    def mean_age_ms(self, now_ms: int) -> float:  # noqa: ARG002 - tokens have no age
        """Return 0."""
        return 0.0

    def reserve(self, amount: float, factor: float = 0.0) -> None:
        """Leave an amount of the second's worth to others."""
        self._reserved, self._factor, self._reserved_base = amount, factor, self.total

    def record_past(self, value: float, since_ms: int, until_ms: int, now_ms: int) -> None:  # noqa: ARG002 - spent now
        """Spend a value that was spent elsewhere before."""
        self.record(value, now_ms)

    def record_and_throttle_ms(self, value: float, now_ms: int) -> int:
        """Spend a value and return the throttle time in ms, 0 within the second's worth."""
        self.record(value, now_ms)
        over = self._spent + self.reserved - self._bound * BURST_S
        if over <= 0.0:
            return 0
        return min(mutation_throttle_time_ms(-over, self._bound), self._max_throttle_ms)

    def would_throttle_ms(self, value: float, now_ms: int) -> int:
        """Return the throttle time in ms that recording a value would give, without changing the state."""
        kept = (self._spent, self._last_ms, self.recorded_ms, self.total)
        throttle_ms = self.record_and_throttle_ms(value, now_ms)
        self._spent, self._last_ms, self.recorded_ms, self.total = kept
        return throttle_ms

    @property
    def snapshot(self) -> tuple[float, ...]:
        """The snapshot for `restore`: the tokens spent and the time of that count."""
        return (self._spent, float(self._last_ms))

    def restore(self, snapshot: tuple[float, ...], shift_ms: int) -> None:
        """Restore the state of another bucket, with its time moved by `shift_ms`."""
        self._spent, last_ms = snapshot
        self._last_ms = int(last_ms) + shift_ms

    def peek(self, now_ms: int) -> float:
        """Return the tokens spent and not yet refilled, per second of the burst: a debt above the bound."""
        refilled = self._bound * (max(0, now_ms - self._last_ms) / 1000.0)
        return max(0.0, self._spent - refilled) / BURST_S

    def is_blank(self, now_ms: int) -> bool:
        """Return whether a new bucket in its place would decide the same, because nothing is spent."""
        return self.peek(now_ms) == 0.0

    def is_in_debt(self, now_ms: int) -> bool:
        """Return whether more than the second's worth is spent now."""
        return self.peek(now_ms) > self._bound
