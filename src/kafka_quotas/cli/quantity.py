"""Stored values in words, beside the plain numbers."""

from kafka_quotas.core.quota_key import Unit
from kafka_quotas.core.threshold_key import STORED_KEYS
from kafka_quotas.core.units import format_bytes, format_number, format_quota_value


def plain(key_name: str, value: float) -> int | float:
    """A value as the number that Kafka's own type has; the double nearest to the largest LONG is one too large."""
    key = STORED_KEYS.get(key_name)
    return key.unlimited if key is not None and value == float(key.unlimited) else value


def in_words(key_name: str, value: float) -> str:
    """A value as it is read beside its key: `10.49 MB/s`, `50%`, `5/s`, `unlimited (explicit)`."""
    key = STORED_KEYS.get(key_name)
    if key is None:
        return format_number(value)
    if value >= key.unlimited:
        return format_quota_value(key, value)
    if key.unit is Unit.BYTES_PER_SECOND:
        return f"{format_bytes(value)}/s"
    return format_number(value) + ("%" if key.unit is Unit.PERCENT else "/s")
