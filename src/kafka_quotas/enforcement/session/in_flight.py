"""A request in flight and what its response needs.

The session makes an `InFlightRequest` per request, on the hot path: a plain slotted class, which only the session
writes, each slot from one of its modules.
"""

from collections.abc import Callable, Generator
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.quotas.quota_charges import RESPONSE_BYTES
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.quotas.client_limits import ClientLimits
from kafka_quotas.enforcement.session.frame_stream import Decision
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.api import NEVER
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import RequestHeader

if TYPE_CHECKING:
    from kafka_quotas.enforcement.session.principal import SaslExchange
    from kafka_quotas.enforcement.session.produce_template import ProduceTemplate
    from kafka_quotas.enforcement.session.request_filter import RequestFilter

# Plain integers: looking a member up in its enum and comparing with it costs ten times as much.
PRODUCE: Final = ApiKey.PRODUCE.value
FETCH: Final = ApiKey.FETCH.value
SHARE_FETCH: Final = ApiKey.SHARE_FETCH.value
SASL_HANDSHAKE: Final = ApiKey.SASL_HANDSHAKE.value
API_VERSIONS: Final = ApiKey.API_VERSIONS.value
SASL_AUTHENTICATE: Final = ApiKey.SASL_AUTHENTICATE.value
RAW_TOKEN: Final = -1
"""The "API" of a frame without a header: a token after version 0 of SaslHandshake."""
OWN_REQUEST: Final = -2
"""The "API" of the daemon's own request, whose response the client never sees."""


OnResponseToOwn: TypeAlias = Callable[[bytearray, int], Generator[None, None, None] | None]
"""(the whole response to the daemon's own request, now_ms) -> work to do in slices, None if all is done."""


class ResponseAction(IntEnum):
    """What the session does with a response before it may pass."""

    STREAM = 0
    """Lets it pass as it comes."""
    ADDRESSES = 1
    """New addresses of brokers, anywhere in it."""
    VERSIONS = 2
    """Our maximum versions in place of the broker's."""
    AUTHENTICATION = 3
    """A look at the result of an authentication."""
    TAIL = 4
    """New addresses of brokers, after the records."""
    EMPTIED = 5
    """The removal of its records, and new addresses."""


STREAM: Final = ResponseAction.STREAM
ADDRESSES: Final = ResponseAction.ADDRESSES
VERSIONS: Final = ResponseAction.VERSIONS
AUTHENTICATION: Final = ResponseAction.AUTHENTICATION
TAIL: Final = ResponseAction.TAIL
EMPTIED: Final = ResponseAction.EMPTIED
"""The members as plain names: looking one up in its class costs as much as a small request's arithmetic."""


CLIENT_WAITS_SINCE: Final = {
    PRODUCE: 6,
    FETCH: 8,
    ApiKey.LIST_OFFSETS.value: 3,
    ApiKey.METADATA.value: 6,
    ApiKey.OFFSET_COMMIT.value: 4,
    ApiKey.OFFSET_FETCH.value: 4,
    ApiKey.FIND_COORDINATOR.value: 2,
    ApiKey.JOIN_GROUP.value: 3,
    ApiKey.HEARTBEAT.value: 2,
    ApiKey.LEAVE_GROUP.value: 2,
    ApiKey.SYNC_GROUP.value: 2,
    ApiKey.DESCRIBE_GROUPS.value: 2,
    ApiKey.LIST_GROUPS.value: 2,
    API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS.value: 3,
    ApiKey.DELETE_TOPICS.value: 2,
    ApiKey.DESCRIBE_CONFIGS.value: 2,
    SHARE_FETCH: NEVER,
}
"""API key -> first version in which a client itself waits for the throttle time; an API that is missing here does so in
each version with the field.

**Source:** KIP-219; `AbstractResponse.shouldClientThrottle` of each API (4.1).
"""


@lru_cache(maxsize=4096)
def response_action(api_key: int, api_version: int) -> ResponseAction:
    """Return what the responses of an API's version need: nothing for APIs that no table lists.

    Raises:
        ProtocolError: The response may hold addresses in a form that the daemon can't rewrite. Passed on, it would lead
            the client past the daemon.
    """
    if api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
        return AUTHENTICATION
    if api_key == API_VERSIONS:
        return VERSIONS
    api = API_TABLE.get(api_key)
    if api is None:
        return STREAM
    # A client may ignore ApiVersions; whether its response has addresses is known for announced versions only.
    if not api.handles(api_version):
        raise ProtocolError(
            f"{api.name} version {api_version} is not served here: not among those that were announced",
            hint="its response may hold addresses that could not be rewritten",
        )
    if api.address_layout(api_version) is None:
        return STREAM
    # Only responses with records are too long to be gathered, and those have their addresses at the end.
    return TAIL if api_key in RESPONSE_BYTES else ADDRESSES


