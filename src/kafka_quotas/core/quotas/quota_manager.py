"""The quotas of one type over all clients of one process: their buckets and their throttle times.

Invariants: limits, buckets and throttle times equal those of a broker with the same updates in the same order. No
method records anything before the first quota of the type (except `record_without_throttle`). A new limit reaches a
bucket before its next use. Not safe for several threads at once.

A request that creates, grows or deletes topics has a quota of its own. A strict one checks before it records, and
refuses while the bucket is in debt; a permissive one always records. Either reports how long the client must wait,
counted down from the time of the check.

**Source:** `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager`,
`StrictControllerMutationQuota` and `PermissiveControllerMutationQuota` of Kafka 4.0; KIP-599.
"""

from dataclasses import dataclass
from typing import cast

from kafka_quotas.core.metrics.throttle_time import narrow_to_int32, narrow_to_int64
from kafka_quotas.core.metrics.throttled_minute import ThrottleAverage, ThrottledMinute
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import LONG_MAX, UNLIMITED, QuotaType, RateAlgorithm
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, NOT_THROTTLED, QuotaWindow
from kafka_quotas.core.quotas.bucket_pool import IDLE_MS, BucketPool, BucketState
from kafka_quotas.core.quotas.fetch_queue import AnyFetchQueue, FetchQueue
from kafka_quotas.core.quotas.quota_bucket import (
    BURST_S,
    BucketSnapshot,
    MutationBucket,
    QuotaBucket,
    RateBucket,
    SmoothBucket,
    snapshot_of,
)
from kafka_quotas.core.resolution.quota_resolver import NEVER, AppliedQuota, Bucket, QuotaResolver, bucket_tags

