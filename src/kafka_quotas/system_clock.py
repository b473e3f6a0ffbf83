"""The machine's clocks: the wall clock, and the daemon's, which nobody can set."""

import time


class SystemClock:
    """Wall-clock time, like Kafka's `Time.SYSTEM`."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


class MonotonicClock:
    """Wall-clock time at the start of the daemon, moved on by the monotonic clock.

    It never goes back and never jumps. An adjusted wall clock distorts no quota window.
    """

    def __init__(self, offset_ns: int | None = None) -> None:
        """Start at the time of day, or with another process's offset from the monotonic clock."""
        self.offset_ns = time.time_ns() - time.monotonic_ns() if offset_ns is None else offset_ns
        """Difference of this clock from the monotonic one, which all processes of a machine share."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return (time.monotonic_ns() + self.offset_ns) // 1_000_000
