"""The buckets that get series of their own: those of named clients, and those that use most of their limit.

Invariants: the number of series is bounded, whatever clients call themselves.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE
from kafka_quotas.core.model.sanitizer import sanitize
from kafka_quotas.enforcement.telemetry.status import BucketRow, share_used

TOP: Final = 50
"""Default number of buckets shown beside the named ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsChoice:
    """The choice of buckets that get series of their own."""

    top: int = TOP
    """Number of buckets by the share of their limit that is used."""
    users: frozenset[str] = frozenset()
    """Users all of whose buckets are shown."""
    client_ids: frozenset[str] = frozenset()
    """Client-ids all of whose buckets are shown."""

    def chosen(self, buckets: Iterable[BucketRow]) -> list[BucketRow]:
        """Return the buckets to show, in the order of their names."""
        rows = list(buckets)
        tags = {sanitize(user) for user in self.users}
        named: list[BucketRow] = []
        others: list[BucketRow] = []
        for row in rows:
            (named if row.user in tags or row.client_id in self.client_ids else others).append(row)
        top = sorted(others, key=lambda row: -_share(row))[: self.top]
        return sorted((*named, *top), key=lambda row: (row.user, row.client_id, row.quota, row.broker, row.mode))


def _share(row: BucketRow) -> float:
    """Return the part of a limit that is used."""
    return share_used(row.observed, row.limit, of_tokens=row.quota == CONTROLLER_MUTATION_RATE.name)