__all__ = ["IDLE_MS", "BucketState", "ClientQuotaManager", "Limiter", "QuotaType", "RateAlgorithm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRefusal:
    """A refused mutation."""

    throttle_ms: int
    until_ms: int
    limit: float | None
    entity: Entity | None


class MutationQuota:
    """The quota of one request, with one bucket through every configuration, under its current bound.

    A strict one refuses while its bucket is in debt, for request versions that can report a refusal. A permissive one
    admits and records everything. Before any quota was configured there is no bucket: it admits without recording.
    """

    def __init__(self, bucket: MutationBucket | None, *, strict: bool) -> None:
        self._bucket = bucket
        self._strict = strict
        self._last_throttle_ms = 0
        self._last_recorded_ms = 0

    @property
    def kind(self) -> str:
        """`strict`, `permissive` or `unbounded`."""
        return "unbounded" if self._bucket is None else "strict" if self._strict else "permissive"

    def record(self, permits: float, now_ms: int) -> MutationRefusal | None:
        """Record the mutations (partitions) and return None, or return the refusal."""
        bucket = self._bucket
        if bucket is None:
            return None
        owner = bucket.owner
        owner.renewed(bucket)
        if self._strict and self._in_debt(bucket.refused_ms(now_ms), now_ms):
            return self._refusal(owner.match_of(bucket), now_ms)
        bucket.record(permits, now_ms)
        if not self._strict:
            self._in_debt(bucket.refused_ms(now_ms), now_ms)
        return None

    def throttle_ms(self, now_ms: int) -> int:
        """Return the rest of the last throttle time in ms, which may be long over."""
        waited_ms = now_ms - self._last_recorded_ms
        return narrow_to_int32(max(0, narrow_to_int64(self._last_throttle_ms - waited_ms)))

    def _in_debt(self, refused_ms: int | None, now_ms: int) -> bool:
        """Return whether a request is refused, and keep the throttle time if it is."""
        if refused_ms is None:
            return False
        self._last_throttle_ms = refused_ms
        self._last_recorded_ms = now_ms
        return True

    def _refusal(self, match: AppliedQuota | None, now_ms: int) -> MutationRefusal:
        return MutationRefusal(
            throttle_ms=narrow_to_int32(self._last_throttle_ms),
            until_ms=now_ms + self._last_throttle_ms,
            limit=match.limit if match else None,
            entity=match.entity if match else None,
        )


class Limiter:
    """A cheap handle on a user's client-id at one quota manager, valid through every configuration.

    It looks its bucket up again only after a change that concerns its client.
    **Source:** `ClientQuotaManager.ClientSensors` of Kafka 4.0.
    """

    __slots__ = ("_bucket", "_generation", "_limits", "_match", "client_id", "manager", "user")

    def __init__(self, manager: "ClientQuotaManager", user: str, client_id: str) -> None:
        self.user = user
        self.client_id = client_id
        self.manager = manager
        self._limits = manager.limits
        self._generation = NEVER
        self._bucket: QuotaBucket | None = None
        self._match: AppliedQuota | None = None

    def record(self, value: float, now_ms: int) -> int:
        """Record a value and return the throttle time in ms, 0 within the quota or without any quota."""
        bucket = self._bucket if self._generation == self._limits.generation else self._resolve()
        return 0 if bucket is None else bucket.record_and_throttle_ms(value, now_ms)

    def admit(self, value: float, now_ms: int) -> bool:
        """Record a value if that certainly gives no throttle time, and return whether it did.

        False records nothing and does not mean a violation.
        """
        bucket = self._bucket if self._generation == self._limits.generation else self._resolve()
        return bucket is None or (type(bucket) is RateBucket and bucket.admit(value, now_ms))

    def record_without_throttle(self, value: float, now_ms: int) -> None:
        """Record a value without a check, if any quota was configured, for the next check to include."""
        bucket = self._resolve()
        if bucket is not None:
            bucket.record(value, now_ms)

    def unrecord(self, value: float, now_ms: int) -> None:
        """Take back a recorded value that was not used."""
        self.record_without_throttle(-value, now_ms)

    def throttled(self, throttle_ms: int, now_ms: int) -> None:
        """Add a throttle time of the client to the average that the bucket reports that requires it."""
        bucket = self.state
        if bucket is not None:
            cast("ClientQuotaManager", bucket.owner).throttled(bucket.name, throttle_ms, now_ms)

    def mutation_quota(self, *, strict: bool) -> MutationQuota:
        """Return the quota for one request that creates, grows or deletes topics, by a manager of mutations."""
        return self.manager.mutation_quota(self.user, self.client_id, strict=strict)

    @property
    def quota_type(self) -> QuotaType:
        """The kind of quota."""
        return self.manager.quota_type

    @property
    def bound(self) -> float | None:
        """The limit that applies, or None if it is unlimited."""
        self._resolve()
        return None if self._match is None else self._match.limit

    @property
    def entity(self) -> Entity | None:
        """The entity whose limit applies, or None if it is unlimited."""
        self._resolve()
        return None if self._match is None else self._match.entity

    @property
    def bucket(self) -> tuple[str, str] | None:
        """The tags of the bucket that required the last throttle time, or None before any configuration."""
        bucket = self.state
        return None if bucket is None else bucket_tags(bucket.name)

    @property
    def max_value_in_window(self) -> float | None:
        """The most that fits into `samples - 1` windows, or into a smooth bucket, or None if it is unlimited."""
        bound = self.bound
        return None if bound is None else self.manager.max_in_window(bound)

    def max_value(self, now_ms: int) -> float | None:  # noqa: ARG002 - that of a group depends on it
        """Return the most that it makes sense to ask for now, or None if it is unlimited."""
        return self.max_value_in_window

    def would_throttle_ms(self, value: float, now_ms: int) -> int:
        """Return the throttle time in ms that recording a value would give, without recording it."""
        bucket = self._resolve()
        return 0 if bucket is None else bucket.would_throttle_ms(value, now_ms)

    def fetch_queue(self, now_ms: int) -> AnyFetchQueue:
        """Return the queue of the Fetches of a client that has a limit."""
        bucket, match = self._resolve(), self._match
        assert bucket is not None and match is not None  # noqa: PT018 - one state
        return self.manager.fetch_queue(bucket, match.limit, now_ms)

    @property
    def state(self) -> QuotaBucket | None:
        """The bucket that required the last throttle time, at first the client's own, or None without any."""
        return self._resolve()

    def peek(self, now_ms: int) -> float | None:
        """Return the rate per second (or the tokens left) of that bucket, or None before any configuration."""
        bucket = self.state
        return None if bucket is None else bucket.peek(now_ms)

    def _resolve(self) -> QuotaBucket | None:
        """Return the bucket with its current bound, looked up after changes only, or None without any quota."""
        limits, bucket = self._limits, self._bucket
        if self._generation != limits.generation:
            if (
                bucket is None
                or limits.changed_since(self._generation, self.user, self.client_id)
                or not self.manager.keeps(bucket)
            ):
                self._bucket, self._match = self.manager.resolve(self.user, self.client_id)
            self._generation = limits.generation
        return self._bucket


class ClientQuotaManager:
    """The quotas of one type, set by `update_quota` and charged by user and client-id."""

    def __init__(
        self,
        quota_type: QuotaType,
        window: QuotaWindow = DEFAULT_WINDOW,
        algorithm: RateAlgorithm = RateAlgorithm.WINDOW,
        *,
        limits: QuotaResolver | None = None,
        pool: BucketPool | None = None,
    ) -> None:
        """Make a manager without buckets, with limits and a pool of its own where None are given to share."""
        self.quota_type = quota_type
        self.window = window
        self.algorithm = algorithm
        self._resolver = QuotaResolver() if limits is None else limits
        self._pool = BucketPool() if pool is None else pool
        self._buckets: dict[Bucket, QuotaBucket] = {}
        self._throttles: dict[Bucket, tuple[ThrottleAverage, ThrottledMinute]] = {}
        self._fetch_queues: dict[Bucket, FetchQueue] = {}
        self._waited_at: dict[FetchQueue, None] = {}

    @property
    def limits(self) -> QuotaResolver:
        """The limits, which other managers may share."""
        return self._resolver

    @property
    def enabled(self) -> bool:
        """Whether a quota of this type was ever configured or removed."""
        return self._resolver.enabled

    def update_quota(self, entity: Entity, bound: float | None) -> None:
        """Set the limit of an entity in the unit of the key, or remove it (None)."""
        self._resolver.update(entity, bound)

    def limiter(self, user: str, client_id: str) -> Limiter:
        """Return a handle of a user's client-id."""
        return Limiter(self, user, client_id)

    def record_and_throttle_ms(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Record a value, if it is not of refused mutations, and return the throttle time in ms."""
        return Limiter(self, user, client_id).record(value, now_ms)

    def record_without_throttle(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Record a value without a check in the bucket, which this makes as in Kafka."""
        self._bucket_of(user, client_id).record(value, now_ms)

    def mutation_quota(self, user: str, client_id: str, *, strict: bool) -> MutationQuota:
        """Return the quota for one request: strict, or permissive, which accepts and reports the wait."""
        if not self.enabled:
            return MutationQuota(None, strict=strict)
        assert self.quota_type is QuotaType.CONTROLLER_MUTATION, f"{self.quota_type.value} quotas are not of mutations"
        bucket = cast("MutationBucket", self._bucket_of(user, client_id))
        return MutationQuota(bucket, strict=strict)

    def buckets(self, now_ms: int) -> list[BucketState]:
        """Return the state of all buckets sorted by their tags, without changing any."""
        return sorted((self.state(bucket, now_ms) for bucket in self._buckets.values()), key=lambda state: state.tags)

    def state(self, bucket: QuotaBucket, now_ms: int) -> BucketState:
        """Return the reported state of one bucket of this manager."""
        name = bucket.name
        average, minute = self._throttles.get(name, (None, None))
        return BucketState(
            tags=bucket_tags(name),
            bound=self._resolver.limit(name),
            measured=self.renewed(bucket).peek(now_ms),
            throttle_ms=0.0 if average is None else average.peek(now_ms),
            last_minute=NOT_THROTTLED if minute is None else minute.peek(now_ms),
            mutation_rate=bucket.mutations.peek(now_ms) if isinstance(bucket, MutationBucket) else None,
        )

    def throttled(self, name: Bucket, throttle_ms: int, now_ms: int) -> None:
        """Add a client's throttle time to those that a bucket reports, if there is one."""
        kept = self._throttles.get(name)
        if kept is None:
            if name not in self._buckets:
                return
            kept = self._throttles[name] = (ThrottleAverage(), ThrottledMinute())
        average, minute = kept
        average.record(throttle_ms, now_ms)
        minute.record(throttle_ms, now_ms)

    def snapshots(self) -> list[BucketSnapshot]:
        """Return snapshots of the buckets that have records, without changing any."""
        return [snapshot for bucket in self._buckets.values() if (snapshot := snapshot_of(bucket)) is not None]

    def restore(self, snapshot: BucketSnapshot, shift_ms: int) -> None:
        """Restore a bucket from a snapshot, with all its times moved by `shift_ms`."""
        bucket = self._new_bucket(snapshot.name)
        if snapshot.kind != type(bucket).__name__:
            raise ValueError(f"a {snapshot.kind} is no {type(bucket).__name__}")
        bucket.restore(snapshot.figures, shift_ms)
        known = self._buckets.get(snapshot.name)
        if known is None:
            self._keep(bucket)
        else:
            bucket = known
            bucket.restore(snapshot.figures, shift_ms)
        bucket.recorded_ms = snapshot.recorded_ms + shift_ms
        bucket.generation = NEVER

    def bucket_of(self, name: Bucket) -> QuotaBucket:
        """Return the bucket of a name with its current bound, making one if there is none."""
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._keep(self._new_bucket(name))
        return self.renewed(bucket)

    def fetch_queue(self, bucket: QuotaBucket, limit: float, now_ms: int) -> FetchQueue:
        """Return the queue of the Fetches of a bucket with this limit."""
        queue = self._fetch_queues.get(bucket.name)
        if queue is None or queue.bucket is not bucket:
            queue = self._fetch_queues[bucket.name] = FetchQueue(bucket, limit, self._waited_at, now_ms)
        return queue.follow(limit, now_ms)

    def max_in_window(self, bound: float) -> float:
        """Return the most that fits into `samples - 1` windows, or a smooth bucket, at a limit per second."""
        window, is_smooth = self.window, self.algorithm is RateAlgorithm.SMOOTH
        return bound * (BURST_S if is_smooth else (window.samples - 1) * window.window_s)

    def call_waiting(self) -> None:
        """Have every waiting Fetch looked at again, after a change that may let it begin."""
        for queue in list(self._waited_at):
            queue.call_all()

    def expire_idle(self, now_ms: int) -> int:
        """Remove the pool's buckets without a record for more than an hour, and return their number."""
        return sum(self._pool.expire_idle(now_ms))

    def forget(self, bucket: QuotaBucket) -> None:
        """Drop a bucket, which handles notice by the generation."""
        del self._buckets[bucket.name]
        self._throttles.pop(bucket.name, None)
        self._fetch_queues.pop(bucket.name, None)
        self._resolver.generation += 1

    def keeps(self, bucket: QuotaBucket) -> bool:
        """Return whether a bucket is still in use here."""
        return self._buckets.get(bucket.name) is bucket

    def renewed(self, bucket: QuotaBucket) -> QuotaBucket:
        """Return the same bucket with its current bound."""
        limits = self._resolver
        if bucket.generation != limits.generation:
            if limits.changed_since(bucket.generation, *bucket.name):
                limit = limits.limit(bucket.name)
                bucket.set_bound(UNLIMITED if limit is None else limit)
                if self._pool.idle_share < 1.0:
                    bucket.reserve(0.0 if limit is None else bucket.capacity * (1.0 - self._pool.idle_share))
            bucket.generation = limits.generation
        return bucket

    def match_of(self, bucket: QuotaBucket) -> AppliedQuota | None:
        """Return the limit of a bucket with its entity and level, or None if it is unlimited."""
        return self._resolver.match(bucket.name)

    def resolve(self, user: str, client_id: str) -> tuple[QuotaBucket | None, AppliedQuota | None]:
        """Return a client's bucket with its current bound, and its limit, None before any configuration."""
        if not self.enabled:
            return None, None
        bucket = self._bucket_of(user, client_id)
        return bucket, self.match_of(bucket)

    def _bucket_of(self, user: str, client_id: str) -> QuotaBucket:
        return self.bucket_of(self._resolver.bucket(user, client_id))

    def _keep(self, bucket: QuotaBucket) -> QuotaBucket:
        bucket.generation = NEVER
        bucket.owner = self
        self._pool.add(bucket)
        self._buckets[bucket.name] = bucket
        return bucket

    def _new_bucket(self, name: Bucket) -> QuotaBucket:
        samples, window_ms = self.window.samples, self.window.window_ms
        if self.quota_type is QuotaType.CONTROLLER_MUTATION:
            return MutationBucket(name, samples, window_ms)
        longest_ms = window_ms if self.quota_type is QuotaType.REQUEST else LONG_MAX
        if self.algorithm is RateAlgorithm.SMOOTH:
            return SmoothBucket(name, longest_ms)
        return RateBucket(name, samples, window_ms, longest_ms)
