"""The throttle statistics: counts per bucket and in total, those of the last hour by minute, and a log of first ones.

Invariants: totals only grow. The buckets throttled last are counted apart, within `MAX_BUCKETS` and `MAX_NAME_BYTES`,
so no client can fill memory. The others are summed up per quota type, so totals are always the sum of the counts that
are kept and those of the others. So does each minute of the last hour, within `MINUTE_BUCKETS` and
`MINUTE_NAME_BYTES`.
"""

from collections import OrderedDict, deque
from collections.abc import Generator
from dataclasses import dataclass, field
from heapq import nlargest
from sys import getsizeof
from typing import Final, TypeAlias

from kafka_quotas.core.quotas.quota_manager import Limiter, QuotaType
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify
from kafka_quotas.enforcement.telemetry.status import HourRow

MAX_BUCKETS: Final = 10_000
"""Most buckets counted apart. A further one moves the one throttled longest ago to the others."""
MAX_NAME_BYTES: Final = 8 * 1024 * 1024
"""Memory that the names of these buckets may take."""
OTHERS: Final = ("", "(others)")
"""Name of the buckets that are summed up."""

Throttled: TypeAlias = tuple[QuotaType, tuple[str, str]]
"""Quota type and a bucket's tags: sanitized user, client-id."""


@dataclass(slots=True)
class ThrottleCount:
    """The number of throttle times and their sum in milliseconds."""

    times: int = 0
    total_ms: int = 0

    def add(self, throttle_ms: int, times: int = 1) -> None:
        """Count throttle times by their sum and number."""
        self.times += times
        self.total_ms += throttle_ms


class ThrottleTable:
    """The counts by bucket of one kind of throttle times, and the event that logs the first."""

    def __init__(self, notify: Notify, event: str, level: LogLevel = LogLevel.INFO) -> None:
        self._notify = notify
        self.event = event
        self.level = level
        self.by_bucket: OrderedDict[Throttled, ThrottleCount] = OrderedDict()
        """Counts by bucket, the one throttled last at the end."""
        self.totals = {quota_type: ThrottleCount() for quota_type in QuotaType}
        self.others = {quota_type: ThrottleCount() for quota_type in QuotaType}
        self._name_bytes = 0

    def count(self, limiter: Limiter, throttle_ms: int) -> None:
        """Count a throttle time of a limiter, and log the first of a bucket."""
        quota_type = limiter.quota_type
        if not self._add((quota_type, limiter.bucket or OTHERS), throttle_ms):
            return
        event = LogEvent.of(
            self.event,
            self.level,
            quota=quota_type.key.name,
            entity=str(limiter.entity),
            limit=limiter.bound or 0,
            user=limiter.user,
            client_id=limiter.client_id,
            throttle_ms=throttle_ms,
            **({"estimated": "yes"} if quota_type is QuotaType.REQUEST else {}),
        )
        self._notify(event)

    def _add(self, key: Throttled, throttle_ms: int) -> bool:
        """Count a throttle time and return whether its bucket is new, or was moved to the others meanwhile."""
        self.totals[key[0]].add(throttle_ms)
        count = self.by_bucket.get(key)
        if count is not None:
            self.by_bucket.move_to_end(key)
            count.add(throttle_ms)
            return False
        self.by_bucket[key] = ThrottleCount(1, throttle_ms)
        self._name_bytes += _name_bytes(key)
        while len(self.by_bucket) > MAX_BUCKETS or (self._name_bytes > MAX_NAME_BYTES and len(self.by_bucket) > 1):
            oldest, count = self.by_bucket.popitem(last=False)
            self._name_bytes -= _name_bytes(oldest)
            self.others[oldest[0]].add(count.total_ms, count.times)
        return True


MINUTES: Final = 60
MINUTE_MS: Final = 60_000
MINUTE_BUCKETS: Final = 1000
MINUTE_NAME_BYTES: Final = 256 * 1024
HOUR_ROWS: Final = 200
"""Most buckets reported, those with the longest throttle times."""

ThrottledBucket: TypeAlias = tuple[str, str, str]
"""Quota key, and a bucket's tags: sanitized user, client-id."""


@dataclass(slots=True)
class _Minute:
    number: int
    """Minutes since the epoch."""
    sums: dict[ThrottledBucket, tuple[int, int]] = field(default_factory=dict)
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
            if len(minute.sums) >= MINUTE_BUCKETS or minute.name_bytes > MINUTE_NAME_BYTES:
                bucket = (bucket[0], *OTHERS)
        times, total_ms = minute.sums.get(bucket, (0, 0))
        minute.sums[bucket] = (times + 1, total_ms + throttle_ms)

    def rows(self, now_ms: int) -> Generator[None, None, tuple[HourRow, ...]]:
        """Return the buckets throttled longest, at most `HOUR_ROWS`, one minute of the hour at a time."""
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
        longest = nlargest(HOUR_ROWS, found, key=lambda bucket: (sum(found[bucket]), bucket))
        return tuple(
            HourRow(
                quota=bucket[0],
                user=bucket[1],
                client_id=bucket[2],
                times=times[bucket],
                total_ms=sum(found[bucket]),
                minutes_ms=tuple(found[bucket]),
            )
            for bucket in longest
        )


class ThrottleStats:
    """The throttle times of all buckets, by where they were set."""

    def __init__(self, notify: Notify) -> None:
        self.set_here = ThrottleTable(notify, "client throttled")
        event = "upstream throttles a client that is limited here as well"
        self.set_upstream = ThrottleTable(notify, event, LogLevel.WARNING)
        self.shadowed_here = ThrottleTable(notify, "client would be throttled")
        """Throttle times that would have been set for clients in shadow mode."""
        self.refused_here = ThrottleTable(notify, "client refused")
        """Throttle times in place of which clients got an error."""
        self.tables = (self.set_here, self.set_upstream, self.shadowed_here, self.refused_here)
        self.last_hour = ThrottleHistory()

    def throttled(self, limiter: Limiter, throttle_ms: int, now_ms: int) -> None:
        """Count a throttle time that this daemon set."""
        limiter.throttled(throttle_ms, now_ms)
        user, client_id = limiter.bucket or OTHERS
        self.last_hour.add((limiter.quota_type.key.name, user, client_id), throttle_ms, now_ms)
        self.set_here.count(limiter, throttle_ms)


def _name_bytes(key: Throttled) -> int:
    user, client_id = key[1]
    return getsizeof(user) + getsizeof(client_id)
