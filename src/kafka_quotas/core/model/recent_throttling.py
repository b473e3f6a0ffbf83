"""The throttle times of a bucket in the last minute, as a value."""

from dataclasses import dataclass
from typing import Final

MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentThrottling:
    """The throttle times of a bucket in the last minute."""

    times: int
    """The number of throttle times."""
    total_ms: int
    """Their sum, which may be longer than the minute where several connections wait."""
    held_ms: int
    """The part of the minute in which any client of the bucket waited."""

    @property
    def share(self) -> float:
        """The part of the minute in which any client of the bucket waited, 1 for all of it."""
        return min(1.0, self.held_ms / MINUTE_MS)


NOT_THROTTLED: Final = RecentThrottling(times=0, total_ms=0, held_ms=0)
