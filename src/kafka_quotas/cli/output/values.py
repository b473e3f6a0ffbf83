"""Values for display and for JSON: rates, throttle times, stored values, changes."""

from collections.abc import Iterable, Sequence

from kafka_quotas.cli.output.json_text import Json
from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.model.entity import ENTITY_TYPES, THRESHOLD_TYPES, Entity, shown_name
from kafka_quotas.core.model.quota_key import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    QUOTA_KEYS,
    REQUEST_PERCENTAGE,
    Unit,
)
from kafka_quotas.core.model.threshold import STORED_KEYS, is_threshold_entity
from kafka_quotas.core.model.units import format_bytes, format_number, format_quota_value
from kafka_quotas.core.resolution.usage import Usage, share_used


def duration_text(microseconds: float) -> str:
    """Format a duration, with three digits at most below 1000 s: `820 us`, `12.3 ms`, `4.56 s`, `49950 s`."""
    if microseconds >= 1e9:
        return f"{microseconds / 1e6:.0f} s"
    for scale, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds:.0f} us"


def plain(key_name: str, value: float) -> int | float:
    """Return a value as the number of Kafka's own type.

    The double nearest to the largest LONG is one too large.
    """
    key = STORED_KEYS.get(key_name)
    return key.unlimited if key is not None and value == float(key.unlimited) else value


def in_words(key_name: str, value: float) -> str:
    """Format a value for display beside its key: `10.49 MB/s`, `50%`, `5/s`, `unlimited (explicit)`."""
    key = STORED_KEYS.get(key_name)
    if key is None:
        return format_number(value)
    if value >= key.unlimited:
        return format_quota_value(key, value)
    if key.unit is Unit.BYTES_PER_SECOND:
        return f"{format_bytes(value)}/s"
    return format_number(value) + ("%" if key.unit is Unit.PERCENT else "/s")


def told_value(key: str, value: float | None) -> str:
    """Format a value, `not set` for None."""
    return "not set" if value is None else in_words(key, value)


def plain_value(key: str, value: float | None) -> int | float | None:
    """Return a value as a plain number."""
    return None if value is None else plain(key, value)


def change_document(change: PlannedChange) -> dict[str, Json]:
    """Return a change as JSON shows it."""
    return {
        "entity": change.entity.to_mapping(),
        "key": change.key,
        "old": plain_value(change.key, change.old),
        "new": plain_value(change.key, change.new),
    }


def record_kinds(entities: Iterable[Entity]) -> Sequence[str]:
    """Return the entity types of Kafka's quotas, and those of thresholds if any entity has one."""
    return (*ENTITY_TYPES, *THRESHOLD_TYPES) if any(map(is_threshold_entity, entities)) else ENTITY_TYPES


_SHORT = {
    PRODUCER_BYTE_RATE.name: "produce",
    CONSUMER_BYTE_RATE.name: "fetch",
    REQUEST_PERCENTAGE.name: "request",
    CONTROLLER_MUTATION_RATE.name: "mutation",
}


def short_key(key: str) -> str:
    """Return a quota key by what it limits, for tables that have many columns."""
    return _SHORT.get(key, key)


def limit_text(key: str, limit: float | None) -> str:
    """Format a limit for a column.

    A stored limit of Kafka's "unlimited" reads like no limit.
    """
    return "unlimited" if limit is None or limit >= QUOTA_KEYS[key].unlimited else in_words(key, limit)


def rate_text(key: str, rate: float) -> str:
    """Format a measured rate: `10.49 MB/s`, `12.3%`, `4.1/s`."""
    if QUOTA_KEYS[key].unit is Unit.BYTES_PER_SECOND:
        return f"{format_bytes(rate)}/s"
    return in_words(key, float(f"{rate:.3g}"))


def share_text(share: float | None) -> str:
    """Format a share of a limit, such as `87%`, None as an empty text."""
    return "" if share is None else f"{share * 100:.0f}%"


def throttle_text(throttle_ms: float | None) -> str:
    """Format a throttle time, such as `1200 ms`, None as an empty text."""
    return "" if throttle_ms is None else f"{format_number(round(throttle_ms))} ms"


def client_text(user: str, client_id: str) -> str:
    """Return a bucket's clients in words."""
    parts = [f"user {shown_name(user)}"] if user else []
    parts += [f"client-id {shown_name(client_id)}"] if client_id else []
    return ", ".join(parts)


def usage_data(usage: Usage, limit: float | None) -> dict[str, Json]:
    """Return the figures of one broker as JSON."""
    return {
        "broker": usage.broker,
        "observed": usage.observed,
        "share": share_used(usage.observed, limit),
        "throttle_ms": usage.throttle_ms,
    }
