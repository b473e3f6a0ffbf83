"""The keys of topic thresholds, which no Kafka knows: of a topic, and of a broker for all topics together.

Invariants: they are told apart from Kafka's own keys everywhere, for only the local store and the daemon's policy hold
them.
**Source:** "Broker-side quota V1".
"""

from typing import Final

from kafka_quotas.core.entity import BROKER, TOPIC, Entity
from kafka_quotas.core.quota_key import QUOTA_KEYS, QuotaKey, Unit, ValueType, suggest_key

TOPIC_THRESHOLD: Final = QuotaKey(
    name="bytes.in.per.sec.threshold",
    value_type=ValueType.LONG,
    unit=Unit.BYTES_PER_SECOND,
    for_ip=False,
    since="(none)",
    summary="bytes per second that a topic may take in on one broker once the broker takes in more than its total",
    misspellings=("bytes.in.threshold", "bytes_in_per_sec_threshold", "bytes.in.per.second.threshold"),
)
TOTAL_THRESHOLD: Final = QuotaKey(
    name="total.bytes.in.per.sec.threshold",
    value_type=ValueType.LONG,
    unit=Unit.BYTES_PER_SECOND,
    for_ip=False,
    since="(none)",
    summary="bytes per second that a broker takes in for all topics before it rejects data of topics over theirs",
    misspellings=("total.bytes.in.threshold", "total_bytes_in_per_sec_threshold"),
)
THRESHOLD_KEYS: Final[dict[str, QuotaKey]] = {key.name: key for key in (TOPIC_THRESHOLD, TOTAL_THRESHOLD)}
"""The keys by name, in the order in which they are listed."""
KEY_OF_KIND: Final = {TOPIC: TOPIC_THRESHOLD, BROKER: TOTAL_THRESHOLD}
"""The one key that an entity of either kind takes."""
STORED_KEYS: Final[dict[str, QuotaKey]] = {**QUOTA_KEYS, **THRESHOLD_KEYS}
"""Every key that a store of this project may hold."""


def suggest_stored_key(name: str) -> QuotaKey | None:
    """The key that `name` probably means, of quotas and thresholds alike; else None."""
    folded = name.strip().lower()
    for key in THRESHOLD_KEYS.values():
        if folded == key.name or folded in key.misspellings:
            return key
    return suggest_key(name)


def is_threshold_entity(entity: Entity) -> bool:
    """Whether an entity is one that thresholds are set on: a topic or a broker."""
    return any(kind in KEY_OF_KIND for kind, _ in entity.parts)
