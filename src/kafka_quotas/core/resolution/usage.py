"""The observed usage of quota buckets at brokers, and whether their clients are throttled.

Invariants: names are raw. `""` means any user or client-id, as in Kafka's tags. Rates are in the unit of the quota key
and over the broker's own window. An unknown figure is absent, not zero.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from kafka_quotas.core.described import Described
from kafka_quotas.core.model.quota_key import MEASURED_KEYS, REQUEST_PERCENTAGE, ValueType
from kafka_quotas.core.resolution.effective import EffectiveQuota
from kafka_quotas.core.resolution.quota_resolver import Bucket, bucket_tags

if TYPE_CHECKING:
    from kafka_quotas.core.model.quota_window import QuotaWindow, RecentThrottling

HEADROOM: Final = 0.2
"""The part of a limit that a proposed one has more than is needed, as a demand is never quite the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The usage of one bucket at one broker."""

    broker: str
    key: str
    user: Annotated[str, Described(text="empty where the limit is not per user")]
    """The raw name, or the mark of a group's bucket (`GROUP_MARKS`), whose name is then the client-id."""
    client_id: Annotated[str, Described(text="empty where the limit is not per client-id")]
    observed: Annotated[float, Described(text="the rate, in the unit of the key")]
    throttle_ms: Annotated[float | None, Described(text="null where it is not known")] = None
    limit: float | None = None
    """The limit; None if the broker does not report it."""
    last_minute: Annotated["RecentThrottling | None", Described(text="null where only averages are known")] = None
    is_waiting: bool | None = None
    """Whether a client waits at this instant; None if the broker does not report it."""

    @property
    def tags(self) -> tuple[str, str]:
        """Kafka's tags of the bucket: the sanitized user and the client-id."""
        return bucket_tags(self.bucket)

    @property
    def bucket(self) -> Bucket:
        """The bucket by its raw names."""
        return self.user, self.client_id


@dataclass(frozen=True, slots=True)
class BrokerUsage:
    """The usage of a bucket at a broker beside the limit of the bucket."""

    DOCUMENT: ClassVar = "usage.broker usage.observed share usage.throttle_ms usage.last_minute"
    usage: Usage
    limit: float | None

    @property
    def share(self) -> Annotated[float | None, Described(text="of the limit; null without a limit")]:
        """The used part of the limit."""
        return share_used(self.usage.observed, self.limit)


def usage_under(quota: EffectiveQuota, usages: Iterable[Usage]) -> tuple[Usage, ...]:
    """Return the usage of an effective quota's bucket, one per broker, sorted by broker."""
    found = [usage for usage in usages if usage.key == quota.key.name and usage.tags == quota.bucket]
    return tuple(sorted(found, key=lambda usage: usage.broker))


def share_used(observed: float, limit: float | None) -> float | None:
    """Return the used part of a limit, 1 for all of it, or None without a limit or with `unlimited`."""
    if limit is None or limit <= 0 or limit >= float(2**53):
        return None
    return observed / limit


def is_held_back(usage: Usage, limit: float | None) -> bool:
    """Return whether the bucket's clients were throttled lately, by the most exact figure there is."""
    if limit is None:
        return False
    if usage.last_minute is not None and usage.last_minute.times:
        return True
    if usage.throttle_ms is not None:
        return usage.throttle_ms > 0
    return usage.observed > limit


def ending_limit(key: str, limit: float, usages: Iterable[Usage], *, window: "QuotaWindow") -> float | None:
    """Return the smallest limit that would throttle none of these buckets now.

    A throttle time X over a window W comes from the rate `limit * (1 + X / W)`. That of requests is bounded, so their
    rate is more exact. Whole-number keys are rounded up.

    Returns:
        The limit; None if no bucket is throttled.
    """
    held = [usage for usage in usages if is_held_back(usage, limit)]
    if not held:
        return None
    window_ms = max(1, window.samples - 1) * window.window_s * 1000
    needed = max(usage.observed for usage in held)
    if key != REQUEST_PERCENTAGE.name:
        needed = max(needed, *(limit * (1 + (usage.throttle_ms or 0.0) / window_ms) for usage in held))
    known = MEASURED_KEYS[key]
    return needed if known.value_type is ValueType.DOUBLE else float(math.ceil(needed))


def with_headroom(limit: float) -> float:
    """Return a limit with a fifth more, rounded up to two digits, as a value to set."""
    wanted = limit * (1 + HEADROOM)
    if wanted <= 0:
        return wanted
    step = 10.0 ** (math.floor(math.log10(wanted)) - 1)
    return float(f"{math.ceil(wanted / step - 1e-9) * step:.12g}")
