"""Produce requests that start with the same bytes, as a producer sends them all day long."""

from collections import deque
from struct import Struct
from typing import Final

from kafka_quotas.enforcement.quotas.client_limits import ClientLimits
from kafka_quotas.enforcement.session.in_flight import InFlightRequest, treatment_of
from kafka_quotas.enforcement.session.response_handler import bare_end
from kafka_quotas.wire.codec.frame import FRAME_LENGTH_BYTES
from kafka_quotas.wire.codec.skip import Buffer, compact_string, string
from kafka_quotas.wire.passing.produce_request import FLEXIBLE_SINCE, TRANSACTIONAL_ID_SINCE
from kafka_quotas.wire.protocol.request_header import RequestHeader

_START: Final = Struct(">iIi")
"""Length, API key and version as one figure, correlation id."""
_START_BYTES: Final = _START.size
_unpack_start: Final = _START.unpack_from
MAX_SPARES: Final = 32
"""How many exchanges are kept for later requests; who pipelines more than that has the others made anew."""


class ProduceTemplate:
    """What one such request came to, so that the next ones need not be parsed: the one way to know a Produce.

    Every Produce gets its exchange from here: the first of its kind when it was parsed, those that begin like it by
    `take`. With `is_plain` such a request needs nothing but to be charged with its bytes, and its response nothing at
    all if it ends with `response_end`; its exchange can then serve another one, and waits in `spares`.
    """

    __slots__ = (
        "_expects_response",
        "_max_bytes",
        "_place",
        "_place_on_wire",
        "_start",
        "_treatment",
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
        """Remember the request with this header, whose acks are in the chunk."""
        self._place = (header.api_key, header.api_version)
        self._treatment = treatment_of(*self._place)
        self._place_on_wire = header.api_key << 16 | header.api_version
        self._expects_response = expects_response
        self._max_bytes = max_bytes
        self.end = _acks_end(chunk, header) - header.start
        """How many bytes a request has up to and with its acks."""
        self._start = bytes(chunk[header.start + _START_BYTES : header.start + self.end])
        self.client = client
        self.version = client.version
        self.admit = client.produce.admit
        """Records the bytes of such requests where that surely gives no throttle time."""
        self.response_end = bare_end(header.api_version)
        self.spares: deque[InFlightRequest] = deque(maxlen=MAX_SPARES)
        self.is_plain = bool(self.response_end) and expects_response and not client.counts_requests

    def take(self, data: Buffer, offset: int) -> InFlightRequest | None:
        """Return the exchange of the request at an offset if it begins like this one, else None.

        That is what producers send all day long, and to compare costs less than to parse. Equal are API and version,
        client-id, transactional id and acks; None too where not all of that is there yet.
        """
        head_bytes = self.end
        if len(data) - offset < head_bytes:
            return None
        length, place, correlation_id = _unpack_start(data, offset)
        if (
            place != self._place_on_wire
            or not head_bytes <= length <= self._max_bytes
            or data[offset + _START_BYTES : offset + head_bytes] != self._start
        ):
            return None
        if not self.spares:
            return self.exchange(length, correlation_id)
        exchange = self.spares.pop()
        exchange.correlation_id = correlation_id
        exchange.frame_length = length
        exchange.request = FRAME_LENGTH_BYTES + length
        return exchange

    def retire(self) -> None:
        """Keep no exchange for later requests, for another Produce came.

        An exchange and what it repeats refer to each other. Who takes another client-id for each request would fill
        memory with them until the garbage collector came, which it does seldom.
        """
        self.spares = deque(maxlen=0)

    def exchange(self, frame_length: int, correlation_id: int) -> InFlightRequest:
        """Make the exchange of one such request."""
        exchange = InFlightRequest(self._place, correlation_id, frame_length, self._treatment)
        exchange.client = self.client
        exchange.limiter = self.client.produce
        exchange.expects_response = self._expects_response
        exchange.exempt = not self._expects_response
        if self.is_plain:
            exchange.repeats = self
        return exchange


def _acks_end(chunk: memoryview, header: RequestHeader) -> int:
    """Return the offset behind the acks of a Produce request, which are known to be there."""
    offset = header.end
    if header.api_version >= TRANSACTIONAL_ID_SINCE:
        skip = compact_string if header.api_version >= FLEXIBLE_SINCE else string
        offset = skip(chunk, offset, len(chunk))
    return offset + 2
