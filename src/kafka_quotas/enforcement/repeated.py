"""Produce requests that start with the same bytes, as a producer sends them all day long."""

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

from kafka_quotas.enforcement.client import Client
from kafka_quotas.enforcement.exchange import Exchange
from kafka_quotas.enforcement.response_form import bare_end
from kafka_quotas.wire.produce_request import FLEXIBLE_SINCE, TRANSACTIONAL_ID_SINCE
from kafka_quotas.wire.request_header import RequestHeader
from kafka_quotas.wire.walk import compact_string, string

START: Final = Struct(">iIi")
"""Length, API key and version as one figure, correlation id."""
START_BYTES: Final = START.size
MAX_SPARES: Final = 32
"""How many exchanges are kept for later requests; who pipelines more than that has the others made anew."""

Plain: TypeAlias = tuple[str, int, int, bytes, int, Callable[[float, int], bool], deque[Exchange]]
"""User, `Client.version`, place on the wire, start, where that ends, what admits bytes, spares: all that has to be
known of plain requests, in one tuple because that is looked at once per read."""


class Repeated:
    """What one such request came to, so that the next ones need not be parsed.

    `start` is what stands behind `START`, up to and with the acks, and `end` where that ends in the request. With
    `plain` such a request needs nothing but to be charged with its bytes, and its response nothing at all if it ends
    with `response_end`; its exchange can then serve another one, and waits for that in `spares`.
    """

    __slots__ = (
        "_like",
        "client",
        "end",
        "expects_response",
        "place_on_wire",
        "plain",
        "response_end",
        "spares",
        "start",
    )

    def __init__(self, chunk: memoryview, header: RequestHeader, like: Exchange, client: Client) -> None:
        """Remembers the request with this header and exchange, whose acks are in the chunk."""
        self.end = _acks_end(chunk, header) - header.start
        self.place_on_wire = header.api_key << 16 | header.api_version
        self.start = bytes(chunk[header.start + START_BYTES : header.start + self.end])
        self.expects_response = like.expects_response
        self.client = client
        self.response_end = bare_end(like.api_version)
        self.spares: deque[Exchange] = deque(maxlen=MAX_SPARES)
        is_plain = self.response_end and like.expects_response and not client.counts_requests
        self.plain: Plain | None = (
            (client.user, client.version, self.place_on_wire, self.start, self.end, client.produce.admit, self.spares)
            if is_plain
            else None
        )
        self._like = (like.place, like.treatment)

    def exchange(self, correlation_id: int, frame_length: int) -> Exchange:
        """The exchange of one more such request."""
        place, treatment = self._like
        exchange = Exchange(place, correlation_id, frame_length, treatment)
        exchange.expects_response = self.expects_response
        exchange.client = self.client
        exchange.limiter = self.client.produce
        exchange.exempt = not self.expects_response
        return exchange

    def plain_exchange(self) -> Exchange:
        """A further exchange that can serve one plain request after the other."""
        exchange = self.exchange(0, 0)
        exchange.repeats = self
        return exchange


def _acks_end(chunk: memoryview, header: RequestHeader) -> int:
    """The offset behind the acks of a Produce request, which are known to be there."""
    offset = header.end
    if header.api_version >= TRANSACTIONAL_ID_SINCE:
        skip = compact_string if header.api_version >= FLEXIBLE_SINCE else string
        offset = skip(chunk, offset, len(chunk))
    return offset + 2
