"""A one-minute moving average of a rate that moves every five seconds.

Invariants: the rate is 0 before the first tick. The first tick sets it to the rate of its interval, each further tick
moves it by `alpha = 1 - e^(-5/60)`. The meter applies missed ticks one by one, with the count in the first of them.
Between ticks the rate does not change. A clock that goes back causes no tick.

**Source:** "Broker-side quota V1"; the exponentially weighted `Meter` of Kafka's metrics library.
"""

import math
from typing import Final

TICK_MS: Final = 5_000
ALPHA: Final = 1.0 - math.exp(-5.0 / 60.0)
FALLING_MS: Final = 3_600_000
"""The longest forecast of a falling rate: in an hour it falls by 26 decimal places."""


class EwmaMeter:
    """A counter with a one-minute rate per second, whose ticks are `TICK_MS` apart from `start_ms` on."""

    __slots__ = ("_rate", "_ticked", "_ticked_ms", "_uncounted", "recorded_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self._ticked_ms = start_ms
        self._ticked = False
        self._uncounted = 0.0
        self._rate = 0.0
        self.total = 0.0
        self.recorded_ms = start_ms
        """The time of the last record, of the start without one."""

    def record(self, value: float, now_ms: int) -> None:
        """Count a value in the interval of `now_ms`."""
        self._tick(now_ms)
        self._uncounted += value
        self.recorded_ms = now_ms
        self.total += value

    def rate(self, now_ms: int) -> float:
        """Return the rate per second as of the last tick."""
        self._tick(now_ms)
        return self._rate

    @property
    def is_counting(self) -> bool:
        """Whether there are records since the last tick."""
        return self._uncounted != 0.0

    @property
    def snapshot(self) -> tuple[float, ...]:
        """The snapshot for `restore`: the last tick (ms), whether there was one, the uncounted, the rate."""
        return (float(self._ticked_ms), float(self._ticked), self._uncounted, self._rate)

    def restore(self, snapshot: tuple[float, ...], shift_ms: int) -> None:
        """Restore the state of another meter, with all its times moved by `shift_ms`."""
        ticked_ms, ticked, uncounted, rate = snapshot
        if not all(map(math.isfinite, snapshot)):
            raise ValueError(f"no figures of a meter: {snapshot}")
        self._ticked_ms = int(ticked_ms) + shift_ms
        self._ticked = bool(ticked)
        self._uncounted = uncounted
        self._rate = rate

    def falls_in_ms(self, bound: float, now_ms: int) -> int:
        """Return the time in ms without records until the rate is at a bound or below, at most `FALLING_MS`."""
        ahead = EwmaMeter(now_ms)
        ahead.restore(self.snapshot, 0)
        at_ms = now_ms
        while ahead.rate(at_ms) > bound:
            at_ms = ahead._ticked_ms + TICK_MS
            if at_ms - now_ms >= FALLING_MS:
                return FALLING_MS
        return at_ms - now_ms

    def _tick(self, now_ms: int) -> None:
        due = (now_ms - self._ticked_ms) // TICK_MS
        if due <= 0:
            return
        self._ticked_ms += due * TICK_MS
        for _ in range(due):
            before, instant = self._rate, self._uncounted / (TICK_MS / 1000.0)
            self._rate = before + ALPHA * (instant - before) if self._ticked else instant
            self._ticked = True
            self._uncounted = 0.0
            if not instant and self._rate == before:
                break  # faded to the last bit, however many ticks are due
