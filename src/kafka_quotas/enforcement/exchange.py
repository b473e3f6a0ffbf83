"""A request on its way and what its response needs.

`Treatment` is looked up once per API and version. An `Exchange` is made per request on the hot path: a plain slotted
class, written by the session alone.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quota_manager import Limiter, QuotaType
from kafka_quotas.enforcement.client import Client
from kafka_quotas.enforcement.frame_stream import Decision
from kafka_quotas.wire.api_table import API_TABLE
from kafka_quotas.wire.frame import FRAME_LENGTH_BYTES
from kafka_quotas.wire.request_header import RequestHeader
from kafka_quotas.wire.walk import Buffer

if TYPE_CHECKING:
    from kafka_quotas.enforcement.repeated import Repeated
    from kafka_quotas.enforcement.whole_treatment import WholeTreatment

PRODUCE: Final = 0
FETCH: Final = 1
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
RAW_TOKEN: Final = -1
"""The "API" of a frame that has no header: the tokens after version 0 of SaslHandshake."""
ASKED: Final = -2
"""The "API" of a request of our own, whose response the client never sees."""


OnTold: TypeAlias = Callable[[bytearray, int], None]
"""Takes a whole response that is for us and not for the client, and the time in ms."""


class Treatment(IntEnum):
    """What a response needs before it may pass."""

    STREAM = 0
    ADDRESSES = 1
    VERSIONS = 2
    IDENTITY = 3
    TAIL = 4


STREAM: Final = Treatment.STREAM
ADDRESSES: Final = Treatment.ADDRESSES
VERSIONS: Final = Treatment.VERSIONS
IDENTITY: Final = Treatment.IDENTITY
TAIL: Final = Treatment.TAIL
"""The members as plain names: looking one up in its class costs as much as a small request's arithmetic."""


@lru_cache(maxsize=4096)
def treatment_of(api_key: int, api_version: int) -> Treatment:
    """What the responses of an API's version need; APIs that nobody told us about need nothing.

    Raises `ProtocolError` where a response would carry broker addresses in a form we can't rewrite: passed on, it would
    lead the client past the daemon.
    """
    if api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
        return IDENTITY
    if api_key == API_VERSIONS:
        return VERSIONS
    api = API_TABLE.get(api_key)
    if api is None or not api.addresses or api_version < 0:
        return STREAM
    if api_version > api.max_version:
        raise ProtocolError(
            f"{api.name} version {api_version} is beyond {api.max_version}, the newest that was announced",
            hint="its response may hold addresses of brokers that could not be rewritten",
        )
    if api.address_layout(api_version) is None:
        return STREAM
    return TAIL if api_key == FETCH else ADDRESSES


class Exchange:
    """A request that was received or is being received, and the state of its response.

    `place` is API key and version, by which the tables of the wire layer are asked.
    `frame_length` counts header and body, without the length field, as Kafka's `request.sizeInBytes`; `request` tells
    how to pass them on. `client` is None for requests that no quota concerns. `decides` says that what the client
    sends next has to wait for this response. `throttle_ms` is how long the client has to wait for this exchange, and
    `quota_type` and `limiter` whose quota makes it wait (until then: the byte rate that the exchange counts for);
    `upstream_ms` is how long the broker said. `charged` says that the response was charged, `delayed` that it was held
    back already, `patched` that its throttle time is written. The time of `exempt` requests counts for no quota.
    `session_id` is set for a fetch that is answered empty if it goes over its quota: the fetch session that the answer
    names. `repeats` is set for a plain Produce that is like others: nothing has to be done to its response unless that
    is out of the ordinary, or something follows it. `whole` deals with the request as a whole; `answer` is the
    response where the broker is not asked for it. `on_told` takes the response to a request of our own.
    """

    __slots__ = (
        "answer",
        "api_key",
        "api_version",
        "charged",
        "client",
        "correlation_id",
        "decides",
        "delayed",
        "exempt",
        "expects_response",
        "frame_length",
        "limiter",
        "on_told",
        "patched",
        "place",
        "quota_type",
        "repeats",
        "request",
        "session_id",
        "throttle_ms",
        "treatment",
        "upstream_ms",
        "whole",
    )

    def __init__(self, place: tuple[int, int], correlation_id: int, frame_length: int, treatment: Treatment) -> None:
        self.place = place
        self.api_key, self.api_version = place
        self.correlation_id = correlation_id
        self.frame_length = frame_length
        self.request: Decision = frame_length + FRAME_LENGTH_BYTES
        self.treatment = treatment
        self.client: Client | None = None
        self.limiter: Limiter | None = None
        self.quota_type = QuotaType.PRODUCE
        self.throttle_ms = self.upstream_ms = 0
        self.expects_response = True
        self.decides = self.charged = self.delayed = self.patched = self.exempt = False
        self.repeats: Repeated | None = None
        self.whole: WholeTreatment | None = None
        self.session_id: int | None = None
        self.answer: Buffer | None = None
        self.on_told: OnTold | None = None

    @classmethod
    def of(cls, header: RequestHeader) -> "Exchange":
        """The exchange of a request with this header; raises what `treatment_of` raises."""
        place = (header.api_key, header.api_version)
        return cls(place, header.correlation_id, header.frame_length, treatment_of(*place))

    @property
    def limited(self) -> bool:
        """Whether the client has a limit at the moment."""
        return self.limiter is not None and self.limiter.bound is not None

    def throttled(self, limiter: Limiter, throttle_ms: int) -> None:
        """Nothing; the client waits for so long at least, for this limit unless it waits longer for another one."""
        if throttle_ms > self.throttle_ms:
            self.quota_type = limiter.quota_type
            self.limiter = limiter
            self.throttle_ms = throttle_ms
