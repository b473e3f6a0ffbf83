"""The clock as an argument: whatever needs the time takes a `Clock` or a `now_ms`.

Times are whole milliseconds since the epoch, as in Kafka's `org.apache.kafka.common.utils.Time`.
The system's own clock is `kafka_quotas.system_clock.SystemClock`: the core never reads it.
"""

from typing import Protocol


class Clock(Protocol):
    """Tells the time in milliseconds since the epoch."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; may stand still or go back."""
        ...


class VirtualClock:
    """A clock that moves only when it is told to."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """The time it was last set to, in milliseconds since the epoch."""
        return self._now_ms

    def advance(self, delta_ms: int) -> int:
        """The time after moving it by `delta_ms` (negative: back)."""
        self._now_ms += delta_ms
        return self._now_ms
