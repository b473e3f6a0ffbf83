"""The quota of one request that creates, grows or deletes topics: strict or permissive.

A strict quota checks before it records, and refuses while the bucket does. A permissive one always records. Either
reports how long the client must wait, counted down from the time of the check.

**Source:** KIP-599; `StrictControllerMutationQuota`, `PermissiveControllerMutationQuota` of Kafka 4.0.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from kafka_quotas.core.metrics.throttle_time import narrow_to_int32, narrow_to_int64
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.bucket_pool import BucketOwner
from kafka_quotas.core.quotas.mutation_bucket import AdmissionBucket


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRefusal:
    """A refused mutation."""

    throttle_ms: int
    """The time to wait."""
    until_ms: int
    """The end of the wait."""
    limit: float | None
    """The limit in partitions per second; None if unlimited."""
    entity: Entity | None
    """The entity of the limit; None if unlimited."""


class MutationQuota(ABC):
    """The quota of one request."""

    kind: ClassVar[str]
    """`strict`, `permissive` or `unbounded`."""

    @abstractmethod
    def record(self, permits: float, now_ms: int) -> MutationRefusal | None:
        """Record the mutations (partitions) and return None, or return the refusal."""

    @abstractmethod
    def throttle_ms(self, now_ms: int) -> int:
        """Return the rest of the last throttle time in ms."""


class UnboundedMutationQuota(MutationQuota):
    """The quota of a request before any quota was configured, which admits without recording."""

    kind = "unbounded"

    def record(self, permits: float, now_ms: int) -> None:
        """Admit everything."""

    def throttle_ms(self, now_ms: int) -> int:  # noqa: ARG002 - one signature for every kind
        """Return 0."""
        return 0


class _BucketQuota(MutationQuota):
    """A quota that keeps its bucket through every configuration, with the current bound."""

    def __init__(self, owner: BucketOwner, bucket: AdmissionBucket) -> None:
        self._owner = owner
        self._bucket = bucket
        self._last_throttle_ms = 0
        self._last_recorded_ms = 0

    def throttle_ms(self, now_ms: int) -> int:
        """Return the rest of the last throttle time in ms, which may be long over."""
        waited_ms = now_ms - self._last_recorded_ms
        return narrow_to_int32(max(0, narrow_to_int64(self._last_throttle_ms - waited_ms)))

    def _refused(self, now_ms: int) -> bool:
        """Return whether the bucket refuses requests, and keep the throttle time if it does."""
        refused_ms = self._bucket.refused_ms(now_ms)
        if refused_ms is None:
            return False
        self._last_throttle_ms = refused_ms
        self._last_recorded_ms = now_ms
        return True


class StrictMutationQuota(_BucketQuota):
    """A quota that refuses while its bucket does, for request versions that can report a refusal."""

    kind = "strict"

    def record(self, permits: float, now_ms: int) -> MutationRefusal | None:
        """Record the mutations (partitions) and return None, or return the refusal."""
        self._owner.renewed(self._bucket)
        if not self._refused(now_ms):
            self._bucket.record(permits, now_ms)
            return None
        match = self._owner.match_of(self._bucket)
        return MutationRefusal(
            throttle_ms=narrow_to_int32(self._last_throttle_ms),
            until_ms=now_ms + self._last_throttle_ms,
            limit=match.limit if match else None,
            entity=match.entity if match else None,
        )


class PermissiveMutationQuota(_BucketQuota):
    """A quota that admits and records everything, for request versions that can't report a refusal."""

    kind = "permissive"

    def record(self, permits: float, now_ms: int) -> None:
        """Record the mutations (partitions), and keep the throttle time of a debt."""
        self._owner.renewed(self._bucket)
        self._bucket.record(permits, now_ms)
        self._refused(now_ms)
