"""What other programs ask of the daemon's quotas, and what they are told.

`DecisionRequest` and `Decision` are named tuples: they are made some hundred thousand times per second by whoever asks
in batches.
"""

from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE, QuotaKey
from kafka_quotas.core.model.threshold import TOPIC_THRESHOLD
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import ANONYMOUS

PROTOCOL_VERSION: Final = 1
"""Of both forms, JSON and binary."""
MAX_BATCH: Final = 1000
"""How many questions one message may hold."""


class Operation(IntEnum):
    """What is to be done with an amount; the figures are those of the binary form."""

    RECORD = 1
    """It was used: charge it, and tell how long the client has to wait."""
    CHECK = 2
    """Tell how long the client would have to wait; nothing is charged."""
    UNRECORD = 3
    """It was charged for nothing: give it back."""


class ResourceQuota(Enum):
    """What is limited by where it comes from or goes to, and not by user and client-id."""

    CONNECTION = "connection"
    """Connections that an address makes (`DecisionRequest.ip`)."""
    TOPIC = "topic"
    """Bytes that a broker takes in for a topic (`DecisionRequest.topic`)."""

    @property
    def key(self) -> QuotaKey:
        """The key under which limits of this type are stored."""
        return CONNECTION_CREATION_RATE if self is ResourceQuota.CONNECTION else TOPIC_THRESHOLD


AskType: TypeAlias = QuotaType | ResourceQuota
ASK_TYPES: Final[dict[str, AskType]] = {kind.value: kind for kinds in (QuotaType, ResourceQuota) for kind in kinds}
"""What can be asked for, by name."""


class DecisionRequest(NamedTuple):
    """One question: an amount in the type's unit (bytes, ms of thread time, partitions, requests, connections).

    `broker` is a node id, None for the one behind the bootstrap address. Connections go by `ip` and topics by `topic`;
    for the other types these only say in the event log whom and what it was for.
    """

    op: Operation
    quota_type: AskType
    amount: float
    user: str = ANONYMOUS
    client_id: str = ""
    ip: str = ""
    topic: str = ""
    broker: int | None = None


class Decision(NamedTuple):
    """How long the client has to wait (ms, 0: not at all), and the quota (its key) that says so.

    `entity` is the entity whose limit it is, "" where there is no limit; `limit` and `observed` are per second (tokens
    left, for mutations). `is_shadow`: the client's quotas are only watched, so that nobody should wait for them.
    """

    delay_ms: int
    quota: str
    entity: str
    limit: float
    observed: float
    is_shadow: bool = False


class DecisionError(KafkaQuotasError):
    """A question that can't be answered."""
