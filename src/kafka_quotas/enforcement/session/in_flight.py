"""Requests in flight, and the templates of Produce requests: those of a producer start with the same bytes.

The session makes an `InFlightRequest` per request, on the hot path: a plain slotted class, which only the session
writes, each slot from one of its modules.
"""

from collections import deque
from collections.abc import Callable, Generator
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import Final, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.quotas.quota_charges import RESPONSE_BYTES
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas, ClientLimits
from kafka_quotas.enforcement.session.filters import FilterFactory, RequestFilter
from kafka_quotas.enforcement.session.frames import Decision
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.api import NEVER
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import RequestHeader
from kafka_quotas.wire.proxying.produce import FLEXIBLE_SINCE, acks_start

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
"""The "API" of the daemon's own request. The client never sees the response."""


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


_WAITS: Final = {
    2: "FIND_COORDINATOR HEARTBEAT LEAVE_GROUP SYNC_GROUP DESCRIBE_GROUPS LIST_GROUPS API_VERSIONS DELETE_TOPICS "
    "DESCRIBE_CONFIGS",
    3: "LIST_OFFSETS JOIN_GROUP CREATE_TOPICS",
    4: "OFFSET_COMMIT OFFSET_FETCH",
    6: "PRODUCE METADATA",
    8: "FETCH",
    NEVER: "SHARE_FETCH",
}
CLIENT_WAITS_SINCE: Final = {ApiKey[each].value: since for since, names in _WAITS.items() for each in names.split()}
"""API key -> first version in which a client itself waits for the throttle time; an API that is missing here does so in
each version with the field.

**Source:** KIP-219; `AbstractResponse.shouldClientThrottle` of each API (4.1).
"""


@lru_cache(maxsize=4096)
def response_action(api_key: int, api_version: int) -> ResponseAction:
    """Return the action for responses of an API's version: they stream for APIs that no table lists."""
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
        "session_id",
        "template",
        "throttle_ms",
        "throttled_by",
        "upstream_ms",
    )

    def __init__(self, api: tuple[int, int], correlation_id: int, frame_length: int, action: ResponseAction) -> None:
        # Its identity, set by the constructor.
        self.api = api
        """API key and version, the key of the tables in `wire`."""
        self.api_key, self.api_version = api
        self.correlation_id = correlation_id
        self.frame_length = frame_length
        """Bytes of header and body, without the length field, as Kafka's `request.sizeInBytes`."""
        self.on_response_to_own: OnResponseToOwn | None = None
        """The receiver of the response to the daemon's own request."""

        # What its first bytes decide: set by `RequestHandler` and the filter factories that it asks.
        self.decision: Decision = frame_length + FRAME_LENGTH_BYTES
        """How to pass the request on."""
        self.client: ClientLimits | None = None
        """The client whose quotas it counts for, or None."""
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
        self.template: ProduceTemplate | None = None
        """The template of a plain Produce whose bare response may pass unseen, None as soon as it is anything else."""

        # What its last byte decides: set by `RequestHandler`.
        self.local_response: Buffer | None = None
        """The daemon's own response, None if the broker responds."""

        # What it costs: set by `QuotaAccounting`, and by filters through `throttled`.
        self.throttle_ms = 0
        self.throttled_by: Limiter | None = None
        """The limiter that set `throttle_ms`, None while it is 0."""
        self.upstream_ms = 0

        # How far its response has got: set by `ResponseHandler`.
        self.action = action
        """What the response needs; changed when its bytes show less, or when it loses its records."""
        self.charged = False
        self.delayed = False
        self.patched = False
        """Whether the throttle time is in the response."""

    @classmethod
    def own(cls, correlation_id: int, on_response_to_own: OnResponseToOwn) -> "InFlightRequest":
        """Make an in-flight request of the daemon's own. The client never sees the response."""
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


_START: Final = Struct(">iIi")
"""Length, API key and version as one number, correlation id."""
_FOUR_ZEROS: Final = bytes(4)
_FIVE_ZEROS: Final = bytes(5)
Taken: TypeAlias = list[InFlightRequest] | deque[InFlightRequest]
MAX_SPARES: Final = 32
"""Most in-flight requests that are kept for reuse; a client that pipelines more gets new ones."""


def bare_end(api_version: int) -> bytes:
    """Return the end of a Produce response with neither throttle time nor addresses, b"" for version 0."""
    # The throttle time is the last field; from the first flexible version on an empty tag section follows. A section
    # with addresses (KIP-951) would end with a broker's port, its rack and its tags, which can't be five zeros.
    if api_version >= FLEXIBLE_SINCE:
        return _FIVE_ZEROS
    return _FOUR_ZEROS if api_version > 0 else b""


