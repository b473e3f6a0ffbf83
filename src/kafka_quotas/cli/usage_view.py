"""Rates and throttle times in words and as JSON."""

from kafka_quotas.cli.json_text import Json
from kafka_quotas.cli.quantity import in_words
from kafka_quotas.core.entity import shown_name
from kafka_quotas.core.quota_key import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    QUOTA_KEYS,
    REQUEST_PERCENTAGE,
    Unit,
)
from kafka_quotas.core.units import format_bytes, format_number
from kafka_quotas.core.usage import Usage, share_used

_SHORT = {
    PRODUCER_BYTE_RATE.name: "produce",
    CONSUMER_BYTE_RATE.name: "fetch",
    REQUEST_PERCENTAGE.name: "request",
    CONTROLLER_MUTATION_RATE.name: "mutation",
}


def short_key(key: str) -> str:
    """A quota key by what it limits, for tables that have many columns."""
    return _SHORT.get(key, key)


def limit_text(key: str, limit: float | None) -> str:
    """A limit as it is read in a column; an explicit one without end is unlimited like any other."""
    return "unlimited" if limit is None or limit >= QUOTA_KEYS[key].unlimited else in_words(key, limit)


def rate_text(key: str, rate: float) -> str:
    """A measured rate as it is read: `10.49 MB/s`, `12.3%`, `4.1/s`."""
    if QUOTA_KEYS[key].unit is Unit.BYTES_PER_SECOND:
        return f"{format_bytes(rate)}/s"
    return in_words(key, float(f"{rate:.3g}"))


def share_text(share: float | None) -> str:
    """A part of a limit as it is read: `87%`; empty where there is none."""
    return "" if share is None else f"{share * 100:.0f}%"


def throttle_text(throttle_ms: float | None) -> str:
    """A throttle time as it is read: `1200 ms`; empty where it is not told."""
    return "" if throttle_ms is None else f"{format_number(round(throttle_ms))} ms"


def client_text(user: str, client_id: str) -> str:
    """A bucket's clients in words."""
    parts = [f"user {shown_name(user)}"] if user else []
    parts += [f"client-id {shown_name(client_id)}"] if client_id else []
    return ", ".join(parts)


def usage_data(usage: Usage, limit: float | None) -> dict[str, Json]:
    """The figures of one broker as JSON."""
    return {
        "broker": usage.broker,
        "observed": usage.observed,
        "share": share_used(usage.observed, limit),
        "throttle_ms": usage.throttle_ms,
    }
