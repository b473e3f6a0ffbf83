"""Templates of Produce requests: a producer's requests start with the same bytes."""

from collections import deque
from struct import Struct
from typing import Final, TypeAlias

from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.quotas.client_limits import ClientLimits
from kafka_quotas.enforcement.session.in_flight import InFlightRequest, response_action
from kafka_quotas.enforcement.session.request_filter import FilterFactory
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES
from kafka_quotas.wire.codec.skip import Buffer, compact_string, string
from kafka_quotas.wire.passing.produce_request import FLEXIBLE_SINCE, TRANSACTIONAL_ID_SINCE
from kafka_quotas.wire.protocol.header import RequestHeader

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
        """Make the template of a request, whose acks must be in the chunk.

        Later requests have to start with the same bytes up to `start_end`, which is by default the end of the acks.
        """
        self._api = (header.api_key, header.api_version)
        self._action = response_action(*self._api)
        self._api_on_wire = header.api_key << 16 | header.api_version
        self._expects_response = expects_response
        self._max_bytes = max_bytes
        self._quotas = quotas
        self._factory = factory
        self.start_bytes = (start_end or _acks_end(chunk, header)) - header.start
        """Bytes of a request up to the end of its acks or, where its topic counts, of that."""
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

        Args:
            data: Some requests of a client.
            offset: The first byte of a request in `data`.
            end: The largest end of a request that is taken; with `len(data)` a cut one is not.
            most: The largest number of requests to take.
            taken: The list or queue to append to.

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


def _acks_end(chunk: memoryview, header: RequestHeader) -> int:
    offset = header.end
    if header.api_version >= TRANSACTIONAL_ID_SINCE:
        skip = compact_string if header.api_version >= FLEXIBLE_SINCE else string
        offset = skip(chunk, offset, len(chunk))
    return offset + 2  # acks
