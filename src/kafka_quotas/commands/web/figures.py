"""Names and figures as the pages show them."""

import math
from typing import Final

from kafka_quotas.core.model.entity import shown_name
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.model.quota_window import RecentThrottling
from kafka_quotas.core.model.value_format import (
    format_duration_ms,
    format_duration_s,
    format_limit,
    format_rate,
    format_share,
)
from kafka_quotas.core.resolution.usage import Usage

_LONG_MS: Final = 120_000
_MOST_LETTERS: Final = 300
"""Longest name that a page gets: a client may call itself anything of up to 32 kB."""


def name_text(name: str) -> str:
    """Return a name as text for people, shortened where it is very long, an empty one as it is."""
    if not name:
        return ""
    return shortened(shown_name(name))


def shortened(text: str) -> str:
    """Return a text, such as that of an entity, without the rest of a very long name."""
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}... ({len(text):,} letters)"


def rate_text(key: str, rate: float) -> str:
    """Return a measured rate in the unit of its quota key."""
    return format_rate(key, rate) if key in QUOTA_KEYS else f"{rate:.3g}/s"


def limit_text(key: str, limit: float | None) -> str:
    """Return a limit in the unit of its quota key."""
    if key in QUOTA_KEYS:
        return format_limit(key, limit)
    return "unlimited" if limit is None else f"{limit:g}/s"


def finite(value: float | None) -> float | None:
    """Return a figure that JSON can hold: None for one that is not a number or has no bound."""
    return value if value is not None and math.isfinite(value) else None


def duration_text(total_ms: float) -> str:
    """Return a length of time with at most three digits, from two minutes on in larger units."""
    if total_ms >= _LONG_MS:
        return format_duration_s(round(total_ms / 1000))
    return format_duration_ms(float(f"{total_ms:.3g}"))


def minute_text(usage: Usage) -> str:
    """Return how often and how long clients of a bucket were throttled in the last minute."""
    recent: RecentThrottling | None = usage.last_minute
    if recent is None:
        return f"for {duration_text(usage.throttle_ms)}" if usage.throttle_ms else ""
    if not recent.times:
        return ""
    return f"{recent.times:,}x, {duration_text(recent.total_ms)}, {format_share(recent.share)} of the minute"