class InFlightRequest:
    """A request from its first bytes until its response has passed."""

    __slots__ = (
        "action",
        "api",
        "api_key",
        "api_version",
        "blocks_next",
        "charged",
        "client",
        "correlation_id",
        "decision",
        "delayed",
        "exempt",
        "expects_response",
        "filter",
        "frame_length",
        "limiter",
        "local_response",
        "on_response_to_own",
        "patched",
        "sasl_exchange",
        "session_id",
        "template",
        "throttle_ms",
        "throttled_by",
        "upstream_ms",
    )

    def __init__(self, api: tuple[int, int], correlation_id: int, frame_length: int, action: ResponseAction) -> None:
        # What it is: set where it is made.
        self.api = api
        """API key and version, the key of the tables in `wire`."""
        self.api_key, self.api_version = api
        self.correlation_id = correlation_id
        self.frame_length = frame_length
        """Bytes of header and body, without the length field, as Kafka's `request.sizeInBytes`."""
        self.on_response_to_own: OnResponseToOwn | None = None
        """The receiver of the response to the daemon's own request."""

        # What its first bytes decide: set by `RequestClassifier` and the filter factories that it asks.
        self.decision: Decision = frame_length + FRAME_LENGTH_BYTES
        """How to pass the request on."""
        self.client: ClientLimits | None = None
        """The client whose quotas it counts for, None for none."""
        self.limiter: Limiter | None = None
        """The byte rate that it counts for, None for none."""
        self.expects_response = True
        self.blocks_next = False
        """Whether what the client sends next waits for this response."""
        self.exempt = False
        """Whether its time is exempt from the request quota."""
        self.session_id: int | None = None
        """The fetch session that an empty response names (0: none); None for a response that is never emptied."""
        self.filter: RequestFilter | None = None
        """The filter that sees it whole."""
        self.template: ProduceTemplate | None = None
        """The template of a plain Produce whose bare response may pass unseen; `forget_template` clears it."""

        # What its last byte decides: set by `RequestHandler`.
        self.local_response: Buffer | None = None
        """The daemon's own response, None if the broker responds."""
        self.sasl_exchange: SaslExchange | None = None
        """The SASL exchange that an authentication request starts or continues."""

        # What it costs: set by `QuotaAccounting`, and by filters through `throttled`.
        self.throttle_ms = 0
        """Throttle time of the daemon's quotas."""
        self.throttled_by: Limiter | None = None
        """The limiter that set `throttle_ms`, None while it is 0."""
        self.upstream_ms = 0
        """Throttle time that the broker set."""

        # How far its response has got: set by `ResponseHandler`.
        self.action = action
        """What the response needs; changed when its bytes show less, or when it loses its records."""
        self.charged = False
        """Whether the response was charged."""
        self.delayed = False
        """Whether the response has already been held back."""
        self.patched = False
        """Whether the throttle time is in the response."""

    @classmethod
    def of(cls, header: RequestHeader) -> "InFlightRequest":
        """Make the in-flight request for a header.

        Raises:
            ProtocolError: The response may hold broker addresses that can't be rewritten.
        """
        api = (header.api_key, header.api_version)
        return cls(api, header.correlation_id, header.frame_length, response_action(*api))

    @classmethod
    def own(cls, correlation_id: int, on_response_to_own: OnResponseToOwn) -> "InFlightRequest":
        """Make an in-flight request of the daemon's own, whose response the client never sees."""
        request = cls((OWN_REQUEST, 0), correlation_id, 0, AUTHENTICATION)
        request.on_response_to_own = on_response_to_own
        return request

    @property
    def accountable(self) -> Limiter | None:
        """The limiter that throttles the client or, without one, the byte rate that the request counts for."""
        return self.throttled_by or self.limiter

    @property
    def reported_throttle_ms(self) -> int:
        """The throttle time to write into the response, 0 if the client has waited for it already."""
        # KIP-219: newer clients wait by themselves for that time, and would wait twice after a delayed response.
        waits_itself = self.delayed and self.api_version >= CLIENT_WAITS_SINCE.get(self.api_key, 0)
        return 0 if waits_itself else self.throttle_ms

    def throttled(self, limiter: Limiter, throttle_ms: int) -> None:
        """Raise the throttle time to this limiter's if it is longer than the one so far."""
        # A client waits once, for the longest of its throttle times (KIP-124).
        if throttle_ms > self.throttle_ms:
            self.throttled_by = limiter
            self.throttle_ms = throttle_ms

    def forget_template(self) -> None:
        """Stop treating the request as a plain Produce: its response is read, and no other request reuses it."""
        self.template = None
