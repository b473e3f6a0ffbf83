"""The choice of buckets that are reported: those that use most of their limit, and those of named clients.

A walk looks at every bucket, a slice at a time, and keeps no more than the number asked for. Long idle buckets cost it
next to nothing: none of their records counts any more, so it measures no share.
Invariants: the rows are the same as those of a sort by `share_used` over all buckets, cut at the number asked for.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from heapq import heappush, heapreplace
from itertools import count
from typing import Final, TypeAlias, cast

from kafka_quotas.core.quotas.bucket_pool import SLICE, BucketPool
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.config.settings import MetricsChoice
from kafka_quotas.enforcement.telemetry.status import ESTIMATED, BucketRow, share_used

MAX_NAMED: Final = 1000
"""Most buckets of named clients that are reported: one user may have any number of client-ids."""

Sources: TypeAlias = Mapping[ClientQuotaManager, tuple[str, Mode]]
"""Broker and mode of each manager. The buckets of other managers are passed over."""


def top_buckets(
    pool: BucketPool, sources: Sources, choice: MetricsChoice, now_ms: int
) -> Generator[None, None, tuple[BucketRow, ...]]:
    """Return the rows of the chosen buckets that have a limit, by user, client-id, quota and broker."""
    top, named = _Largest(choice.top), _Largest(MAX_NAMED)
    for buckets in pool.walk():
        for bucket, owner in buckets:
            user, client_id = bucket.name
            largest = named if user in choice.users or client_id in choice.client_ids else top
            is_blank = bucket.is_blank(now_ms)
            if is_blank and largest.is_full:
                continue
            manager = cast("ClientQuotaManager", owner)
            limit = manager.limits.limit(bucket.name) if manager in sources else None
            if limit is not None:
                measured = 0.0 if is_blank else manager.renewed(bucket).peek(now_ms)
                of_tokens = manager.quota_type is QuotaType.CONTROLLER_MUTATION
                largest.offer(share_used(measured, limit, of_tokens=of_tokens), bucket, manager)
        yield
    rows = []
    for number, (_, _, bucket, manager) in enumerate((*named.entries, *top.entries)):
        row = _row(bucket, manager, sources[manager], now_ms)
        if row is not None:
            rows.append(row)
        if number % SLICE == SLICE - 1:
            yield
    return tuple(sorted(rows, key=lambda row: (row.user, row.client_id, row.quota, row.broker, row.mode)))


@dataclass(slots=True)
class _Largest:
    """The buckets with the largest shares among those offered, at most `most` of them."""

    most: int
    entries: list[tuple[float, int, QuotaBucket, ClientQuotaManager]] = field(default_factory=list)
    """A heap by share, whose second figure keeps buckets of one share apart."""
    _number: "count[int]" = field(default_factory=count)

    @property
    def is_full(self) -> bool:
        """Whether there is no room left for a bucket without a share."""
        return len(self.entries) >= self.most

    def offer(self, share: float, bucket: QuotaBucket, manager: ClientQuotaManager) -> None:
        """Keep a bucket if it belongs to the largest so far."""
        if not self.is_full:
            heappush(self.entries, (share, -next(self._number), bucket, manager))
        elif self.entries and share > self.entries[0][0]:
            heapreplace(self.entries, (share, -next(self._number), bucket, manager))


def _row(bucket: QuotaBucket, manager: ClientQuotaManager, source: tuple[str, Mode], now_ms: int) -> BucketRow | None:
    """Return the row of a bucket, None where it no longer has a limit."""
    state = manager.state(bucket, now_ms)
    if state.bound is None:
        return None
    quota = manager.quota_type.key.name
    return BucketRow(
        broker=source[0],
        quota=quota,
        user=state.tags[0],
        client_id=state.tags[1],
        limit=state.bound,
        observed=state.measured,
        mode=source[1].value,
        estimated=quota == ESTIMATED,
        throttle_ms=state.throttle_ms,
        last_minute_times=state.last_minute.times,
        last_minute_total_ms=state.last_minute.total_ms,
        last_minute_held_ms=state.last_minute.held_ms,
        mutation_rate=state.mutation_rate,
    )
