"""What a broker charges for each API: the quotas, and an estimate of the time on its threads.

The table of quotas is that of the daemon, the tests and the docs. No row has `connection_creation_rate`: a broker
charges it when it accepts a connection, before it reads a request.

**Source:** `KafkaApis.handle`, `ControllerApis.handle`, `RequestHandlerHelper` and `DefaultAutoTopicCreationManager` of
Kafka 4.3.1, and those of 3.9.2 for APIs that only its brokers serve. The tests compare every row with their bytecode.
KIP-124 for what is counted as time (I/O and network threads together).

Only the broker can measure its thread time. The cost model has a figure per API for the time on an I/O thread, one per
byte of the request for reading and handling it, and one per byte of the response for sending it on a network thread.
Figures are 0 or more. Everything computed from it is an estimate and is labelled so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.quotas.quota_manager import QuotaType


class RequestTime(Enum):
    """The client whose `request_percentage` pays for the time on a broker's threads."""

    CHARGED = "the client's"
    UNLESS_UNANSWERED = "the client's; nobody's without acknowledgement (`acks=0`)"
    UNLESS_REPLICA = "the client's; nobody's where a broker fetches"
    UNLESS_BROKER = "nobody's where a broker asks; the client's if the broker refuses it"
    NOT_SERVED = "nobody's: no broker serves the API to clients, it closes the connection"


class Mutation(Enum):
    """The topics of a request whose partitions count for `controller_mutation_rate`."""

    NONE = "not at all"
    REQUESTED = "those that the request names"
    CREATED = "those of topics that the broker creates in the client's name because of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCharges:
    """The charges of one API."""

    byte_rate: QuotaType | None = None
    """The byte rate: PRODUCE for the request's bytes, FETCH for the response's bytes, None for neither."""
    request_time: RequestTime = RequestTime.CHARGED
    mutation: Mutation = Mutation.NONE
    strict_since: int | None = None
    """The first version whose topics over the quota are refused instead of delayed; None: no such charge."""


_TIME_ALONE: Final = ApiCharges()
_BROKERS_ONLY: Final = ApiCharges(request_time=RequestTime.UNLESS_BROKER)
_NOT_SERVED: Final = ApiCharges(request_time=RequestTime.NOT_SERVED)
_CREATES: Final = ApiCharges(mutation=Mutation.CREATED)


def _requested(strict_since: int) -> ApiCharges:
    return ApiCharges(mutation=Mutation.REQUESTED, strict_since=strict_since)


def _each(row: ApiCharges, names: str) -> dict[int, ApiCharges]:
    return {int(ApiKey[name]): row for name in names.split()}


QUOTA_CHARGES: Final[Mapping[int, ApiCharges]] = MappingProxyType(
    {
        **dict.fromkeys(map(int, ApiKey), _TIME_ALONE),
        **_each(_BROKERS_ONLY, "LEADER_AND_ISR STOP_REPLICA UPDATE_METADATA CONTROLLED_SHUTDOWN WRITE_TXN_MARKERS"),
        **_each(_BROKERS_ONLY, "ALTER_PARTITION"),
        **_each(_NOT_SERVED, "VOTE BEGIN_QUORUM_EPOCH END_QUORUM_EPOCH ENVELOPE FETCH_SNAPSHOT UPDATE_RAFT_VOTER"),
        **_each(_NOT_SERVED, "BROKER_REGISTRATION BROKER_HEARTBEAT CONTROLLER_REGISTRATION ASSIGN_REPLICAS_TO_DIRS"),
        ApiKey.PRODUCE: ApiCharges(byte_rate=QuotaType.PRODUCE, request_time=RequestTime.UNLESS_UNANSWERED),
        ApiKey.FETCH: ApiCharges(byte_rate=QuotaType.FETCH, request_time=RequestTime.UNLESS_REPLICA),
        ApiKey.SHARE_FETCH: ApiCharges(byte_rate=QuotaType.FETCH),
        ApiKey.METADATA: _CREATES,
        ApiKey.STREAMS_GROUP_HEARTBEAT: _CREATES,
        ApiKey.CREATE_TOPICS: _requested(6),
        ApiKey.DELETE_TOPICS: _requested(5),
        ApiKey.CREATE_PARTITIONS: _requested(3),
    }
)
"""The charges by API key, for every API of Kafka 4.3.1 and those that only 3.9.2 has.

A newer API is charged with its time.
"""

RESPONSE_BYTES: Final = frozenset(key for key, row in QUOTA_CHARGES.items() if row.byte_rate is QuotaType.FETCH)
"""The APIs whose responses count for `consumer_byte_rate`, and whose time is charged with the response."""


def charges_of(api_key: int) -> ApiCharges:
    """Return the charges of an API."""
    return QUOTA_CHARGES.get(api_key, _TIME_ALONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCost:
    """The cost of one API in nanoseconds per request, per request byte and per response byte."""

    request_nanos: float
    request_byte_nanos: float = 0.0
    response_byte_nanos: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """The costs by API key."""

    source: str
    other: ApiCost
    apis: Mapping[int, ApiCost] = field(default_factory=dict)

    def request_nanos(self, api_key: int, frame_length: int) -> float:
        """Return the estimated time in ns that a request of `frame_length` bytes takes on an I/O thread."""
        cost = self.apis.get(api_key, self.other)
        return cost.request_nanos + cost.request_byte_nanos * frame_length

    def response_nanos(self, api_key: int, frame_length: int) -> float:
        """Return the estimated time in ns to send a response of `frame_length` bytes on a network thread."""
        return self.apis.get(api_key, self.other).response_byte_nanos * frame_length
