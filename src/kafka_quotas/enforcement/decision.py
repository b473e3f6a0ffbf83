"""What other programs ask of the daemon's quotas, and what they are told.

`Ask` and `Decision` are named tuples: they are made some hundred thousand times per second by whoever asks in batches.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.enforcement.rules import ANONYMOUS

PROTOCOL_VERSION: Final = 1
"""Of both forms, JSON and binary."""
MAX_BATCH: Final = 1000
"""How many questions one message may hold."""


class Op(IntEnum):
    """What is to be done with an amount; the figures are those of the binary form."""

    RECORD = 1
    """It was used: charge it, and tell how long the client has to wait."""
    CHECK = 2
    """Tell how long the client would have to wait; nothing is charged."""
    UNRECORD = 3
    """It was charged for nothing: give it back."""


class Ask(NamedTuple):
    """One question: an amount in the quota type's unit (bytes, milliseconds of thread time, partitions, requests).

    `broker` is a node id, None for the one behind the bootstrap address. `ip` and `topic` say whom and what it was for;
    they are in the event log, the quotas that can be asked for do not go by them.
    """

    op: Op
    quota_type: QuotaType
    amount: float
    user: str = ANONYMOUS
    client_id: str = ""
    ip: str = ""
    topic: str = ""
    broker: int | None = None


class Decision(NamedTuple):
    """How long the client has to wait (ms, 0: not at all), and the quota that says so.

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