class ProduceTemplate:
    """The parsed start of one Produce request, for the later requests that start with the same bytes.

    Every Produce gets its `InFlightRequest` from a template: the first of its kind after parsing, later ones by `take`.
    With `is_plain` such a request only has to be charged with its bytes, and its response passes as it is if it ends
    with `response_end`; `spares` then keeps its `InFlightRequest` for a later request.
    """

    __slots__ = (
        "_action",
        "_api",
        "_api_on_wire",
        "_expects_response",
        "_factory",
        "_max_bytes",
        "_quotas",
        "_start",
        "_unpack",
        "admit",
        "client",
        "is_plain",
        "response_end",
        "spares",
        "start_bytes",
        "version",
    )

    def __init__(
        self,
        chunk: memoryview,
        header: RequestHeader,
        client: ClientLimits,
        *,
        expects_response: bool,
        max_bytes: int,
        quotas: BrokerQuotas,
        factory: FilterFactory | None,
        start_end: int | None = None,
    ) -> None:
        """Make the template of a request. Its acks must be in the chunk.

        Later requests have to start with the same bytes up to `start_end`, which is by default the end of the acks.
        """
        self._api = (header.api_key, header.api_version)
        self._action = response_action(*self._api)
        self._api_on_wire = header.api_key << 16 | header.api_version
        self._expects_response = expects_response
        self._max_bytes = max_bytes
        self._quotas = quotas
        self._factory = factory
        self.start_bytes = (start_end or acks_start(chunk, header, len(chunk)) + 2) - header.start
        """Bytes of a request up to the end of its acks or, if its topic matters, of that."""
        self._unpack = Struct(f"{_START.format}{self.start_bytes - _START.size}s").unpack_from
        self._start = bytes(chunk[header.start + _START.size : header.start + self.start_bytes])
        self.client = client
        self.version = client.version
        self.admit = client.produce.admit
        """Records bytes if no throttle time can come of it, and returns whether it did."""
        self.response_end = bare_end(header.api_version)
        self.spares: deque[InFlightRequest] = deque(maxlen=MAX_SPARES)
        # Without a throttle time at its end (version 0) no bytes show that a response is bare.
        # Only a response returns a request to `spares`, and a counted request is charged for more than its bytes.
        self.is_plain = bool(self.response_end) and expects_response and not client.counts_requests

    def take(self, data: Buffer, offset: int, end: int, most: int, taken: Taken) -> int:
        """Append an in-flight request for each request from an offset on that starts like the template.

        At most `most` requests are taken that end at `end` or before: with `len(data)` none is cut.

        Returns:
            The end of the last request that was taken, `offset` if there is none.
        """
        # Not while the client's policy or limits have changed, or while a filter may want to see the request whole.
        # The principal needs no check: an authentication request ends the template.
        if self.version != self._quotas.version or (self._factory is not None and self._factory.is_active):
            return offset
        # One call takes all requests of a read: a call for each would cost as much as the comparison.
        unpack, template_start, max_bytes, spares = self._unpack, self._start, self._max_bytes, self.spares
        start_bytes = self.start_bytes
        last_offset = len(data) - start_bytes
        while most > 0 and offset <= last_offset:
            # Comparing costs less than parsing. The start holds client-id, transactional id and acks.
            length, api, correlation_id, start = unpack(data, offset)
            frame_end = offset + FRAME_LENGTH_BYTES + length
            # The parser reports a length that no Produce may have.
            is_alike = api == self._api_on_wire and start == template_start
            if not (is_alike and frame_end <= end and start_bytes <= length <= max_bytes):
                break
            if spares:
                request = spares.pop()
                request.correlation_id = correlation_id
                request.frame_length = length
            else:
                request = self.request(length, correlation_id)
            taken.append(request)
            offset = frame_end
            most -= 1
        return offset

    def retire(self) -> None:
        """Keep no more in-flight requests for reuse, because another Produce replaces the template."""
        # A template and its spares refer to each other. A client that changes its client-id with each request would
        # fill the memory with them until the garbage collector runs, which it seldom does.
        self.spares = deque(maxlen=0)

    def request(self, frame_length: int, correlation_id: int) -> InFlightRequest:
        """Make the in-flight request for a Produce like the template."""
        request = InFlightRequest(self._api, correlation_id, frame_length, self._action)
        request.client = self.client
        request.limiter = self.client.produce
        request.expects_response = self._expects_response
        # A broker exempts acks=0 from the request quota: `sendNoOpResponseExemptThrottle`.
        request.exempt = not self._expects_response
        if self.is_plain:
            request.template = self
        return request
