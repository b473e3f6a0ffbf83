"""The limiter of a client in groups: it charges the client's own bucket and those of each group around it.

Each group has a bucket for its limit, and one that measures its clients against the rate that it is guaranteed. The
client waits for the longest throttle time, in which a guaranteed rate bounds what the limits around the group require:
from the outermost group to the innermost, it is

    throttle time = max(of the limit, min(so far, of the guaranteed rate))

So a group below its guaranteed rate waits for no limit around it, and one above it waits until it is below again, or
until those limits are kept. A request that one bucket refuses is charged at none.
"""

from collections.abc import Callable, Sequence
from typing import Final, cast

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.fetch_queue import AnyFetchQueue, GroupFetchQueue
from kafka_quotas.core.quotas.quota_bucket import MutationBucket, QuotaBucket
from kafka_quotas.core.quotas.quota_manager import (
    ClientQuotaManager,
    Limiter,
    MutationQuota,
    MutationRefusal,
    QuotaType,
)
from kafka_quotas.core.resolution.quota_resolver import GUARANTEED_USER, AppliedQuota, Bucket


class GroupLimiter(Limiter):
    """A handle on a client's own bucket and those of its groups.

    Args:
        manager: The manager of the client's own bucket.
        user: The client's user.
        client_id: Its client-id.
        names: The groups' buckets, the outermost group first, the guaranteed rate of each before its limit.
        groups: The manager of these buckets, with the same limits as the other.
    """

    __slots__ = ("_around", "_deciding", "_groups", "_is_of_mutations", "_names")

    def __init__(
        self,
        manager: ClientQuotaManager,
        user: str,
        client_id: str,
        names: Sequence[Bucket],
        groups: ClientQuotaManager,
    ) -> None:
        super().__init__(manager, user, client_id)
        self._names = names
        self._groups = groups
        self._around: list[tuple[QuotaBucket, bool]] = []  # and whether it is of a guaranteed rate
        self._deciding: QuotaBucket | None = None
        self._is_of_mutations = manager.quota_type is QuotaType.CONTROLLER_MUTATION

    def record(self, value: float, now_ms: int) -> int:
        bucket = self._bucket if self._generation == self._limits.generation else self._resolve()
        if self._is_of_mutations:
            refused_ms = self.would_throttle_ms(value, now_ms)
            if not refused_ms:
                self.record_without_throttle(value, now_ms)
            return refused_ms
        longest_ms, deciding = 0, bucket
        for around, is_guaranteed in self._around:
            throttle_ms = around.record_and_throttle_ms(value, now_ms)
            if is_guaranteed:
                if throttle_ms < longest_ms:  # noqa: PLR1730 - dearer as a call
                    longest_ms = throttle_ms
            elif throttle_ms > longest_ms:
                longest_ms, deciding = throttle_ms, around
        own_ms = 0 if bucket is None else bucket.record_and_throttle_ms(value, now_ms)
        if own_ms >= longest_ms:
            longest_ms, deciding = own_ms, bucket
        if longest_ms:
            self._deciding = deciding
        return longest_ms

    def admit(self, value: float, now_ms: int) -> bool:
        bucket = self._bucket if self._generation == self._limits.generation else self._resolve()
        if bucket is not None and (isinstance(bucket, MutationBucket) or not bucket.has_room(value, now_ms)):
            return False
        for around, is_guaranteed in self._around:
            if isinstance(around, MutationBucket) or not (is_guaranteed or around.has_room(value, now_ms)):
                return False
        if bucket is not None:
            bucket.record_and_throttle_ms(value, now_ms)
        for around, _ in self._around:
            around.record_and_throttle_ms(value, now_ms)
        return True

    def record_without_throttle(self, value: float, now_ms: int) -> None:
        own = self._resolve()
        if own is not None:
            own.record(value, now_ms)
        for around, _ in self._around:
            around.record(value, now_ms)

    def would_throttle_ms(self, value: float, now_ms: int) -> int:
        return self._longest_ms(lambda bucket: bucket.would_throttle_ms(value, now_ms), 0)

    def mutation_quota(self, *, strict: bool) -> MutationQuota:
        return _GroupMutationQuota(self, strict=strict)

    def fetch_queue(self, now_ms: int) -> AnyFetchQueue:
        own, match = self._resolve(), self._match
        limits = [(self._groups.match_of(bucket), bucket, is_guaranteed) for bucket, is_guaranteed in self._around]
        return GroupFetchQueue(
            None if own is None or match is None else self.manager.fetch_queue(own, match.limit, now_ms),
            [
                (self._groups.fetch_queue(bucket, limit.limit, now_ms), is_guaranteed)
                for limit, bucket, is_guaranteed in limits
                if limit is not None
            ],
            self._waits_for,
        )

    @property
    def bound(self) -> float | None:
        """The limit that required the last throttle time, at first its own or its innermost group's."""
        match = self.applied()
        return None if match is None else match.limit

    @property
    def entity(self) -> Entity | None:
        """The client or group with this limit, or None if it is unlimited."""
        match = self.applied()
        return None if match is None else match.entity

    @property
    def state(self) -> QuotaBucket | None:
        """The bucket of that limit, the client's own if there is no limit."""
        own, deciding = self._resolve(), self._deciding
        if deciding is not None and deciding.owner.keeps(deciding) and deciding.owner.match_of(deciding) is not None:
            return deciding
        if self._match is not None:
            return own
        limits = (bucket for bucket, is_guaranteed in reversed(self._around) if not is_guaranteed)
        return next((bucket for bucket in limits if bucket.owner.match_of(bucket) is not None), own)

    @property
    def max_value_in_window(self) -> float | None:
        return self._max_in_window(of_guaranteed=False)

    def max_value(self, now_ms: int) -> float | None:
        most = self._max_in_window(of_guaranteed=False)
        if most is None or not any(is_guaranteed for _, is_guaranteed in self._around):
            return most
        # Without room in the limits, more than a second of a guaranteed rate would never fit.
        return self._max_in_window(of_guaranteed=True) if self.would_throttle_ms(most, now_ms) else most

    def _waits_for(self, bucket: QuotaBucket) -> None:
        self._deciding = bucket

    def _max_in_window(self, *, of_guaranteed: bool) -> float | None:
        own = self._resolve()
        buckets = [bucket for bucket, is_guaranteed in self._around if of_guaranteed or not is_guaranteed]
        matches = [self._groups.match_of(bucket) for bucket in buckets]
        found = [self._groups.max_in_window(match.limit) for match in matches if match is not None]
        if own is not None and self._match is not None:
            found.append(self.manager.max_in_window(self._match.limit))
        return min(found, default=None)

    def applied(self) -> AppliedQuota | None:
        """Return the limit that `bound` and `entity` are of."""
        bucket = self.state
        return self._match if bucket is None or bucket is self._bucket else bucket.owner.match_of(bucket)

    def refused_ms(self, now_ms: int) -> int | None:
        """Return how long a mutation would have to wait in ms, or None if it is admitted."""
        longest_ms = self._longest_ms(lambda bucket: _refused_ms(bucket, now_ms), _ADMITTED)
        return None if longest_ms == _ADMITTED else longest_ms

    def _resolve(self) -> QuotaBucket | None:
        generation = self._limits.generation
        if self._generation != generation:
            super()._resolve()
            self._around = [(self._groups.bucket_of(name), name[0] == GUARANTEED_USER) for name in self._names]
            self._generation = generation  # a bucket that was made may have taken the room of one looked up before
        return self._bucket

    def _longest_ms(self, time_ms: Callable[[QuotaBucket], int], least_ms: int) -> int:
        """Return the longest time, no less than `least_ms`, and keep the bucket that requires it."""
        own, longest_ms = self._resolve(), least_ms
        deciding = own
        for around, is_guaranteed in self._around:
            around_ms = time_ms(around)
            if is_guaranteed:
                longest_ms = min(longest_ms, around_ms)
            elif around_ms > longest_ms:
                longest_ms, deciding = around_ms, around
        own_ms = least_ms if own is None else time_ms(own)
        if own_ms >= longest_ms:
            longest_ms, deciding = own_ms, own
        if longest_ms > least_ms:
            self._deciding = deciding
        return longest_ms


_ADMITTED: Final = -1
"""Less than any wait, of which the shortest is 0 ms."""


def _refused_ms(bucket: QuotaBucket, now_ms: int) -> int:
    refused_ms = cast("MutationBucket", bucket).refused_ms(now_ms)
    return _ADMITTED if refused_ms is None else refused_ms


class _GroupMutationQuota(MutationQuota):
    """The quota of one request of a client in groups."""

    def __init__(self, limiter: GroupLimiter, *, strict: bool) -> None:
        super().__init__(None, strict=strict)
        self._limiter = limiter

    @property
    def kind(self) -> str:
        return "strict" if self._strict else "permissive"

    def record(self, permits: float, now_ms: int) -> MutationRefusal | None:
        limiter = self._limiter
        if self._strict and self._in_debt(limiter.refused_ms(now_ms), now_ms):
            return self._refusal(limiter.applied(), now_ms)
        limiter.record_without_throttle(permits, now_ms)
        if not self._strict:
            self._in_debt(limiter.refused_ms(now_ms), now_ms)
        return None
