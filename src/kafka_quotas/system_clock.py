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

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000
