"""The quotas of one type over all clients of one process: their buckets and their throttle times.

Invariants: limits, buckets and throttle times equal those of a broker with the same updates in the same order. No
method records anything before the first quota of the type (except `record_without_throttle`). A new limit reaches a
bucket before its next use. Not safe for several threads at once.

**Source:** `ClientQuotaManager`, `ClientRequestQuotaManager` and `ControllerMutationQuotaManager` of Kafka 4.0.
"""

from kafka_quotas.core.metrics.throttled_minute import ThrottleAverage, ThrottledMinute
from kafka_quotas.core.model.quota_key import LONG_MAX, UNLIMITED, QuotaType, RateAlgorithm
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, NOT_THROTTLED, QuotaWindow
from kafka_quotas.core.quotas.bucket_pool import IDLE_MS, BucketPool, BucketState
from kafka_quotas.core.quotas.fetch_queue import FetchQueue
from kafka_quotas.core.quotas.limiter import Limiter, MutationQuota, MutationRefusal
from kafka_quotas.core.quotas.quota_bucket import (
    BucketSnapshot,
    MutationBucket,
    QuotaBucket,
    RateBucket,
    SmoothBucket,
    snapshot_of,
)
from kafka_quotas.core.resolution.quota_resolver import NEVER, AppliedQuota, Bucket, QuotaResolver, bucket_tags

__all__ = [
    "IDLE_MS",
    "BucketState",
    "ClientQuotaManager",
    "Limiter",
    "MutationQuota",
    "MutationRefusal",
    "QuotaType",
    "RateAlgorithm",
]


class ClientQuotaManager:
    """The quotas of one type, set by `limits` and charged by user and client-id."""

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
        self.limits = QuotaResolver() if limits is None else limits
        """The limits, which other managers may share."""
        self._pool = BucketPool() if pool is None else pool
        self._buckets: dict[Bucket, QuotaBucket] = {}
        self._throttles: dict[Bucket, tuple[ThrottleAverage, ThrottledMinute]] = {}
        self._fetch_queues: dict[Bucket, FetchQueue] = {}
        self._waited_at: dict[FetchQueue, None] = {}

    @property
    def enabled(self) -> bool:
        """Whether a quota of this type was ever configured or removed."""
        return self.limits.enabled

    def limiter(self, user: str, client_id: str) -> Limiter:
        """Return a handle of a user's client-id."""
        return Limiter(self, user, client_id)

    def record_and_throttle_ms(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Record a value, if it is not of refused mutations, and return the throttle time in ms."""
        return Limiter(self, user, client_id).record(value, now_ms)

    def record_without_throttle(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Record a value without a check in the bucket, which this makes as in Kafka."""
        self._bucket_of(user, client_id).record(value, now_ms)

    def buckets(self, now_ms: int) -> list[BucketState]:
        """Return the state of all buckets sorted by their tags, without changing any."""
        return sorted((self.state(bucket, now_ms) for bucket in self._buckets.values()), key=lambda state: state.tags)

    def state(self, bucket: QuotaBucket, now_ms: int) -> BucketState:
        """Return the reported state of one bucket of this manager."""
        name = bucket.name
        average, minute = self._throttles.get(name, (None, None))
        return BucketState(
            tags=bucket_tags(name),
            bound=self.limits.limit(name),
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
        self.limits.generation += 1

    def keeps(self, bucket: QuotaBucket) -> bool:
        """Return whether a bucket is still in use here."""
        return self._buckets.get(bucket.name) is bucket

    def renewed(self, bucket: QuotaBucket) -> QuotaBucket:
        """Return the same bucket with its current bound."""
        limits = self.limits
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
        return self.limits.match(bucket.name)

    def resolve(self, user: str, client_id: str) -> tuple[QuotaBucket | None, AppliedQuota | None]:
        """Return a client's bucket with its current bound, and its limit, None before any configuration."""
        if not self.enabled:
            return None, None
        bucket = self._bucket_of(user, client_id)
        return bucket, self.match_of(bucket)

    def _bucket_of(self, user: str, client_id: str) -> QuotaBucket:
        return self.bucket_of(self.limits.bucket(user, client_id))

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
