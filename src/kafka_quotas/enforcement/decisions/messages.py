"""The requests of other programs for decisions on quotas, and the decisions.

`DecisionRequest` and `Decision` are named tuples: clients that send batches make some hundred thousand of them per
second.
"""

import math
from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE, QuotaKey
from kafka_quotas.core.model.threshold import TOPIC_THRESHOLD
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import ANONYMOUS

PROTOCOL_VERSION: Final = 1
"""Version of both forms, JSON and binary."""
MAX_BATCH: Final = 1000
"""Most requests in one message."""


def is_amount(amount: float) -> bool:
    """Return whether an amount is a number from 0 to 2^63."""
    return math.isfinite(amount) and 0 <= amount <= 2.0**63


class Operation(IntEnum):
    """The operation on an amount, with its code in the binary form."""

    RECORD = 1
    """Charge the amount and return how long the client has to wait."""
    CHECK = 2
    """Return how long the client would have to wait, without charging it."""
    UNRECORD = 3
    """Give back an amount that was charged in vain."""


class ResourceQuota(Enum):
    """The quotas by source or destination instead of user and client-id."""

    CONNECTION = "connection"
    """Connections that an address makes (`DecisionRequest.ip`)."""
    TOPIC = "topic"
    """Bytes that a broker takes in for a topic (`DecisionRequest.topic`)."""

    @property
    def key(self) -> QuotaKey:
        """The key under which limits of this type are stored."""
        return CONNECTION_CREATION_RATE if self is ResourceQuota.CONNECTION else TOPIC_THRESHOLD


AnyQuotaType: TypeAlias = QuotaType | ResourceQuota
ANY_QUOTA_TYPES: Final[dict[str, AnyQuotaType]] = {each.value: each for each in (*QuotaType, *ResourceQuota)}
"""Types that decisions can be requested for, by name."""


class DecisionRequest(NamedTuple):
    """One request: an operation on an amount of one quota.

    Connections go by `ip` and topics by `topic`; for the other types the two only appear in the event log.
    """

    op: Operation
    quota_type: AnyQuotaType
    amount: float
    """Amount in the type's unit: bytes, ms of thread time, partitions, requests, connections."""
    user: str = ANONYMOUS
    client_id: str = ""
    ip: str = ""
    topic: str = ""
    broker: int | None = None
    """Node id, None for the broker of the bootstrap address."""


class Decision(NamedTuple):
    """The delay of one request and the quota that requires it."""

    delay_ms: int
    """Time that the client has to wait, 0 for none."""
    quota: str
    """Key of the quota."""
    entity: str
    """Entity whose limit it is, "" without a limit."""
    limit: float
    """Limit per second."""
    observed: float
    """Measured rate per second, of mutations the tokens left."""
    is_shadow: bool = False
    """Whether the client's quotas are in shadow mode, so no client should wait for them."""


class DecisionError(KafkaQuotasError):
    """Error for a request that can't be answered."""
