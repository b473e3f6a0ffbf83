"""Templates of Produce requests: a producer's requests start with the same bytes."""

from collections import deque
from struct import Struct
from typing import Final

from kafka_quotas.enforcement.quotas.client_limits import ClientLimits
from kafka_quotas.enforcement.session.in_flight import InFlightRequest, response_action
from kafka_quotas.wire.codec.frame import FRAME_LENGTH_BYTES
from kafka_quotas.wire.codec.skip import Buffer, compact_string, string
from kafka_quotas.wire.passing.produce_request import FLEXIBLE_SINCE, TRANSACTIONAL_ID_SINCE
from kafka_quotas.wire.protocol.request_header import RequestHeader

_START: Final = Struct(">iIi")
"""Length, API key and version as one number, correlation id."""
_START_BYTES: Final = _START.size
_unpack_start: Final = _START.unpack_from
_FOUR_ZEROS: Final = bytes(4)
_FIVE_ZEROS: Final = bytes(5)
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
        "_max_bytes",
        "_start",
        "admit",
        "client",
        "end",
        "is_plain",
        "response_end",
        "spares",
        "version",
    )

    def __init__(
        self, chunk: memoryview, header: RequestHeader, client: ClientLimits, *, expects_response: bool, max_bytes: int
    ) -> None:
        """Make the template of a request, whose acks must be in the chunk."""
        self._api = (header.api_key, header.api_version)
        self._action = response_action(*self._api)
        self._api_on_wire = header.api_key << 16 | header.api_version
        self._expects_response = expects_response
        self._max_bytes = max_bytes
        self.end = _acks_end(chunk, header) - header.start
        """Bytes of a request up to the end of its acks."""
        self._start = bytes(chunk[header.start + _START_BYTES : header.start + self.end])
        self.client = client
        self.version = client.version
        self.admit = client.produce.admit
        """Records bytes if no throttle time can come of it, and returns whether it did."""
        self.response_end = bare_end(header.api_version)
        self.spares: deque[InFlightRequest] = deque(maxlen=MAX_SPARES)
        # Without a throttle time at its end (version 0) no bytes show that a response is bare.
        # Only a response returns a request to `spares`, and a counted request is charged for more than its bytes.
        self.is_plain = bool(self.response_end) and expects_response and not client.counts_requests

    def take(self, data: Buffer, offset: int) -> InFlightRequest | None:
        """Return the in-flight request at an offset if its bytes have come and start like the template."""
        # Comparing costs less than parsing. The bytes hold API and version, client-id, transactional id and acks.
        head_bytes = self.end
        if len(data) - offset < head_bytes:
            return None
        length, api, correlation_id = _unpack_start(data, offset)
        # The parser reports a length that no Produce may have.
        if (
            api != self._api_on_wire
            or not head_bytes <= length <= self._max_bytes
            or data[offset + _START_BYTES : offset + head_bytes] != self._start
        ):
            return None
        if not self.spares:
            return self.request(length, correlation_id)
        request = self.spares.pop()
        request.correlation_id = correlation_id
        request.frame_length = length
        request.decision = FRAME_LENGTH_BYTES + length
        return request

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


def _acks_end(chunk: memoryview, header: RequestHeader) -> int:
    offset = header.end
    if header.api_version >= TRANSACTIONAL_ID_SINCE:
        skip = compact_string if header.api_version >= FLEXIBLE_SINCE else string
        offset = skip(chunk, offset, len(chunk))
    return offset + 2  # acks
