"""A rate kept without a window: one second's worth of tokens that may be overdrawn, and a debt is waited off.

A window lets a fast client spend ten seconds' quota at once and then nothing for as long; this lets it spend one
second's. Invariants: everything is recorded; the throttle time ends when the debt does; a clock that goes back neither
gives nor takes tokens.
"""

from typing import Final

from kafka_quotas.core.quota_bucket import UNLIMITED
from kafka_quotas.core.quota_key import INT_MAX, LONG_MAX
from kafka_quotas.core.resolution import Bucket
from kafka_quotas.core.throttle_time import mutation_throttle_time_ms

BURST_S: Final = 1
"""How many seconds' worth a client that rested may take at once."""


class SmoothBucket:
    """A token bucket as a quota manager keeps it; tokens are in the unit of the quota."""

    __slots__ = ("_bound", "_last_ms", "_max_throttle_ms", "_spent", "generation", "name", "recorded_ms")

    def __init__(self, name: Bucket, max_throttle_ms: int = LONG_MAX) -> None:
        self.name = name
        self.generation = 0
        self.recorded_ms: int | None = None
        self._bound = UNLIMITED
        self._spent = 0.0
        self._last_ms = 0
        self._max_throttle_ms = min(max_throttle_ms, INT_MAX)

    def set_bound(self, bound: float) -> None:
        """Nothing; the bound (per second) is another one from now on, what was spent stays."""
        self._bound = bound

    def record(self, value: float, now_ms: int) -> None:
        """Nothing; the value is spent (or given back where it is negative), nothing is checked."""
        self._spent = max(0.0, self.peek(now_ms) * BURST_S + value)
        self._last_ms = max(now_ms, self._last_ms)
        self.recorded_ms = now_ms

    def record_and_throttle_ms(self, value: float, now_ms: int) -> int:
        """The throttle time in ms, 0 where the second's worth was enough; the value stays recorded either way."""
        self.record(value, now_ms)
        over = self._spent - self._bound * BURST_S
        if over <= 0.0:
            return 0
        return min(mutation_throttle_time_ms(-over, self._bound), self._max_throttle_ms)

    def would_throttle_ms(self, value: float, now_ms: int) -> int:
        """Return the throttle time in ms that recording a value would give, and leave everything as it is."""
        kept = (self._spent, self._last_ms, self.recorded_ms)
        throttle_ms = self.record_and_throttle_ms(value, now_ms)
        self._spent, self._last_ms, self.recorded_ms = kept
        return throttle_ms

    @property
    def memory(self) -> tuple[float, ...]:
        """The figures that `remember` takes: what is spent, and when that was counted."""
        return (self._spent, float(self._last_ms))

    def remember(self, memory: tuple[float, ...], shift_ms: int) -> None:
        """Nothing; the bucket is what another one was, `shift_ms` later. Raises `ValueError` for other figures."""
        self._spent, last_ms = memory
        self._last_ms = int(last_ms) + shift_ms

    def peek(self, now_ms: int) -> float:
        """What was spent and not yet refilled, per second of the bucket; above the bound it is a debt."""
        refilled = self._bound * (max(0, now_ms - self._last_ms) / 1000.0)
        return max(0.0, self._spent - refilled) / BURST_S

    def is_blank(self, now_ms: int) -> bool:
        """Return whether a new bucket in its place would hold nobody back less: nothing is spent any more."""
        return self.peek(now_ms) == 0.0

    def is_in_debt(self, now_ms: int) -> bool:
        """Return whether more is spent than the second's worth now."""
        return self.peek(now_ms) > self._bound
