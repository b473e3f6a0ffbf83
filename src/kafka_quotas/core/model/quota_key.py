"""The quota keys and types, and the thresholds on topics and brokers: one table for parsing, validation, help and docs.

Invariants: names are Kafka's own (4.x). A key is valid on the entity kinds of its row and on no other. The batch and
fetch sizes are the clients' defaults: a quota far below them delays or starves clients. No Kafka has thresholds: one is
of a topic, one of a broker for all its topics together, in bytes per second, and only the local store and the daemon's
policy hold them. Those of all topics never sum to more than the total of any broker, because any broker may lead any
topic.

**Source:** `ProducerConfig.BATCH_SIZE_CONFIG`, `ConsumerConfig.DEFAULT_MAX_PARTITION_FETCH_BYTES` of Kafka 4.0;
"Broker-side quota V1".
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.model.entity import ABSENT, BROKER, GROUP, THRESHOLD_TYPES, TOPIC, Entity

BATCH_BYTES: Final = 16_384
"""A producer's batch.size."""
FETCH_BYTES: Final = 1_048_576
"""A consumer's default max.partition.fetch.bytes, close to a broker's message.max.bytes."""


LONG_MAX = 9223372036854775807
UNLIMITED: Final = float(LONG_MAX)
"""The bound of a bucket without a limit, which no rate exceeds."""
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
NEW_KEYS = tuple(key.name for key in QUOTA_KEYS.values() if key.since == "2.7")
"""The keys that came with Kafka 2.7; all others are older than any broker that quotas can be set for here."""


def suggest_key(name: str, keys: Mapping[str, QuotaKey] = QUOTA_KEYS) -> QuotaKey | None:
    """Return the key that `name` probably means, or the one of `keys` by a known misspelling, or None."""
    folded = name.strip().lower()
    for key in keys.values():
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
    SMOOTH = "smooth"
    """A bucket of one second."""


TOPIC_THRESHOLD: Final = QuotaKey(
    name="bytes.in.per.sec.threshold",
    value_type=ValueType.LONG,
    unit=Unit.BYTES_PER_SECOND,
    since="(none)",
    summary="bytes per second that a topic may take in on one broker once the broker takes in more than its total",
    misspellings=("bytes.in.threshold", "bytes_in_per_sec_threshold", "bytes.in.per.second.threshold"),
)
TOTAL_THRESHOLD: Final = QuotaKey(
    name="total.bytes.in.per.sec.threshold",
    value_type=ValueType.LONG,
    unit=Unit.BYTES_PER_SECOND,
    since="(none)",
    summary="bytes per second that a broker takes in for all topics before it rejects data of topics over theirs",
    misspellings=("total.bytes.in.threshold", "total_bytes_in_per_sec_threshold"),
)
THRESHOLD_KEYS: Final[dict[str, QuotaKey]] = {key.name: key for key in (TOPIC_THRESHOLD, TOTAL_THRESHOLD)}
KEY_OF_KIND: Final = {TOPIC: TOPIC_THRESHOLD, BROKER: TOTAL_THRESHOLD}
"""The one key that an entity of either kind takes."""
STORED_KEYS: Final[dict[str, QuotaKey]] = {**QUOTA_KEYS, **THRESHOLD_KEYS}


class ResourceQuota(Enum):
    """The quotas by source or destination instead of user and client-id."""

    CONNECTION = "connection"
    """Connections that are made."""
    TOPIC = "topic"
    """Bytes that a broker takes in for a topic."""

    @property
    def key(self) -> QuotaKey:
        """The key under which limits of this type are stored."""
        return CONNECTION_CREATION_RATE if self is ResourceQuota.CONNECTION else TOPIC_THRESHOLD


def is_threshold_entity(entity: Entity) -> bool:
    """Return whether an entity is a topic or a broker, which have thresholds."""
    return any(kind in KEY_OF_KIND for kind, _ in entity.parts)


MAX_TOPIC_LENGTH: Final = 249
"""The longest name of a topic. **Source:** `Topic.MAX_NAME_LENGTH` (Kafka 4.0)."""
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")
_NODE_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_OPTIONS: Final = {TOPIC: "--topic NAME", BROKER: "--broker ID or --broker-default"}


