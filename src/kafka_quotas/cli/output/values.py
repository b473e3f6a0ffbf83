"""What listings show of entities, keys and changes, and values as plain numbers."""

from typing import TYPE_CHECKING

from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.model.entity import shown_name
from kafka_quotas.core.model.quota_key import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    STORED_KEYS,
)
from kafka_quotas.core.model.value_format import (
    format_duration_ms,
    format_quota,
    format_share,
    format_throttle_time,
)

if TYPE_CHECKING:
    from kafka_quotas.core.model.quota_window import RecentThrottling
    from kafka_quotas.core.resolution.usage import Usage


def plain_value(key_name: str, value: float | None) -> int | float | None:
    """Return a value as the number of Kafka's own type, None where it is not set.

    The double nearest to the largest LONG is one too large.
    """
    key = STORED_KEYS.get(key_name)
    return key.unlimited if key is not None and value == float(key.unlimited) else value


def change_cells(change: PlannedChange) -> tuple[str, str, str, str]:
    """Return a change as tables show it: the entity, the key, the old and the new value."""
    return (str(change.entity), change.key, format_quota(change.key, change.old), format_quota(change.key, change.new))


_SHORT = {
    PRODUCER_BYTE_RATE.name: "produce",
    CONSUMER_BYTE_RATE.name: "fetch",
    REQUEST_PERCENTAGE.name: "request",
    CONTROLLER_MUTATION_RATE.name: "mutation",
}


def short_key(key: str) -> str:
    """Return a quota key by what it limits, for tables that have many columns."""
    return _SHORT.get(key, key)


def client_text(user: str, client_id: str) -> str:
    """Return a bucket's clients in words."""
    parts = [f"user {shown_name(user)}"] if user else []
    parts += [f"client-id {shown_name(client_id)}"] if client_id else []
    return ", ".join(parts)


def throttled_text(usage: "Usage") -> str:
    """Return the throttling of the last minute, or else the throttle time, as text."""
    recent = usage.last_minute
    return format_throttle_time(usage.throttle_ms) if recent is None else last_minute_text(recent)


def last_minute_text(recent: "RecentThrottling") -> str:
    """Return the throttling of the last minute by number, sum and share: `36x 41 s, 68%`, or `never`."""
    if not recent.times:
        return "never"
    return f"{recent.times}x {format_duration_ms(float(f'{recent.total_ms:.3g}'))}, {format_share(recent.share)}"
