"""The quotas of one type over all clients of one process: who draws on which bucket, and how long each is held back.

Invariants: limits, buckets and throttle times are those of a broker that was told the same in the same order. Nothing
is recorded before the first quota of the type is configured (but see `record_without_throttle`). A new limit reaches
a bucket before its next use. Not safe for several threads at once.
**Source:** `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager` of Kafka 4.0.
"""

import copy
from typing import Final, cast

from kafka_quotas.core.metrics.throttle_average import ThrottleAverage
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import LONG_MAX
from kafka_quotas.core.model.quota_type import QuotaType, RateAlgorithm
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.bucket_pool import IDLE_MS, BucketPool, BucketState
from kafka_quotas.core.quotas.mutation_bucket import AdmissionBucket, MutationAlgorithm, new_mutation_bucket
from kafka_quotas.core.quotas.mutation_quota import (
    MutationQuota,
    PermissiveMutationQuota,
    StrictMutationQuota,
    UnboundedMutationQuota,
)
from kafka_quotas.core.quotas.quota_bucket import (
    BURST_S,
    UNLIMITED,
    BucketSnapshot,
    MutationBucket,
    QuotaBucket,
    RateBucket,
    SmoothBucket,
    memory_of,
)
from kafka_quotas.core.resolution.quota_resolver import NEVER, AppliedQuota, Bucket, QuotaResolver, bucket_tags

__all__ = ["IDLE_MS", "BucketState", "ClientQuotaManager", "Limiter", "QuotaType", "RateAlgorithm"]

MAX_HANDLES: Final = 100_000
"""How many handles are kept to be found again by name; what clients hold themselves stays right in any case."""
MAX_HANDLE_NAME: Final = 256
"""Handles of clients with longer names than this are not kept, so that names can't fill memory."""


