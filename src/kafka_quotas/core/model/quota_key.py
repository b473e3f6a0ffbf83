"""The quota keys and types: one table for parsing, validation, help texts and documentation.

Invariants: names are Kafka's own (4.x). A key is valid on the entity kinds of its row and on no other. The batch and
fetch sizes are the clients' defaults: a quota far below them delays or starves clients.

**Source:** `ProducerConfig.BATCH_SIZE_CONFIG`, `ConsumerConfig.DEFAULT_MAX_PARTITION_FETCH_BYTES` of Kafka 4.0.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

BATCH_BYTES: Final = 16_384
"""A producer's batch.size."""
FETCH_BYTES: Final = 1_048_576
"""A consumer's default max.partition.fetch.bytes, close to a broker's message.max.bytes."""


LONG_MAX = 9223372036854775807
INT_MAX = 2147483647


class ValueType(Enum):
    """The type Kafka's configuration definition gives a quota key."""

    LONG = "LONG"
    INT = "INT"
    DOUBLE = "DOUBLE"


class Unit(Enum):
    """The units of the keys' values."""

    BYTES_PER_SECOND = "bytes/s"
    PERCENT = "% of one thread"
    PARTITIONS_PER_SECOND = "partitions/s"
    CONNECTIONS_PER_SECOND = "connections/s"
    REQUESTS_PER_SECOND = "requests/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaKey:
    """A quota key: its name, type and unit, the entities that take it, and the first Kafka that knows it."""

    name: str
    value_type: ValueType
    unit: Unit
    since: str
    summary: str
    for_ip: bool = False
    misspellings: tuple[str, ...] = ()

    @property
    def unlimited(self) -> int:
        """The largest value of the key, which means "no limit" (units of the key)."""
        return INT_MAX if self.value_type is ValueType.INT else LONG_MAX


PRODUCER_BYTE_RATE = QuotaKey(
    name="producer_byte_rate",
    value_type=ValueType.LONG,
    unit=Unit.BYTES_PER_SECOND,
    since="0.9",
    summary="bytes per second that may be produced to one broker",
    misspellings=("producer-byte-rate", "produce_byte_rate", "producer_byte_rate_limit", "quota.producer.default"),
)
CONSUMER_BYTE_RATE = QuotaKey(
    name="consumer_byte_rate",
    value_type=ValueType.LONG,
    unit=Unit.BYTES_PER_SECOND,
    since="0.9",
    summary="bytes per second that may be fetched from one broker",
    misspellings=("consumer-byte-rate", "consume_byte_rate", "fetch_byte_rate", "quota.consumer.default"),
)
REQUEST_PERCENTAGE = QuotaKey(
    name="request_percentage",
    value_type=ValueType.DOUBLE,
    unit=Unit.PERCENT,
    since="0.11",
    summary="share of one broker thread's time, in per cent",
    misspellings=("request-percentage", "request_time_percent", "request_rate", "request_percent"),
)
CONTROLLER_MUTATION_RATE = QuotaKey(
    name="controller_mutation_rate",
    value_type=ValueType.DOUBLE,
    unit=Unit.PARTITIONS_PER_SECOND,
    since="2.7",
    summary="partitions per second that may be created, added or deleted",
    misspellings=("controller_mutations_rate", "controller-mutation-rate", "controller_mutations_burst"),
)
CONNECTION_CREATION_RATE = QuotaKey(
    name="connection_creation_rate",
    value_type=ValueType.INT,
    unit=Unit.CONNECTIONS_PER_SECOND,
    for_ip=True,
    since="2.7",
    summary="connections per second that one address may open",
    misspellings=("connection-creation-rate", "connections_creation_rate", "max.connection.creation.rate"),
)

REQUEST_RATE = QuotaKey(
    name="request_rate",
    value_type=ValueType.DOUBLE,
    unit=Unit.REQUESTS_PER_SECOND,
    since="(none)",
    summary="requests per second to one broker; no broker knows it, the daemon counts it exactly",
)
"""A limit of the daemon alone: stores hold Kafka's keys, this one is in the daemon's policy file."""

QUOTA_KEYS: dict[str, QuotaKey] = {
    key.name: key
    for key in (
        PRODUCER_BYTE_RATE,
        CONSUMER_BYTE_RATE,
        REQUEST_PERCENTAGE,
        CONTROLLER_MUTATION_RATE,
        CONNECTION_CREATION_RATE,
    )
}
"""Every key of Kafka by name, in the order in which they are listed to a user."""
MEASURED_KEYS: dict[str, QuotaKey] = {**QUOTA_KEYS, REQUEST_RATE.name: REQUEST_RATE}
"""Every key that a bucket of a daemon may have."""
NEW_KEYS = tuple(key.name for key in QUOTA_KEYS.values() if key.since == "2.7")
"""The keys that came with Kafka 2.7; all others are older than any broker that quotas can be set for here."""


def suggest_key(name: str) -> QuotaKey | None:
    """Return the key that `name` probably means by a known misspelling or a close name, or None."""
    folded = name.strip().lower()
    for key in QUOTA_KEYS.values():
        if folded == key.name or folded in key.misspellings:
            return key
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistyped key pays for it

    close = get_close_matches(folded, list(QUOTA_KEYS), n=1, cutoff=0.7)
    return QUOTA_KEYS[close[0]] if close else None


class QuotaType(Enum):
    """The kinds of quotas, one per quota manager."""

    PRODUCE = "produce"
    FETCH = "fetch"
    REQUEST = "request"
    CONTROLLER_MUTATION = "controller_mutation"
    REQUEST_RATE = "request_rate"
    """Requests counted, which brokers don't limit."""

    @property
    def key(self) -> QuotaKey:
        """The quota key under which limits of this type are stored."""
        return _KEYS[self]


_KEYS = {
    QuotaType.PRODUCE: PRODUCER_BYTE_RATE,
    QuotaType.FETCH: CONSUMER_BYTE_RATE,
    QuotaType.REQUEST: REQUEST_PERCENTAGE,
    QuotaType.CONTROLLER_MUTATION: CONTROLLER_MUTATION_RATE,
    QuotaType.REQUEST_RATE: REQUEST_RATE,
}


class RateAlgorithm(Enum):
    """The algorithms of rates other than those of controller mutations."""

    WINDOW = "window"
    """Kafka's sliding window."""
    SMOOTH = "smooth"
    """A bucket of one second."""
