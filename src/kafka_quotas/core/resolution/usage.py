"""What buckets of quotas were seen doing at brokers, and what that says about the clients behind them.

Invariants: names are raw, `""` says that a bucket is not told apart by user or client-id, as Kafka's tags do; rates are
in the unit of the quota key and are those of the broker's own window; a gap is not zero: what is not known is absent.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from kafka_quotas.core.model.quota_key import QUOTA_KEYS, REQUEST_PERCENTAGE, ValueType
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.model.sanitizer import sanitize
from kafka_quotas.core.resolution.effective import EffectiveQuota


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One bucket at one broker: its rate, its throttle time (ms) and its limit; the latter two None where not told."""

    broker: str
    key: str
    user: str
    client_id: str
    observed: float
    throttle_ms: float | None = None
    limit: float | None = None

    @property
    def tags(self) -> tuple[str, str]:
        """Kafka's tags of the bucket: the sanitized user and the client-id."""
        return sanitize(self.user), self.client_id


def usage_under(quota: EffectiveQuota, usages: Iterable[Usage]) -> tuple[Usage, ...]:
    """What was seen of the bucket that an answer about a client names, one per broker, sorted by broker."""
    found = [usage for usage in usages if usage.key == quota.key.name and usage.tags == quota.bucket]
    return tuple(sorted(found, key=lambda usage: usage.broker))


def share_used(observed: float, limit: float | None) -> float | None:
    """The part of a limit that is used, 1 for all of it; None without a limit, or with the explicit unlimited."""
    if limit is None or limit <= 0 or limit >= float(2**53):
        return None
    return observed / limit


def is_held_back(usage: Usage, limit: float | None) -> bool:
    """Whether the bucket's clients are throttled: by the throttle time, or where that is not told by the rate."""
    if limit is None:
        return False
    if usage.throttle_ms is not None:
        return usage.throttle_ms > 0
    return usage.observed > limit


def ending_limit(
    key: str, limit: float, usages: Iterable[Usage], *, window: QuotaWindow = DEFAULT_WINDOW
) -> float | None:
    """The smallest limit with which none of these buckets would be throttled now; None where none is.

    A throttle time X over a window W comes from the rate `limit * (1 + X / W)`. That of requests is bounded, so it says
    less than their rate. Whole-number keys are rounded up.
    """
    held = [usage for usage in usages if is_held_back(usage, limit)]
    if not held:
        return None
    window_ms = max(1, window.samples - 1) * window.window_s * 1000
    needed = max(usage.observed for usage in held)
    if key != REQUEST_PERCENTAGE.name:
        needed = max(needed, *(limit * (1 + (usage.throttle_ms or 0.0) / window_ms) for usage in held))
    known = QUOTA_KEYS[key]
    return needed if known.value_type is ValueType.DOUBLE else float(math.ceil(needed))
