"""The clock as an argument: a `Clock` or a `now_ms` of every function that needs the time.

Times are whole milliseconds since the epoch, as in Kafka's `org.apache.kafka.common.utils.Time`.
The system's own clock is `kafka_quotas.system_clock.SystemClock`: the core never reads it.
"""

from typing import Protocol


class Clock(Protocol):
    """A source of the time in milliseconds since the epoch."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, which may stay the same or go back."""
        ...


class VirtualClock:
    """A clock that moves only by calls."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the current time of this clock in milliseconds since the epoch."""
        return self._now_ms

    def advance(self, delta_ms: int) -> int:
        """Move the clock by `delta_ms` (negative: back) and return the new time."""
        self._now_ms += delta_ms
        return self._now_ms
