"""A request on its way and what its response needs.

`ResponseAction` is looked up once per API and version. An `InFlightRequest` is made per request on the hot path: a
plain slotted class, written by the session alone, each of its slots by one part of it.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.quota_charges import RESPONSE_BYTES
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.quotas.client_limits import ClientLimits
from kafka_quotas.enforcement.session.frame_stream import Decision, Frame
from kafka_quotas.wire.codec.frame import FRAME_LENGTH_BYTES
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.request_header import RequestHeader

if TYPE_CHECKING:
    from kafka_quotas.enforcement.session.principal import SaslClaim
    from kafka_quotas.enforcement.session.produce_template import ProduceTemplate
    from kafka_quotas.enforcement.session.request_filter import RequestFilter

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


class ResponseAction(IntEnum):
    """What a response needs before it may pass."""

    STREAM = 0
    ADDRESSES = 1
    VERSIONS = 2
    IDENTITY = 3
    TAIL = 4
    EMPTIED = 5


STREAM: Final = ResponseAction.STREAM
ADDRESSES: Final = ResponseAction.ADDRESSES
VERSIONS: Final = ResponseAction.VERSIONS
IDENTITY: Final = ResponseAction.IDENTITY
TAIL: Final = ResponseAction.TAIL
EMPTIED: Final = ResponseAction.EMPTIED
"""The members as plain names: looking one up in its class costs as much as a small request's arithmetic."""


@lru_cache(maxsize=4096)
def treatment_of(api_key: int, api_version: int) -> ResponseAction:
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
    return TAIL if api_key in RESPONSE_BYTES else ADDRESSES


class InFlightRequest:
    """A request that was received or is being received, and the state of its response."""

    __slots__ = (
        "answer",
        "api_key",
        "api_version",
        "charged",
        "claim",
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
        "repeats",
        "request",
        "session_id",
        "throttle_ms",
        "throttled_by",
        "treatment",
        "upstream_ms",
        "whole",
    )

    def __init__(
        self, place: tuple[int, int], correlation_id: int, frame_length: int, treatment: ResponseAction
    ) -> None:
        # What it is: by whoever makes it.
        self.place = place
        """API key and version, by which the tables of the wire layer are asked."""
        self.api_key, self.api_version = place
        self.correlation_id = correlation_id
        self.frame_length = frame_length
        """Bytes of header and body, without the length field, as Kafka's `request.sizeInBytes`."""
        self.on_told: OnTold | None = None
        """What takes the response to a request of our own."""

        # What was decided about it by its first bytes: by `RequestClassifier`, and the claims that it asks.
        self.request: Decision = frame_length + FRAME_LENGTH_BYTES
        """How to pass it on."""
        self.client: ClientLimits | None = None
        """Whose quotas it concerns, None for none."""
        self.limiter: Limiter | None = None
        """The byte rate that it counts for, None for none."""
        self.expects_response = True
        self.decides = False
        """Whether what the client sends next waits for this response."""
        self.exempt = False
        """Whether its time counts for no quota."""
        self.session_id: int | None = None
        """The fetch session that an empty answer names (0: none); None for what is never answered empty."""
        self.whole: RequestFilter | None = None
        """What deals with it as a whole."""
        self.repeats: ProduceTemplate | None = None
        """What it is like, for a plain Produce whose bare response may pass unseen; `unlike` ends that."""

        # What became of it when it had come as a whole: by `RequestHandler`.
        self.answer: Buffer | None = None
        """Its response where the broker is not asked for it."""
        self.claim: SaslClaim | None = None
        """Who the client says it is, in a request that takes part in authentication."""

        # What it cost: by `Charging`, and `throttled` for those who deal with whole requests.
        self.throttle_ms = 0
        """How long the client has to wait for it."""
        self.throttled_by: Limiter | None = None
        """Whose quota makes the client wait, None while none does."""
        self.upstream_ms = 0
        """How long the broker makes the client wait for it."""

        # How far its response is: by `ResponseHandler`.
        self.treatment = treatment
        """What the response needs, narrowed when the response turns out to need less, or to lose its records."""
        self.charged = False
        """Whether the response was charged."""
        self.delayed = False
        """Whether the response was held back already."""
        self.patched = False
        """Whether the throttle time is in the response."""

    @classmethod
    def of(cls, header: RequestHeader) -> "InFlightRequest":
        """Make the exchange of a request with this header; raises what `treatment_of` raises."""
        place = (header.api_key, header.api_version)
        return cls(place, header.correlation_id, header.frame_length, treatment_of(*place))

    @classmethod
    def own(cls, correlation_id: int, on_told: OnTold) -> "InFlightRequest":
        """Make the exchange of a request of our own, whose response the client never sees."""
        exchange = cls((ASKED, 0), correlation_id, 0, IDENTITY)
        exchange.on_told = on_told
        return exchange

    @property
    def accountable(self) -> Limiter | None:
        """Whose quota makes the client wait or, while none does, the byte rate that it counts for."""
        return self.throttled_by or self.limiter

    @property
    def gathers(self) -> bool:
        """Whether the request is seen as a whole before it goes on."""
        return isinstance(self.request, Frame) and self.request.gather

    @property
    def limited(self) -> bool:
        """Whether the client has a limit at the moment."""
        limiter = self.throttled_by or self.limiter
        return limiter is not None and limiter.bound is not None

    def throttled(self, limiter: Limiter, throttle_ms: int) -> None:
        """Let the client wait for so long at least, for this limit unless it waits longer for another one."""
        if throttle_ms > self.throttle_ms:
            self.throttled_by = limiter
            self.throttle_ms = throttle_ms

    def unlike(self) -> None:
        """Have the response seen, and let no other request use this exchange: it is plain no more."""
        self.repeats = None
