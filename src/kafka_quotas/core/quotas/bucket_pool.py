"""All buckets of one process: their memory, the eviction of buckets, and iteration over them.

A bucket keeps its slot for life. So a walk can pause after some buckets and continue later while others are added and
removed: it meets every bucket that lives throughout the walk exactly once.

When memory runs out, a clock hand goes round the slots (second chance, as in page replacement) and compares a few
candidates at a time:

1. A bucket that holds back nobody (`is_blank`) goes first: a new bucket in its place decides the same.
2. Otherwise the longest idle bucket within its limit goes: its client may burst once more.
3. When every candidate is in debt, the longest idle one under a default of client-ids goes. Its clients can escape a
   debt by taking another client-id anyway, as on a broker.

Invariants: the pool never evicts a bucket in debt whose limit is of a user or a named client-id. Their number is
bounded by the entities in the store and the users that authenticated, so memory stays bounded without them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from sys import getsizeof
from typing import Final

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.model.quota_window import NOT_THROTTLED, RecentThrottling
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket

IDLE_MS: Final = 3_600_000
"""The idle time after which a bucket expires, as on a broker."""
BUCKET_BYTES: Final = 1280
"""The measured size of a bucket with its dictionary entries and a full ring of 11 samples, without its names."""
SLICE: Final = 256
"""The number of buckets between two pauses of a walk: a millisecond's work."""
CANDIDATES: Final = 8
"""The number of buckets in use that compete before one of them goes."""
AT_ONCE: Final = 32
"""The number of buckets evicted together, so that handles repeat their lookup only once for all of them."""
MAX_LOOKS: Final = 64
"""The maximum number of buckets examined for one new bucket, which bounds the cost in a pool full of debts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketState:
    """The reported state of one bucket."""

    tags: tuple[str, str]
    """Kafka's tags: sanitized user and client-id."""
    bound: float | None
    measured: float
    """The rate per second, or the tokens left."""
    throttle_ms: float = 0.0
    last_minute: RecentThrottling = NOT_THROTTLED
    mutation_rate: float | None = None
    """The tokens taken out per second; None if it is no token bucket."""


class BucketPool:
    """The slots of all buckets, and the memory they share."""

    def __init__(self, max_bytes: int | None = None, clock: Clock | None = None) -> None:
        """Make an empty pool, bounded to `max_bytes` if not None.

        They are counted as `BUCKET_BYTES` and the size of the names. The clock, for idle times and debts, is required
        with them.
        """
        if max_bytes is not None and clock is None:
            raise ValueError("a bound on memory needs a clock")
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self.idle_share = 1.0
        """The part of its capacity that a bucket may use of which other processes that share it know nothing yet."""
        self.evicted = 0
        """The number of buckets evicted for others, without the expired ones."""
        self._clock = clock
        self._buckets: list[QuotaBucket | None] = []
        self._free: list[int] = []
        self._hand = -1

    def __len__(self) -> int:
        return len(self._buckets) - len(self._free)

    def add(self, bucket: QuotaBucket) -> None:
        """Give a new bucket a slot, after evicting others if memory is used up."""
        size = bucket_bytes(bucket)
        if self.max_bytes is not None and self.used_bytes + size > self.max_bytes:
            self._evict(self.max_bytes - size)
        self.used_bytes += size
        if self._free:
            self._buckets[self._free.pop()] = bucket
        else:
            self._buckets.append(bucket)

    def walk(self) -> Iterator[list[QuotaBucket]]:
        """Yield the buckets, at most `SLICE` at a time, between which others may be added and removed."""
        start = 0
        while start < len(self._buckets):
            end = start + SLICE
            yield [bucket for bucket in self._buckets[start:end] if bucket is not None]
            start = end

    def expire_idle(self, now_ms: int) -> Iterator[int]:
        """Remove buckets without a record for more than `IDLE_MS`, and yield their number after each slice."""
        start = 0
        while start < len(self._buckets):
            end = min(start + SLICE, len(self._buckets))
            yield sum(self._expire(slot, now_ms) for slot in range(start, end))
            start = end

    def _expire(self, slot: int, now_ms: int) -> bool:
        bucket = self._buckets[slot]
        if bucket is None:
            return False
        if bucket.recorded_ms is None:
            bucket.recorded_ms = now_ms  # made by a question: its hour starts when it is first seen here
        if now_ms - bucket.recorded_ms <= IDLE_MS:
            return False
        self._forget(slot)
        return True

    def _forget(self, slot: int) -> None:
        bucket = self._buckets[slot]
        assert bucket is not None
        self._buckets[slot] = None
        self._free.append(slot)
        self.used_bytes -= bucket_bytes(bucket)
        bucket.owner.forget(bucket)

    def _evict(self, most_bytes: int) -> None:
        assert self._clock is not None
        now_ms, looks, gone = self._clock.now_ms(), MAX_LOOKS, 0
        while looks > 0 and (gone < AT_ONCE or self.used_bytes > most_bytes) and len(self):
            looks, slot = self._next_victim(now_ms, looks, only_blank=self.used_bytes <= most_bytes)
            if slot is None:
                break
            self._forget(slot)
            gone += 1
        self.evicted += gone

    def _next_victim(self, now_ms: int, looks: int, *, only_blank: bool) -> tuple[int, int | None]:
        """Return the remaining looks and the slot of the next bucket to evict (None: no candidate)."""
        within: tuple[int, int] | None = None
        in_debt: tuple[int, int] | None = None
        seen = 0
        while looks > 0 and (within is None or seen < CANDIDATES):
            looks -= 1
            slot = self._hand = (self._hand + 1) % len(self._buckets)
            bucket = self._buckets[slot]
            if bucket is None:
                continue
            seen += 1
            bucket.owner.renewed(bucket)
            if bucket.is_blank(now_ms):
                return looks, slot
            found = (bucket.recorded_ms or 0, slot)
            if not bucket.is_in_debt(now_ms):
                within = found if within is None else min(within, found)
            # A limit of any client-id, whose debt a client escapes by a new client-id.
            elif (match := bucket.owner.match_of(bucket)) is None or match.entity.client_id is None:
                in_debt = found if in_debt is None else min(in_debt, found)
            if only_blank and seen >= CANDIDATES:
                return looks, None
        chosen = within or in_debt
        return looks, None if chosen is None else chosen[1]


def bucket_bytes(bucket: QuotaBucket) -> int:
    """Return the estimated memory of a bucket in bytes."""
    user, client_id = bucket.name
    return BUCKET_BYTES + getsizeof(user) + getsizeof(client_id)
