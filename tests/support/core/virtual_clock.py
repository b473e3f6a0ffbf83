"""A clock that moves only by calls."""


class VirtualClock:
    """A `Clock` whose time a test sets."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """The current time of this clock in milliseconds since the epoch."""
        return self._now_ms

    def advance(self, delta_ms: int) -> int:
        """Move the clock by `delta_ms` (negative: back) and return the new time."""
        self._now_ms += delta_ms
        return self._now_ms