class ClientQuotaManager:
    """The quotas of one type: configured by `update_quota`, asked by user and client-id, at times in ms."""

    def __init__(
        self,
        quota_type: QuotaType,
        window: QuotaWindow = DEFAULT_WINDOW,
        algorithm: RateAlgorithm = RateAlgorithm.WINDOW,
        *,
        mutations: MutationAlgorithm = MutationAlgorithm.TOKEN_BUCKET,
        limits: QuotaResolver | None = None,
        pool: BucketPool | None = None,
    ) -> None:
        """Make a manager without buckets.

        Args:
            quota_type: what is limited.
            window: over what a rate is measured.
            algorithm: how a rate is measured.
            mutations: how controller mutations are.
            limits: the limits, which managers may share; None for limits of its own.
            pool: where buckets are counted, which managers may share; None for one of its own, without a bound.
        """
        self.quota_type = quota_type
        self.window = window
        self.algorithm = algorithm
        self._mutations = mutations
        self._resolver = QuotaResolver() if limits is None else limits
        self._pool = BucketPool() if pool is None else pool
        self._buckets: dict[Bucket, QuotaBucket] = {}
        self._throttles: dict[Bucket, ThrottleAverage] = {}
        self._limiters: dict[tuple[str, str], Limiter] = {}

    @property
    def limits(self) -> QuotaResolver:
        """The limits, which other managers may share."""
        return self._resolver

    @property
    def generation(self) -> int:
        """A number that differs after every change that may give a client another limit or bucket."""
        return self._resolver.generation

    @property
    def enabled(self) -> bool:
        """Whether a quota of this type was ever configured or removed."""
        return self._resolver.enabled

    def update_quota(self, entity: Entity, bound: float | None) -> None:
        """Set the limit of an entity (in the unit of the key), or remove it (None).

        Raises `UsageError` for an entity with neither user nor client-id.
        """
        self._resolver.update(entity, bound)

    def update_static_quota(self, entity: Entity, bound: float | None) -> None:
        """Set or remove (None) a limit of static configuration, which lies below all others.

        Raises `UsageError` for an entity that is no client-id.
        """
        self._resolver.update_static(entity, bound)

    def limiter(self, user: str, client_id: str) -> "Limiter":
        """Return the handle of a user's client-id, which stays right whatever is configured later.

        Handles are found again while a quota is configured; as long as none is, nothing is kept of any client.
        """
        limiter = self._limiters.get((user, client_id))
        if limiter is None:
            limiter = Limiter(self, user, client_id)
            if self.enabled and len(user) + len(client_id) <= MAX_HANDLE_NAME:
                if len(self._limiters) >= MAX_HANDLES:
                    self._limiters.clear()
                self._limiters[user, client_id] = limiter
        return limiter

    def record_and_throttle_ms(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """The throttle time in ms after recording a value; 0 where the quota holds, or none was ever configured.

        Controller mutations are checked before they are recorded, and not recorded where they are refused.
        """
        return (self._limiters.get((user, client_id)) or self.limiter(user, client_id)).record(value, now_ms)

    def record_without_throttle(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Record a value without a check: the next check sees it. As in Kafka this makes a bucket in any case."""
        self._bucket_of(user, client_id).record(value, now_ms)

    def unrecord(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Take a value back that was recorded for nothing, such as the size of a refused fetch."""
        self._bucket_of(user, client_id).record(-value, now_ms)

    def quota(self, user: str, client_id: str) -> float | None:
        """The limit that applies, None where it is unlimited."""
        return self._resolver.limit(self._resolver.bucket(user, client_id))

    def match(self, user: str, client_id: str) -> AppliedQuota | None:
        """The limit that applies with its entity and level, None where it is unlimited."""
        return self._resolver.match(self._resolver.bucket(user, client_id))

    def bucket(self, user: str, client_id: str) -> tuple[str, str] | None:
        """The tags of the bucket that is drawn on: sanitized user and client-id; None before any configuration."""
        return bucket_tags(self._resolver.bucket(user, client_id)) if self.enabled else None

    def max_value_in_window(self, user: str, client_id: str) -> float | None:
        """The most that can be recorded within the whole windows without a violation; None where it is unlimited."""
        if not self.enabled:
            return None
        bucket = self._bucket_of(user, client_id)
        return self.max_value(self._resolver.limit(bucket.name))

    def max_value(self, limit: float | None) -> float | None:
        """What a limit comes to over `samples - 1` windows, or in a smooth bucket; None for no limit."""
        if limit is None:
            return None
        span_s = BURST_S if self.algorithm is RateAlgorithm.SMOOTH else (self.window.samples - 1) * self.window.window_s
        return limit * span_s

    def strict_quota(self, user: str, client_id: str) -> MutationQuota:
        """A strict quota for one request of a client: it refuses while there is a debt. It keeps its bucket."""
        if not self.enabled:
            return UnboundedMutationQuota()
        return StrictMutationQuota(self, self._mutation_bucket_of(user, client_id))

    def permissive_quota(self, user: str, client_id: str) -> MutationQuota:
        """A permissive quota for one request of a client: it accepts, and tells the wait. It keeps its bucket."""
        if not self.enabled:
            return UnboundedMutationQuota()
        return PermissiveMutationQuota(self, self._mutation_bucket_of(user, client_id))

    def buckets(self, now_ms: int) -> list[BucketState]:
        """All buckets, sorted by their tags; asking changes none of them."""
        return sorted((self.state(bucket, now_ms) for bucket in self._buckets.values()), key=lambda state: state.tags)

    def state(self, bucket: QuotaBucket, now_ms: int) -> BucketState:
        """Return what is reported of one bucket of this manager."""
        name = bucket.name
        return BucketState(
            tags=bucket_tags(name),
            bound=self._resolver.limit(name),
            measured=self.renewed(bucket).peek(now_ms),
            throttle_ms=self._throttles[name].peek(now_ms) if name in self._throttles else 0.0,
            mutation_rate=bucket.mutations.peek(now_ms) if isinstance(bucket, MutationBucket) else None,
        )

    def throttled(self, user: str, client_id: str, throttle_ms: int, now_ms: int) -> None:
        """Count a throttle time that a client was given in what its bucket reports, if it has one."""
        name = self._resolver.bucket(user, client_id)
        average = self._throttles.get(name)
        if average is None:
            if name not in self._buckets:
                return
            average = self._throttles[name] = ThrottleAverage()
        average.record(throttle_ms, now_ms)

    def memories(self) -> list[BucketSnapshot]:
        """What is to be remembered of the buckets that were recorded to; asking changes none of them."""
        return [memory for bucket in self._buckets.values() if (memory := memory_of(bucket)) is not None]

    def remember(self, memory: BucketSnapshot, shift_ms: int) -> None:
        """Let a bucket go on from what another one remembers, with all its times moved by `shift_ms`.

        Raises `ValueError` for figures of another kind of bucket or another window.
        """
        bucket = self._new_bucket(memory.name)
        if memory.kind != type(bucket).__name__:
            raise ValueError(f"a {memory.kind} is no {type(bucket).__name__}")
        bucket.remember(memory.figures, shift_ms)
        known = self._buckets.get(memory.name)
        if known is None:
            self._keep(bucket)
        else:
            bucket = known
            bucket.remember(memory.figures, shift_ms)
        bucket.recorded_ms = memory.recorded_ms + shift_ms
        bucket.generation = NEVER

    def expire_idle(self, now_ms: int) -> int:
        """Forget the pool's buckets without a record for more than an hour; return how many those were."""
        gone = sum(self._pool.expire_idle(now_ms))
        self.drop_handles()
        return gone

    def drop_handles(self) -> None:
        """Drop the handles that are kept by name; those in use elsewhere go on working."""
        self._limiters.clear()

    def forget(self, bucket: QuotaBucket) -> None:
        """Drop a bucket: handles find that out, and draw on a new one."""
        del self._buckets[bucket.name]
        self._throttles.pop(bucket.name, None)
        self._resolver.generation += 1

    def keeps(self, bucket: QuotaBucket) -> bool:
        """Return whether a bucket was not forgotten since."""
        return self._buckets.get(bucket.name) is bucket

    def renewed(self, bucket: QuotaBucket) -> QuotaBucket:
        """The same bucket with the bound that holds now."""
        limits = self._resolver
        if bucket.generation != limits.generation:
            if limits.changed_since(bucket.generation, *bucket.name):
                limit = limits.limit(bucket.name)
                bucket.set_bound(UNLIMITED if limit is None else limit)
            bucket.generation = limits.generation
        return bucket

    def match_of(self, bucket: QuotaBucket) -> AppliedQuota | None:
        """The limit of a bucket with its entity and level, None where it is unlimited."""
        return self._resolver.match(bucket.name)

    def resolve(self, user: str, client_id: str) -> tuple[QuotaBucket | None, AppliedQuota | None]:
        """The bucket that is drawn on, with its bound, and the limit behind it; no bucket before any configuration."""
        if not self.enabled:
            return None, None
        bucket = self._bucket_of(user, client_id)
        return bucket, self.match_of(bucket)

    def _bucket_of(self, user: str, client_id: str) -> QuotaBucket:
        """The bucket that a user's client-id draws on, with its bound; made where there is none."""
        name = self._resolver.bucket(user, client_id)
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._keep(self._new_bucket(name))
        return self.renewed(bucket)

    def _keep(self, bucket: QuotaBucket) -> QuotaBucket:
        """Return a new bucket, which has its place from now on."""
        bucket.generation = NEVER
        self._pool.add(bucket, self)
        self._buckets[bucket.name] = bucket
        return bucket

    def _mutation_bucket_of(self, user: str, client_id: str) -> AdmissionBucket:
        assert self.quota_type is QuotaType.CONTROLLER_MUTATION, f"{self.quota_type.value} quotas are not of mutations"
        return cast("AdmissionBucket", self._bucket_of(user, client_id))

    def _new_bucket(self, name: Bucket) -> QuotaBucket:
        samples, window_ms = self.window.samples, self.window.window_ms
        if self.quota_type is QuotaType.CONTROLLER_MUTATION:
            return new_mutation_bucket(self._mutations, name, self.window)
        longest_ms = window_ms if self.quota_type is QuotaType.REQUEST else LONG_MAX
        if self.algorithm is RateAlgorithm.SMOOTH:
            return SmoothBucket(name, longest_ms)
        return RateBucket(name, samples, window_ms, longest_ms)


class Limiter:
    """A user's client-id at one quota manager: the cheap way to record, right whatever is configured meanwhile."""

    __slots__ = ("_bucket", "_generation", "_limits", "_manager", "_match", "client_id", "user")

    def __init__(self, manager: ClientQuotaManager, user: str, client_id: str) -> None:
        self.user = user
        self.client_id = client_id
        self._manager = manager
        self._limits = manager.limits
        self._generation = NEVER
        self._bucket: QuotaBucket | None = None
        self._match: AppliedQuota | None = None

    def record(self, value: float, now_ms: int) -> int:
        """The throttle time in ms after recording a value; 0 where the quota holds, or none was ever configured."""
        bucket = self._bucket if self._generation == self._limits.generation else self._resolve()
        return 0 if bucket is None else bucket.record_and_throttle_ms(value, now_ms)

    def admit(self, value: float, now_ms: int) -> bool:
        """Whether a value was recorded, which surely gives no throttle time; False says nothing and records nothing."""
        bucket = self._bucket if self._generation == self._limits.generation else self._resolve()
        return bucket is None or (type(bucket) is RateBucket and bucket.admit(value, now_ms))

    def record_without_throttle(self, value: float, now_ms: int) -> None:
        """Record a value without a check: the next check sees it. Nothing happens before any configuration."""
        bucket = self._resolve()
        if bucket is not None:
            bucket.record(value, now_ms)

    def unrecord(self, value: float, now_ms: int) -> None:
        """Take a value back that was recorded for nothing."""
        self.record_without_throttle(-value, now_ms)

    def throttled(self, throttle_ms: int, now_ms: int) -> None:
        """Nothing; the client was given a throttle time, which counts in what is told of its bucket."""
        self._manager.throttled(self.user, self.client_id, throttle_ms, now_ms)

    def mutation_quota(self, *, strict: bool) -> MutationQuota:
        """The quota for one request that creates, grows or deletes topics; only of a manager of such quotas."""
        make = self._manager.strict_quota if strict else self._manager.permissive_quota
        return make(self.user, self.client_id)

    @property
    def quota_type(self) -> QuotaType:
        """What is limited."""
        return self._manager.quota_type

    @property
    def bound(self) -> float | None:
        """The limit that applies, None where it is unlimited."""
        self._resolve()
        return None if self._match is None else self._match.limit

    @property
    def entity(self) -> Entity | None:
        """The entity whose limit applies, None where it is unlimited."""
        self._resolve()
        return None if self._match is None else self._match.entity

    @property
    def bucket(self) -> tuple[str, str] | None:
        """The tags of the bucket that is drawn on; None before any configuration."""
        bucket = self._resolve()
        return None if bucket is None else bucket_tags(bucket.name)

    @property
    def max_value_in_window(self) -> float | None:
        """The most that can be recorded within the whole windows without a violation; None where it is unlimited."""
        return self._manager.max_value(self.bound)

    def would_throttle_ms(self, value: float, now_ms: int) -> int:
        """Return the throttle time in ms that recording a value would give; nothing is recorded."""
        bucket = self._resolve()
        if bucket is None:
            return 0
        if isinstance(bucket, RateBucket | SmoothBucket):
            return bucket.would_throttle_ms(value, now_ms)
        # Of mutations, which are asked for by the decision API alone.
        return copy.deepcopy(bucket).record_and_throttle_ms(value, now_ms)

    def peek(self, now_ms: int) -> float | None:
        """The rate per second (or the tokens left) of the bucket; None before any configuration."""
        bucket = self._resolve()
        return None if bucket is None else bucket.peek(now_ms)

    def _resolve(self) -> QuotaBucket | None:
        """The bucket with the bound that holds now; None before any configuration.

        It is looked up anew only where a change concerns this client, or its bucket was forgotten.
        """
        limits, bucket = self._limits, self._bucket
        if self._generation != limits.generation:
            if (
                bucket is None
                or limits.changed_since(self._generation, self.user, self.client_id)
                or not self._manager.keeps(bucket)
            ):
                self._bucket, self._match = self._manager.resolve(self.user, self.client_id)
            self._generation = limits.generation
        return self._bucket
