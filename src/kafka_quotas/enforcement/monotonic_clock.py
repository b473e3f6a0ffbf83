"""The daemon's clock: the time of day when it started, moved on by a clock that nobody can set."""

import time


class MonotonicClock:
    """Milliseconds since the epoch that never go back and never jump; a wrong wall clock muddles no window."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000
