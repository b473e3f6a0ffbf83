"""What one client is held to: its own bucket, and those of the groups around it.

Each group has a bucket for its limit, and one that measures its clients against the rate that it is guaranteed. The
client waits for the longest throttle time, in which a guaranteed rate bounds what the limits around the group require:
from the outermost group to the innermost, and at last the client's own,

    throttle time = max(of the limit, min(so far, of the guaranteed rate))

So a group below its guaranteed rate waits for no limit around it, and one above it waits until it is below again, or
until those limits are kept. A request that one bucket refuses is charged at none.

A request that creates, grows or deletes topics has a quota of its own. A strict one checks before it records, and
refuses while a bucket is in debt; a permissive one always records. Either reports how long the client must wait,
counted down from the time of the check.

**Source:** `ClientQuotaManager.ClientSensors`, `StrictControllerMutationQuota` and `PermissiveControllerMutationQuota`
of Kafka 4.0; KIP-599.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from kafka_quotas.core.metrics.throttle_time import narrow_to_int32, narrow_to_int64
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.quotas.fetch_queue import FetchPath
from kafka_quotas.core.quotas.quota_bucket import (
    Charged,
    MutationBucket,
    QuotaBucket,
    RateBucket,
    SmoothBucket,
    longest_wait,
)
from kafka_quotas.core.resolution.quota_resolver import GUARANTEED_USER, NEVER, AppliedQuota, Bucket, bucket_tags

if TYPE_CHECKING:
    from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRefusal:
    """A refused mutation."""

    throttle_ms: int
    until_ms: int
    limit: float | None
    entity: Entity | None


class MutationQuota:
    """The quota of one request, with the same buckets under their current bounds throughout.

    A strict one refuses while a bucket is in debt, for request versions that can report a refusal. A permissive one
    admits and records everything. Before any quota was configured there is no bucket: it admits without recording.
    """

    def __init__(self, charged: Sequence[Charged], *, strict: bool, waits_for: Callable[[QuotaBucket], object]) -> None:
        self._charged = [(cast("MutationBucket", bucket), is_guaranteed) for bucket, is_guaranteed in charged]
        self._strict = strict
        self._waits_for = waits_for
        self._last_throttle_ms = 0
        self._last_recorded_ms = 0

    @property
    def kind(self) -> str:
        """`strict`, `permissive` or `unbounded`."""
        return "unbounded" if not self._charged else "strict" if self._strict else "permissive"

    def record(self, permits: float, now_ms: int) -> MutationRefusal | None:
        """Record the mutations (partitions) and return None, or return the refusal."""
        for bucket, _ in self._charged:
            bucket.owner.renewed(bucket)
        if self._strict and (refusal := self._in_debt(now_ms)) is not None:
            return refusal
        for bucket, _ in self._charged:
            bucket.record(permits, now_ms)
        if not self._strict:
            self._in_debt(now_ms)
        return None

    def throttle_ms(self, now_ms: int) -> int:
        """Return the rest of the last throttle time in ms, which may be long over."""
        waited_ms = now_ms - self._last_recorded_ms
        return narrow_to_int32(max(0, narrow_to_int64(self._last_throttle_ms - waited_ms)))

    def _in_debt(self, now_ms: int) -> MutationRefusal | None:
        """Return the refusal of a request while there is a debt, and keep its throttle time."""
        longest_ms, deciding = longest_wait(
            (
                (bucket, is_guaranteed, _ADMITTED if (wait_ms := bucket.refused_ms(now_ms)) is None else wait_ms)
                for bucket, is_guaranteed in self._charged
            ),
            _ADMITTED,
        )
        if longest_ms == _ADMITTED or deciding is None:
            return None
        self._waits_for(deciding)
        self._last_throttle_ms, self._last_recorded_ms = longest_ms, now_ms
        match = deciding.owner.match_of(deciding)
        return MutationRefusal(
            throttle_ms=narrow_to_int32(longest_ms),
            until_ms=now_ms + longest_ms,
            limit=match.limit if match else None,
            entity=match.entity if match else None,
        )


_ADMITTED: Final = -1
"""Less than any wait, of which the shortest is 0 ms."""


class Limiter:
    """A cheap handle on the buckets of a user's client-id, valid through every configuration.

    It looks its buckets up again only after a change that concerns its client.

    Args:
        manager: The manager of the client's own bucket.
        user: The client's user.
        client_id: Its client-id.
        names: The groups' buckets, the outermost group first, the guaranteed rate of each before its limit.
        groups: The manager of these buckets, with the same limits as the other.
    """

    __slots__ = (
        "_around",
        "_bucket",
        "_deciding",
        "_generation",
        "_groups",
        "_limits",
        "_match",
        "_names",
        "_path",
        "_smooth",
        "client_id",
        "manager",
        "user",
    )

    def __init__(
        self,
        manager: "ClientQuotaManager",
        user: str,
        client_id: str,
        names: Sequence[Bucket] = (),
        groups: "ClientQuotaManager | None" = None,
    ) -> None:
        self.user = user
        self.client_id = client_id
        self.manager = manager
        self._limits = manager.limits
        self._generation = NEVER
        self._bucket: QuotaBucket | None = None
        self._match: AppliedQuota | None = None
        self._names = names
        self._groups = manager if groups is None else groups
        self._around: list[Charged] = []
        self._smooth: list[tuple[SmoothBucket, bool]] = []  # the same where they are smooth
        self._path: FetchPath | None = None
        self._deciding: QuotaBucket | None = None

    def record(self, value: float, now_ms: int) -> int:
        """Record a value and return the throttle time in ms, 0 within the quota or without any quota."""
        own = self._bucket if self._generation == self._limits.generation else self._resolve()
        if not self._around:
            return 0 if own is None else own.record_and_throttle_ms(value, now_ms)
        if not self._smooth:
            return self._record_others(value, now_ms)
        now, longest_ms, deciding = now_ms + 0.0, 0, own
        # `SmoothBucket.record_and_throttle_ms` written out: calls would be half of the decision.
        for bucket, is_guaranteed in self._smooth:
            paid_ms = bucket.paid_ms
            if not paid_ms > now:
                paid_ms = now
            bucket.paid_ms = paid_ms = paid_ms + value * bucket.each_ms
            bucket.recorded_ms = now_ms
            bucket.total += value
            if is_guaranteed:
                if longest_ms:
                    longest_ms = min(longest_ms, bucket.wait_ms(now_ms))
            elif paid_ms - now > bucket.room_ms:
                wait_ms = bucket.wait_ms(now_ms)
                if wait_ms >= longest_ms:
                    longest_ms, deciding = wait_ms, bucket
        own_ms = 0 if own is None else own.record_and_throttle_ms(value, now_ms)
        if own_ms >= longest_ms:
            longest_ms, deciding = own_ms, own
        if longest_ms:
            self._deciding = deciding
        return longest_ms

    def _record_others(self, value: float, now_ms: int) -> int:
        """Record a value at buckets of mutations, or at the windows of shadow mode."""
        if self.quota_type is QuotaType.CONTROLLER_MUTATION:
            refused_ms = self.would_throttle_ms(value, now_ms)
            if not refused_ms:
                self.record_without_throttle(value, now_ms)
            return refused_ms
        return self._longest_ms(
            (bucket, is_guaranteed, bucket.record_and_throttle_ms(value, now_ms))
            for bucket, is_guaranteed in self._charged()
        )

    def admit(self, value: float, now_ms: int) -> bool:
        """Record a value if that certainly gives no throttle time, and return whether it did.

        False records nothing and does not mean a violation.
        """
        own = self._bucket if self._generation == self._limits.generation else self._resolve()
        if not self._around:
            return own is None or (type(own) is RateBucket and own.admit(value, now_ms))
        charged = self._charged()
        for bucket, is_guaranteed in charged:
            if isinstance(bucket, MutationBucket) or not (is_guaranteed or bucket.has_room(value, now_ms)):
                return False
        for bucket, _ in charged:
            bucket.record(value, now_ms)
        return True

    def record_without_throttle(self, value: float, now_ms: int) -> None:
        """Record a value without a check, if any quota was configured, for the next check to include."""
        for bucket, _ in self._charged():
            bucket.record(value, now_ms)

    def unrecord(self, value: float, now_ms: int) -> None:
        """Take back a recorded value that was not used."""
        self.record_without_throttle(-value, now_ms)

    def throttled(self, throttle_ms: int, now_ms: int) -> None:
        """Add a throttle time of the client to the average that the bucket reports that requires it."""
        bucket = self.state
        if bucket is not None:
            bucket.owner.throttled(bucket.name, throttle_ms, now_ms)

    def mutation_quota(self, *, strict: bool) -> MutationQuota:
        """Return the quota for one request that creates, grows or deletes topics, by a manager of mutations."""
        return MutationQuota(self._charged(), strict=strict, waits_for=self._waits_for)

    @property
    def quota_type(self) -> QuotaType:
        """The kind of quota."""
        return self.manager.quota_type

    @property
    def bound(self) -> float | None:
        """The limit that required the last throttle time, at first its own or its innermost group's."""
        match = self._applied()
        return None if match is None else match.limit

    @property
    def entity(self) -> Entity | None:
        """The entity with this limit, or None if it is unlimited."""
        match = self._applied()
        return None if match is None else match.entity

    @property
    def bucket(self) -> tuple[str, str] | None:
        """The tags of the bucket of that limit, or None before any configuration."""
        bucket = self.state
        return None if bucket is None else bucket_tags(bucket.name)

    @property
    def state(self) -> QuotaBucket | None:
        """The bucket of that limit, the client's own if there is no limit, or None without any."""
        own, deciding = self._resolve(), self._deciding
        if not self._around:
            return own
        if deciding is not None and deciding.owner.keeps(deciding) and deciding.owner.match_of(deciding) is not None:
            return deciding
        if self._match is not None:
            return own
        limits = (bucket for bucket, is_guaranteed in reversed(self._around) if not is_guaranteed)
        return next((bucket for bucket in limits if bucket.owner.match_of(bucket) is not None), own)

    def max_value(self, now_ms: int) -> float | None:
        """Return the most that it makes sense to ask for now, or None if it is unlimited.

        It fits into `samples - 1` windows, or into a smooth bucket.
        """
        if self.bound is None:
            return None
        most = self._capacity(of_guaranteed=False)
        # Without room in the limits, more than a second of a guaranteed rate would never fit.
        has_guaranteed = any(is_guaranteed for _, is_guaranteed in self._around)
        return self._capacity(of_guaranteed=True) if has_guaranteed and self.would_throttle_ms(most, now_ms) else most

    def would_throttle_ms(self, value: float, now_ms: int) -> int:
        """Return the throttle time in ms that recording a value would give, without recording it."""
        own = self._resolve()
        if not self._around:
            return 0 if own is None else own.would_throttle_ms(value, now_ms)
        return self._longest_ms(
            (bucket, is_guaranteed, bucket.would_throttle_ms(value, now_ms))
            for bucket, is_guaranteed in self._charged()
        )

    def fetch_queue(self, now_ms: int) -> FetchPath:
        """Return the queues that the Fetches of a client with a limit pass."""
        self._resolve()
        if self._path is None:
            queues = [
                (bucket.owner.fetch_queue(bucket, match.limit, now_ms), is_guaranteed)
                for bucket, is_guaranteed in self._charged()
                if (match := bucket.owner.match_of(bucket)) is not None
            ]
            self._path = FetchPath(queues, self._bucket, self._waits_for if self._around else None)
        return self._path

    def peek(self, now_ms: int) -> float | None:
        """Return the rate per second (or the tokens left) of that bucket, or None before any configuration."""
        bucket = self.state
        return None if bucket is None else bucket.peek(now_ms)

    def _longest_ms(self, waits: Iterable[tuple[QuotaBucket, bool, int]]) -> int:
        longest_ms, deciding = longest_wait(waits)
        if longest_ms:
            self._deciding = deciding
        return longest_ms

    def _waits_for(self, bucket: QuotaBucket) -> None:
        self._deciding = bucket

    def _applied(self) -> AppliedQuota | None:
        own = self._resolve()
        if not self._around:
            return self._match
        bucket = self.state
        return self._match if bucket is own or bucket is None else bucket.owner.match_of(bucket)

    def _capacity(self, *, of_guaranteed: bool) -> float:
        """Return the least capacity of any limit, or of any guaranteed rate as well."""
        asked = [bucket for bucket, is_guaranteed in self._charged() if of_guaranteed or not is_guaranteed]
        return min(bucket.capacity for bucket in asked if bucket.owner.match_of(bucket) is not None)

    def _charged(self) -> list[Charged]:
        own = self._resolve()
        return self._around if own is None else [*self._around, (own, False)]

    def _resolve(self) -> QuotaBucket | None:
        """Return the bucket with its current bound, looked up after changes only, or None without any quota."""
        limits, bucket = self._limits, self._bucket
        generation = limits.generation
        if self._generation != generation:
            if (
                bucket is None
                or limits.changed_since(self._generation, self.user, self.client_id)
                or not self.manager.keeps(bucket)
            ):
                found, self._match = self.manager.resolve(self.user, self.client_id)
                if found is not bucket:
                    self._bucket, self._deciding = found, None
            self._around = [(self._groups.bucket_of(name), name[0] == GUARANTEED_USER) for name in self._names]
            self._smooth = [
                (each, is_guaranteed) for each, is_guaranteed in self._around if isinstance(each, SmoothBucket)
            ]
            self._path = None
            # Not that of now: a bucket that was made may have taken the room of one that was looked up before.
            self._generation = generation if self._names else limits.generation
        return self._bucket
