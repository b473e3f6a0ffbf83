"""The handle by which callers charge one client at one quota manager.

A handle looks its bucket up again only after a change that concerns its client.
**Source:** `ClientQuotaManager.ClientSensors` of Kafka 4.0.
"""

import copy
from typing import Protocol

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.quotas.mutation_quota import MutationQuota
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket, RateBucket, SmoothBucket
from kafka_quotas.core.resolution.quota_resolver import NEVER, AppliedQuota, QuotaResolver, bucket_tags


class LimiterManager(Protocol):
    """The quota manager as its handles see it."""

    quota_type: QuotaType

    @property
    def limits(self) -> QuotaResolver:
        """The limits that decide which bucket a client draws on."""
        ...

    def resolve(self, user: str, client_id: str) -> tuple[QuotaBucket | None, AppliedQuota | None]:
        """Return a client's bucket and limit, None for either where there is none."""
        ...

    def keeps(self, bucket: QuotaBucket) -> bool:
        """Return whether a bucket is still in use."""
        ...

    def max_value(self, limit: float | None) -> float | None:
        """Return what a limit allows over the whole windows, None without a limit."""

    def throttled(self, user: str, client_id: str, throttle_ms: int, now_ms: int) -> None:
        """Count a throttle time in ms in the average of the client's bucket."""

    def strict_quota(self, user: str, client_id: str) -> MutationQuota:
        """Return a quota for one request that refuses mutations while its bucket is in debt."""
        ...

    def permissive_quota(self, user: str, client_id: str) -> MutationQuota:
        """Return a quota for one request that accepts mutations and reports the wait."""
        ...


class Limiter:
    """A cheap handle on a user's client-id at one quota manager, valid through every configuration."""

    __slots__ = ("_bucket", "_generation", "_limits", "_manager", "_match", "client_id", "user")

    def __init__(self, manager: LimiterManager, user: str, client_id: str) -> None:
        self.user = user
        self.client_id = client_id
        self._manager = manager
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
        """Add a throttle time of the client to the average that its bucket reports."""
        self._manager.throttled(self.user, self.client_id, throttle_ms, now_ms)

    def mutation_quota(self, *, strict: bool) -> MutationQuota:
        """Return the quota for one request that creates, grows or deletes topics, by a manager of mutations."""
        make = self._manager.strict_quota if strict else self._manager.permissive_quota
        return make(self.user, self.client_id)

    @property
    def quota_type(self) -> QuotaType:
        """The kind of quota."""
        return self._manager.quota_type

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
        """The tags of the client's bucket, or None before any configuration."""
        bucket = self._resolve()
        return None if bucket is None else bucket_tags(bucket.name)

    @property
    def max_value_in_window(self) -> float | None:
        """The most that fits into the whole windows without a violation, or None if it is unlimited."""
        return self._manager.max_value(self.bound)

    def would_throttle_ms(self, value: float, now_ms: int) -> int:
        """Return the throttle time in ms that recording a value would give, without recording it."""
        bucket = self._resolve()
        if bucket is None:
            return 0
        if isinstance(bucket, RateBucket | SmoothBucket):
            return bucket.would_throttle_ms(value, now_ms)
        # Of mutations, which are asked for by the decision API alone.
        return copy.deepcopy(bucket).record_and_throttle_ms(value, now_ms)

    def peek(self, now_ms: int) -> float | None:
        """Return the rate per second (or the tokens left) of the bucket, or None before any configuration."""
        bucket = self._resolve()
        return None if bucket is None else bucket.peek(now_ms)

    def _resolve(self) -> QuotaBucket | None:
        """Return the bucket with its current bound, looked up after changes only, or None without any quota."""
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
