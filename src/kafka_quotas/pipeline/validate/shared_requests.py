"""The throttling that other quotas may add to a bucket's requests.

Request time is charged for all of them.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Final

from kafka_quotas.core.quotas.quota_manager import QuotaType

_ANY: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """The number of throttled requests, and the sum of their throttle times."""

    requests: int = 0
    total_ms: int = 0

    def __add__(self, other: "Throttled") -> "Throttled":
        """Add both figures."""
        return Throttled(requests=self.requests + other.requests, total_ms=self.total_ms + other.total_ms)


_NONE: Final = Throttled()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedBucket:
    """A bucket with a limit, and the most that its quota may have added."""

    cluster: str
    broker_id: int
    quota_type: QuotaType
    user: str | None
    """User, None where requests of all users are in the bucket."""
    client_id: str | None
    """Client-id, None where requests of all client-ids are in the bucket."""
    at_most: Throttled = _NONE


class SharedRequests:
    """Limited buckets by the requests that they may share with others."""

    def __init__(self, buckets: Iterable[LimitedBucket]) -> None:
        self._found: dict[object, list[Throttled]] = defaultdict(list)
        for each in buckets:
            for user, client_id in product((each.user, _ANY), (each.client_id, _ANY)):
                self._found[(*_place(each), user, client_id)].append(each.at_most)

    def of(self, bucket: LimitedBucket) -> list[Throttled]:
        """Return the most that each other quota may add to requests of the bucket, empty where there is none."""
        cluster, broker_id, is_request = _place(bucket)
        users = (_ANY,) if bucket.user is None else (bucket.user, None)
        client_ids = (_ANY,) if bucket.client_id is None else (bucket.client_id, None)
        return [
            added
            for user, client_id in product(users, client_ids)
            for added in self._found.get((cluster, broker_id, not is_request, user, client_id), ())
        ]


def _place(bucket: LimitedBucket) -> tuple[str, int, bool]:
    return bucket.cluster, bucket.broker_id, bucket.quota_type is QuotaType.REQUEST