def unmeant_threshold_entity(entity: Entity) -> InvalidQuotaError | None:
    """Return the error of a topic or broker that can't be meant, or None."""
    kinds = [kind for kind, _ in entity.parts]
    if len(kinds) > 1:
        return InvalidQuotaError(
            f"a {next(kind for kind in kinds if kind in THRESHOLD_TYPES)} can't be combined with anything else",
            hint="set the threshold of each topic or broker in a command of its own",
        )
    ((kind, name),) = entity.parts
    if kind == TOPIC:
        return _unmeant_topic(name)
    if name is None or _NODE_ID.fullmatch(name):
        return None
    return InvalidQuotaError(f"not the node id of a broker: {name!r}", hint="write its number, or --broker-default")


def _unmeant_topic(name: str | None) -> InvalidQuotaError | None:
    if name is None:
        return InvalidQuotaError(
            "topics have no default threshold",
            hint="a topic without one gets an equal share of what the others leave of the broker's total",
        )
    if name in (".", "..") or len(name) > MAX_TOPIC_LENGTH or not _TOPIC.fullmatch(name):
        return InvalidQuotaError(
            f"no topic can have this name: {name!r}",
            hint=f"Kafka takes 1 to {MAX_TOPIC_LENGTH} letters, digits, dots, underscores and hyphens",
        )
    return None


def unmeant_threshold_key(entity: Entity, name: str) -> InvalidQuotaError | None:
    """Return the error of a key that can't be meant for this topic or broker, or None."""
    kind = entity.parts[0][0]
    key = KEY_OF_KIND[kind]
    if name == key.name:
        return None
    return InvalidQuotaError(f"{name} is not a threshold of a {kind}", hint=f"a {kind} takes {key.name}")


def misplaced_threshold(name: str) -> InvalidQuotaError:
    """Return the error of a threshold's key on a user, a client-id or an ip."""
    kind = TOPIC if name == TOPIC_THRESHOLD.name else BROKER
    return InvalidQuotaError(f"{THRESHOLD_KEYS[name].name} is set on a {kind}", hint=f"name it with {_OPTIONS[kind]}")


def no_place_for(entity: Entity) -> InvalidQuotaError:
    """Return the error of a threshold or a group in a store that holds Kafka's own configuration."""
    if entity.part(GROUP) is not ABSENT:
        return InvalidQuotaError(
            f"Kafka has no groups, so this store can't hold {entity}",
            hint="keep groups in a local store, or in the policy file of the daemon: add --policy FILE",
        )
    return InvalidQuotaError(
        f"Kafka has no thresholds, so this store can't hold one of {entity}",
        hint="keep it in a local store, or in the policy file of the daemon",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdSettings:
    """The threshold of each topic that has one, and the total of each broker by node id (None: others).

    Raises:
        InvalidQuotaError: The topics' sum to more than a broker's total.
    """

    topics: Mapping[str, float] = field(default_factory=dict)
    totals: Mapping[str | None, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stated = sum(self.topics.values())
        for broker, total in sorted(self.totals.items(), key=lambda item: (item[1], item[0] or "")):
            if stated > total:
                whose = "every broker" if broker is None else f"broker {broker}"
                raise InvalidQuotaError(
                    f"the thresholds of topics would sum to {stated:.0f} bytes/s, more than the total of {total:.0f} "
                    f"of {whose}",
                    hint=f"raise {TOTAL_THRESHOLD.name} first, or lower {TOPIC_THRESHOLD.name} of another topic",
                )

    @classmethod
    def of(cls, entries: Iterable[tuple[Entity, Mapping[str, float]]]) -> "ThresholdSettings":
        """Return the thresholds among some entities and their quotas, ignoring everything else."""
        topics: dict[str, float] = {}
        totals: dict[str | None, float] = {}
        for entity, quotas in entries:
            topic, broker = entity.topic, entity.broker
            if isinstance(topic, str) and TOPIC_THRESHOLD.name in quotas:
                topics[topic] = quotas[TOPIC_THRESHOLD.name]
            if broker is not ABSENT and TOTAL_THRESHOLD.name in quotas:
                totals[broker if isinstance(broker, str) else None] = quotas[TOTAL_THRESHOLD.name]
        return cls(topics=topics, totals=totals)

    def total_of(self, broker: str | None) -> float | None:
        """Return the total of a broker by its node id (None: not known yet), or None if it has none."""
        own = None if broker is None else self.totals.get(broker)
        return self.totals.get(None) if own is None else own
