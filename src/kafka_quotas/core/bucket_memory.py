"""What a bucket has to remember when the process that keeps it ends, so that a restart forgives nobody anything.

Invariants: plain figures; a bucket of the same kind and window that is given its memory back goes on as if nothing had
happened, a shift of all times (a clock that was set back meanwhile) apart.
"""

from dataclasses import dataclass

from kafka_quotas.core.quota_bucket import QuotaBucket
from kafka_quotas.core.resolution import Bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketMemory:
    """One bucket: whose it is, when it was last recorded to (ms), and its figures, which only its kind understands."""

    name: Bucket
    kind: str
    recorded_ms: int
    figures: tuple[float, ...]


def memory_of(bucket: QuotaBucket) -> BucketMemory | None:
    """Return what is to be remembered of a bucket, None where nothing was recorded; asking changes nothing."""
    if bucket.recorded_ms is None:
        return None
    return BucketMemory(
        name=bucket.name, kind=type(bucket).__name__, recorded_ms=bucket.recorded_ms, figures=bucket.memory
    )
