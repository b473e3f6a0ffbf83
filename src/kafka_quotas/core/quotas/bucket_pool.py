"""All buckets of one process: what they take in memory, which is forgotten for another, and walking through them.

Each bucket has a slot from its first to its last day, so that a walk can stop after some buckets and go on later while
others come and go: it meets every bucket that was there from its beginning to its end, exactly once.

Which bucket is forgotten when memory runs out is looked for behind a hand that goes round the slots (second chance, as
page replacement does it), a few candidates at a time:

1. one that holds back nobody (`is_blank`): a new one in its place decides the same;
2. else the one that was idle longest among those that are within their limit: its client may burst once more;
3. else, when every candidate is in debt, the one that was idle longest among those that a default of client-ids limits.
   Their clients escape a debt by taking another client-id anyway, there as at a broker.

Invariants: a bucket in debt whose limit is of a user or a named client-id is never forgotten here. There are no more
of them than entities in the store and users that authenticated, so that memory stays bounded without them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from sys import getsizeof
from typing import Final, Protocol

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.resolution.quota_resolver import AppliedQuota

IDLE_MS: Final = 3_600_000
"""A bucket without a record for longer than this is forgotten, as at a broker."""
BUCKET_BYTES: Final = 1280
"""What a bucket and its places in dictionaries take, names apart, with a full ring of 11 samples; as measured."""
SLICE: Final = 256
"""How many buckets are looked at between two pauses of a walk: a millisecond's work."""
CANDIDATES: Final = 8
"""How many buckets in use are compared before one of them is forgotten."""
AT_ONCE: Final = 32
"""How many are forgotten together, so that handles look their buckets up anew only once for so many."""
MAX_LOOKS: Final = 64
"""How many are looked at for one new bucket, so that a pool full of debts does not slow each request down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketState:
    """One bucket as it is reported: Kafka's tags, the limit (None: unlimited), and what is measured against it.

    `throttle_ms` is the average of the throttle times it gave lately, `mutation_rate` what was taken out of a token
    bucket per second (None: it is none).
    """

    tags: tuple[str, str]
    bound: float | None
    measured: float
    throttle_ms: float = 0.0
    mutation_rate: float | None = None


class BucketOwner(Protocol):
    """The quota manager that a bucket belongs to."""

    def renewed(self, bucket: QuotaBucket) -> QuotaBucket:
        """Return the same bucket with the bound that holds now."""
        ...

    def match_of(self, bucket: QuotaBucket) -> AppliedQuota | None:
        """Return the limit of a bucket with its entity and level, None where it is unlimited."""
        ...

    def forget(self, bucket: QuotaBucket) -> None:
        """Drop a bucket: whoever draws on it next gets a new one."""
        ...


class BucketPool:
    """The slots of all buckets, and the memory they share."""

    def __init__(self, max_bytes: int | None = None, clock: Clock | None = None) -> None:
        """Make an empty pool.

        Args:
            max_bytes: what buckets may take together, as `BUCKET_BYTES` and the size of their names count it; None for
                any amount.
            clock: tells who is idle and in debt, needed with `max_bytes`.

        Raises:
            ValueError: `max_bytes` without a clock.
        """
        if max_bytes is not None and clock is None:
            raise ValueError("a bound on memory needs a clock")
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self.evicted = 0
        """How many buckets were forgotten for others, not for their age."""
        self._clock = clock
        self._buckets: list[QuotaBucket | None] = []
        self._owners: list[BucketOwner | None] = []
        self._free: list[int] = []
        self._hand = -1

    def __len__(self) -> int:
        return len(self._buckets) - len(self._free)

    def add(self, bucket: QuotaBucket, owner: BucketOwner) -> None:
        """Give a new bucket a slot. Where memory is used up, others are forgotten first."""
        size = bucket_bytes(bucket)
        if self.max_bytes is not None and self.used_bytes + size > self.max_bytes:
            self._evict(self.max_bytes - size)
        self.used_bytes += size
        if self._free:
            slot = self._free.pop()
            self._buckets[slot], self._owners[slot] = bucket, owner
        else:
            self._buckets.append(bucket)
            self._owners.append(owner)

    def walk(self) -> Iterator[list[tuple[QuotaBucket, BucketOwner]]]:
        """Yield the buckets with their owners, at most `SLICE` at a time; anything may happen between two slices."""
        start = 0
        while start < len(self._buckets):
            end = start + SLICE
            pairs = zip(self._buckets[start:end], self._owners[start:end], strict=True)
            yield [(bucket, owner) for bucket, owner in pairs if bucket is not None and owner is not None]
            start = end

    def expire_idle(self, now_ms: int) -> Iterator[int]:
        """Forget buckets without a record for more than `IDLE_MS`; yield after each slice how many those were."""
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
        bucket, owner = self._buckets[slot], self._owners[slot]
        assert bucket is not None
        assert owner is not None
        self._buckets[slot] = self._owners[slot] = None
        self._free.append(slot)
        self.used_bytes -= bucket_bytes(bucket)
        owner.forget(bucket)

    def _evict(self, most_bytes: int) -> None:
        """Forget buckets until the others take no more than this, and some more, as far as a few looks find any."""
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
        """Return how many looks are left, and the slot of the next bucket to forget; None where none may be."""
        within: tuple[int, int] | None = None
        in_debt: tuple[int, int] | None = None
        seen = 0
        while looks > 0 and (within is None or seen < CANDIDATES):
            looks -= 1
            slot = self._hand = (self._hand + 1) % len(self._buckets)
            bucket, owner = self._buckets[slot], self._owners[slot]
            if bucket is None or owner is None:
                continue
            seen += 1
            owner.renewed(bucket)
            if bucket.is_blank(now_ms):
                return looks, slot
            found = (bucket.recorded_ms or 0, slot)
            if not bucket.is_in_debt(now_ms):
                within = found if within is None else min(within, found)
            elif _is_escapable(owner.match_of(bucket)):
                in_debt = found if in_debt is None else min(in_debt, found)
            if only_blank and seen >= CANDIDATES:
                return looks, None
        chosen = within or in_debt
        return looks, None if chosen is None else chosen[1]


def _is_escapable(match: AppliedQuota | None) -> bool:
    """Whether a limit is of any client-id, so that a client gets rid of a debt by calling itself otherwise."""
    return match is None or match.entity.client_id is None


def bucket_bytes(bucket: QuotaBucket) -> int:
    """Return what a bucket takes, in bytes."""
    user, client_id = bucket.name
    return BUCKET_BYTES + getsizeof(user) + getsizeof(client_id)
