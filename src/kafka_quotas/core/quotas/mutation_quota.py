"""The quota of one request that creates, grows or deletes topics: strict or permissive.

A strict quota checks before it records, and refuses while the bucket does; a permissive one always records.
Either tells how long the client is to wait, counted down from the moment the bucket was found to refuse.
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
    """A refused mutation: how long to wait (ms) and until when, under which limit of which entity (None: unlimited)."""

    throttle_ms: int
    until_ms: int
    limit: float | None
    entity: Entity | None


class MutationQuota(ABC):
    """The quota of one request."""

    kind: ClassVar[str]
    """`strict`, `permissive` or `unbounded`."""

    @property
    def is_exceeded(self) -> bool:
        """Whether the last refusal of this object had a throttle time above 0 ms; later successes do not change it."""
        return False

    @abstractmethod
    def record(self, permits: float, now_ms: int) -> MutationRefusal | None:
        """None where the mutations (partitions) are admitted, else the refusal."""

    @abstractmethod
    def throttle_ms(self, now_ms: int) -> int:
        """What is left of the last throttle time, in ms."""


class UnboundedMutationQuota(MutationQuota):
    """The quota of a request while no such quota was ever configured: everything is admitted, nothing recorded."""

    kind = "unbounded"

    def record(self, permits: float, now_ms: int) -> None:
        """None: admitted."""

    def throttle_ms(self, now_ms: int) -> int:  # noqa: ARG002 - one signature for every kind
        """0: nothing to wait for."""
        return 0


class _BucketQuota(MutationQuota):
    """A quota on one bucket, which it keeps whatever is configured later; the bound follows the configuration."""

    def __init__(self, owner: BucketOwner, bucket: AdmissionBucket) -> None:
        self._owner = owner
        self._bucket = bucket
        self._last_throttle_ms = 0
        self._last_recorded_ms = 0

    def throttle_ms(self, now_ms: int) -> int:
        """What is left of the last throttle time, in ms: it may be asked for long after the refusal."""
        waited_ms = now_ms - self._last_recorded_ms
        return narrow_to_int32(max(0, narrow_to_int64(self._last_throttle_ms - waited_ms)))

    def _refused(self, now_ms: int) -> bool:
        """Whether the bucket refuses requests; the throttle time is remembered then."""
        refused_ms = self._bucket.refused_ms(now_ms)
        if refused_ms is None:
            return False
        self._last_throttle_ms = refused_ms
        self._last_recorded_ms = now_ms
        return True


class StrictMutationQuota(_BucketQuota):
    """A quota that refuses while its bucket does, for requests whose version can say so."""

    kind = "strict"

    @property
    def is_exceeded(self) -> bool:
        """Whether the last refusal of this object had a throttle time above 0 ms; later successes do not change it."""
        return self._last_throttle_ms > 0

    def record(self, permits: float, now_ms: int) -> MutationRefusal | None:
        """None where the mutations (partitions) are admitted and recorded, else the refusal."""
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
    """A quota that admits and records everything, for requests whose version can't tell a refusal."""

    kind = "permissive"

    def record(self, permits: float, now_ms: int) -> None:
        """None: admitted; a debt that results is remembered as throttle time."""
        self._owner.renewed(self._bucket)
        self._bucket.record(permits, now_ms)
        self._refused(now_ms)
