"""The machine's own clock, for the shells around the core."""

import time


class SystemClock:
    """Wall-clock time, as Kafka's `Time.SYSTEM` reads it."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000
