"""Who was throttled: counts per bucket, and what is said about it.

Invariants: everything only grows, within `MAX_BUCKETS` buckets, so that no client can make it grow without end.
"""

from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.quota_manager import Limiter, QuotaType
from kafka_quotas.enforcement.notice import Notice, Notify, Severity

MAX_BUCKETS: Final = 10_000
"""How many buckets are told apart; throttles of others are counted under `OTHERS`."""
OTHERS: Final = ("", "(others)")


@dataclass(slots=True)
class ThrottleCount:
    """How often and how long in all (milliseconds) somebody was throttled."""

    times: int = 0
    total_ms: int = 0

    def add(self, throttle_ms: int) -> None:
        """Nothing; one more throttle time is counted."""
        self.times += 1
        self.total_ms += throttle_ms


class Ledger:
    """Throttle times by quota type and bucket (Kafka's tags: sanitized user, client-id)."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self.throttles: dict[tuple[QuotaType, tuple[str, str]], ThrottleCount] = {}
        """Throttle times that this daemon set."""
        self.upstream_throttles: dict[tuple[QuotaType, tuple[str, str]], ThrottleCount] = {}
        """Throttle times that the upstream set for clients that have a limit here as well."""
        self.shadow_throttles: dict[tuple[QuotaType, tuple[str, str]], ThrottleCount] = {}
        """Throttle times that would have been set for clients in shadow mode."""
        self.refusals: dict[tuple[QuotaType, tuple[str, str]], ThrottleCount] = {}
        """Throttle times in place of which an error was given."""

    def throttled(self, quota_type: QuotaType, limiter: Limiter, throttle_ms: int, now_ms: int) -> None:
        """Nothing; a throttle time is counted, and the first of a bucket is said."""
        limiter.throttled(throttle_ms, now_ms)
        if self._count(self.throttles, quota_type, limiter, throttle_ms):
            self._say("client throttled", Severity.INFO, quota_type, limiter, throttle_ms)

    def shadowed(self, quota_type: QuotaType, limiter: Limiter, throttle_ms: int) -> None:
        """Nothing; a throttle time that nobody waits for is counted, and the first of a bucket is said."""
        if self._count(self.shadow_throttles, quota_type, limiter, throttle_ms):
            self._say("client would be throttled", Severity.INFO, quota_type, limiter, throttle_ms)

    def refused(self, limiter: Limiter, throttle_ms: int) -> None:
        """Nothing; a refused request is counted, and the first of a bucket is said."""
        if self._count(self.refusals, limiter.quota_type, limiter, throttle_ms):
            self._say("client refused", Severity.INFO, limiter.quota_type, limiter, throttle_ms)

    def throttled_upstream(self, quota_type: QuotaType, limiter: Limiter, throttle_ms: int) -> None:
        """Nothing; a throttle time of the upstream is counted, and the first of a bucket is said."""
        if self._count(self.upstream_throttles, quota_type, limiter, throttle_ms):
            self._say(
                "upstream throttles a client that is limited here as well",
                Severity.WARNING,
                quota_type,
                limiter,
                throttle_ms,
            )

    def _count(
        self,
        counts: dict[tuple[QuotaType, tuple[str, str]], ThrottleCount],
        quota_type: QuotaType,
        limiter: Limiter,
        throttle_ms: int,
    ) -> bool:
        """Whether this is the first throttle time of its bucket."""
        key = (quota_type, limiter.bucket or OTHERS)
        if key not in counts and len(counts) >= MAX_BUCKETS:
            key = (quota_type, OTHERS)
        first = key not in counts
        counts.setdefault(key, ThrottleCount()).add(throttle_ms)
        return first

    def _say(self, event: str, severity: Severity, quota_type: QuotaType, limiter: Limiter, throttle_ms: int) -> None:
        fields: dict[str, str | float] = {
            "quota": quota_type.key.name,
            "entity": str(limiter.entity),
            "limit": limiter.bound or 0,
            "user": limiter.user,
            "client_id": limiter.client_id,
            "throttle_ms": throttle_ms,
        }
        if quota_type is QuotaType.REQUEST:
            fields["estimated"] = "yes"
        self._notify(Notice(event=event, severity=severity, fields=fields))
