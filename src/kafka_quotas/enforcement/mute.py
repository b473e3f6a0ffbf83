"""A client that is held for a throttle time."""

from dataclasses import dataclass

from kafka_quotas.core.quota_manager import Limiter, QuotaType


@dataclass(frozen=True, slots=True, kw_only=True)
class Mute:
    """Whose quota holds a connection (`limiter`), and from when to when (ms)."""

    limiter: Limiter
    since_ms: int
    until_ms: int

    @property
    def quota_type(self) -> QuotaType:
        """Which traffic the quota is for."""
        return self.limiter.quota_type
