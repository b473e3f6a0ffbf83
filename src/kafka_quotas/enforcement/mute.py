"""A client that is held for a throttle time."""

from dataclasses import dataclass

from kafka_quotas.core.quota_manager import Limiter, QuotaType


@dataclass(frozen=True, slots=True, kw_only=True)
class Mute:
    """Whose quota holds a connection (`limiter`), for which traffic, and from when to when (ms)."""

    quota_type: QuotaType
    limiter: Limiter
    since_ms: int
    until_ms: int
