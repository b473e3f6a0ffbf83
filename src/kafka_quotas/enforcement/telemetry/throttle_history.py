"""The throttle times of the last hour by bucket and minute.

Invariants: each minute holds at most `MAX_BUCKETS` buckets whose names take at most `MAX_NAME_BYTES`, so that no client
can fill memory. The throttle times of further buckets in that minute are summed up under `(others)`.
"""

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from heapq import nlargest
from sys import getsizeof
from typing import Final, TypeAlias

MINUTES: Final = 60
MINUTE_MS: Final = 60_000
MAX_BUCKETS: Final = 1000
MAX_NAME_BYTES: Final = 256 * 1024
MAX_ROWS: Final = 200
"""Most buckets reported, those with the longest throttle times."""
OTHER_BUCKETS: Final = ("", "(others)")

ThrottledBucket: TypeAlias = tuple[str, str, str]
"""Quota key, and a bucket's tags: sanitized user, client-id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRow:
    """The throttle times of one bucket in the last hour."""

    quota: str
    user: str
    """Sanitized user, as in Kafka's tag."""
    client_id: str
    times: int
    """Number of throttle times."""
    total_ms: int
    """Their sum over all connections."""
    minutes_ms: tuple[int, ...]
    """Their sums by minute, the oldest first and the present one last."""


@dataclass(slots=True)
class _Minute:
    number: int
    """Minutes since the epoch."""
    sums: dict[ThrottledBucket, tuple[int, int]] = field(default_factory=dict)
    """Number and sum (ms) of the throttle times."""
    name_bytes: int = 0


class ThrottleHistory:
    """The throttle times of the last hour, of which whole minutes are forgotten."""

    def __init__(self) -> None:
        self._minutes: deque[_Minute] = deque(maxlen=MINUTES)

    def add(self, bucket: ThrottledBucket, throttle_ms: int, now_ms: int) -> None:
        """Count a throttle time, one before the last one in that one's minute."""
        number = now_ms // MINUTE_MS
        if not self._minutes or self._minutes[-1].number < number:
            self._minutes.append(_Minute(number))
        minute = self._minutes[-1]
        if bucket not in minute.sums:
            minute.name_bytes += getsizeof(bucket[1]) + getsizeof(bucket[2])
            if len(minute.sums) >= MAX_BUCKETS or minute.name_bytes > MAX_NAME_BYTES:
                bucket = (bucket[0], *OTHER_BUCKETS)
        times, total_ms = minute.sums.get(bucket, (0, 0))
        minute.sums[bucket] = (times + 1, total_ms + throttle_ms)

    def rows(self, now_ms: int) -> Generator[None, None, tuple[HourRow, ...]]:
        """Return the buckets throttled longest, at most `MAX_ROWS`, one minute of the hour at a time."""
        found: dict[ThrottledBucket, list[int]] = {}
        times: dict[ThrottledBucket, int] = {}
        oldest = now_ms // MINUTE_MS - MINUTES + 1
        for minute in list(self._minutes):
            minute_index = min(minute.number - oldest, MINUTES - 1)
            if minute_index < 0:
                continue
            for bucket, (count, total_ms) in minute.sums.items():
                found.setdefault(bucket, [0] * MINUTES)[minute_index] += total_ms
                times[bucket] = times.get(bucket, 0) + count
            yield
        longest = nlargest(MAX_ROWS, found, key=lambda bucket: (sum(found[bucket]), bucket))
        return tuple(_row(bucket, times[bucket], found[bucket]) for bucket in longest)


def _row(bucket: ThrottledBucket, times: int, minutes_ms: list[int]) -> HourRow:
    quota, user, client_id = bucket
    return HourRow(
        quota=quota,
        user=user,
        client_id=client_id,
        times=times,
        total_ms=sum(minutes_ms),
        minutes_ms=tuple(minutes_ms),
    )
