"""The clock as an argument, a `Clock` or a `now_ms` of every function that needs the time, and instants as text.

Times are whole milliseconds since the epoch, as in Kafka's `org.apache.kafka.common.utils.Time`. Their text is that of
journals, always UTC: `2026-11-21T15:15:42.123Z`. The core reads none of the machine's clocks: a program makes
one at its start and passes it on.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """A source of the time in milliseconds since the epoch."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, which may stay the same or go back."""
        ...


def format_instant(time_ms: int) -> str:
    """Return milliseconds since the epoch as ISO 8601 text in UTC, to the millisecond."""
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_instant(text: str) -> int:
    """Return the milliseconds since the epoch that an ISO 8601 text with a zone means.

    Raises:
        ValueError: The text is no such instant.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


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
