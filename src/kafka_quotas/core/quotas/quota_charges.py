"""The quotas that a broker charges for each API: the table of the daemon, the tests and the docs.

No row has `connection_creation_rate`: a broker charges it when it accepts a connection, before it reads a request.

**Source:** `KafkaApis.handle`, `ControllerApis.handle`, `RequestHandlerHelper` and `DefaultAutoTopicCreationManager` of
Kafka 4.3.1, and those of 3.9.2 for APIs that only its brokers serve. The tests compare every row with their bytecode.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

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


QUOTA_CHARGES: Final[Mapping[int, ApiCharges]] = MappingProxyType(
    {
        0: ApiCharges(byte_rate=QuotaType.PRODUCE, request_time=RequestTime.UNLESS_UNANSWERED),
        1: ApiCharges(byte_rate=QuotaType.FETCH, request_time=RequestTime.UNLESS_REPLICA),
        2: _TIME_ALONE,
        3: _CREATES,
        **dict.fromkeys((4, 5, 6, 7), _BROKERS_ONLY),
        **dict.fromkeys(range(8, 19), _TIME_ALONE),
        19: _requested(6),
        20: _requested(5),
        **dict.fromkeys(range(21, 27), _TIME_ALONE),
        27: _BROKERS_ONLY,
        **dict.fromkeys(range(28, 37), _TIME_ALONE),
        37: _requested(3),
        **dict.fromkeys(range(38, 52), _TIME_ALONE),
        **dict.fromkeys((52, 53, 54), _NOT_SERVED),
        55: _TIME_ALONE,
        56: _BROKERS_ONLY,
        57: _TIME_ALONE,
        **dict.fromkeys((58, 59), _NOT_SERVED),
        **dict.fromkeys((60, 61), _TIME_ALONE),
        **dict.fromkeys((62, 63), _NOT_SERVED),
        **dict.fromkeys(range(64, 70), _TIME_ALONE),
        70: _NOT_SERVED,
        **dict.fromkeys((71, 72), _TIME_ALONE),
        73: _NOT_SERVED,
        **dict.fromkeys(range(74, 78), _TIME_ALONE),
        78: ApiCharges(byte_rate=QuotaType.FETCH),
        **dict.fromkeys((79, 80, 81), _TIME_ALONE),
        82: _NOT_SERVED,
        **dict.fromkeys(range(83, 88), _TIME_ALONE),
        88: _CREATES,
        **dict.fromkeys(range(89, 93), _TIME_ALONE),
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
