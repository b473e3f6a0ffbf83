"""What is decided about a request when its head has been seen, before a byte of it is passed on."""

from struct import Struct
from typing import Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quota_manager import Limiter, QuotaType
from kafka_quotas.enforcement.broker_quotas import BrokerQuotas, ClientLimits
from kafka_quotas.enforcement.exchange import (
    FETCH,
    IDENTITY,
    PRODUCE,
    RAW_TOKEN,
    SASL_HANDSHAKE,
    Exchange,
    Treatment,
)
from kafka_quotas.enforcement.frame_stream import Frame, Patch
from kafka_quotas.enforcement.identity import Identity
from kafka_quotas.enforcement.rules import Rules
from kafka_quotas.wire.fetch_request import cap_fetch, replica_id
from kafka_quotas.wire.frame import FRAME_LENGTH_BYTES, MAX_UNAUTHENTICATED_BYTES, checked_frame_length
from kafka_quotas.wire.produce_request import FLEXIBLE_SINCE, TRANSACTIONAL_ID_SINCE, acks
from kafka_quotas.wire.request_header import RequestHeader, parse_request_header
from kafka_quotas.wire.sasl import starts_with_gssapi_token
from kafka_quotas.wire.walk import compact_string, string

_FETCH_LIMITS_END: Final = 16
"""How far behind the header the limits of a Fetch end: replica id, waiting time, smallest and largest size."""
MAX_INT32: Final = 2**31 - 1


_START: Final = Struct(">iIi")
"""Length, API key and version as one figure, correlation id."""
_START_BYTES: Final = _START.size


class _Produce(NamedTuple):
    """A Produce request's first bytes, behind `_START` up to and with its acks, and what they came to."""

    place: tuple[int, int]
    place_on_wire: int
    start: bytes
    end: int
    client_id: str
    treatment: Treatment
    expects_response: bool
    limiter: Limiter

    @classmethod
    def of(cls, chunk: memoryview, header: RequestHeader, exchange: Exchange, limiter: Limiter) -> "_Produce":
        """The memory of a request that starts at the header's `start`."""
        end = _acks_end(chunk, header) - header.start
        return cls(
            place=exchange.place,
            place_on_wire=header.api_key << 16 | header.api_version,
            start=bytes(chunk[header.start + _START_BYTES : header.start + end]),
            end=end,
            client_id=header.client_id,
            treatment=exchange.treatment,
            expects_response=exchange.expects_response,
            limiter=limiter,
        )


class RequestIntake:
    """Turns the first bytes of a request into an `Exchange`."""

    def __init__(self, *, quotas: BrokerQuotas, identity: Identity, rules: Rules) -> None:
        self._quotas = quotas
        self._identity = identity
        self._max_request_bytes = rules.max_request_bytes
        self._internal = rules.internal_principals
        self._limits: ClientLimits | None = None
        self._limits_of: tuple[str, str] | None = None
        self._is_first = True
        self._last: _Produce | None = None

    def begin_again(self, chunk: memoryview, offset: int) -> Exchange | None:
        """The exchange of a Produce that starts as the last one did, but for its length and correlation id; else None.

        That is what producers send all day long; to compare costs less than to parse.
        """
        last = self._last
        if last is None or len(chunk) - offset < last.end:
            return None
        length, place, correlation_id = _START.unpack_from(chunk, offset)
        if (
            place != last.place_on_wire
            or chunk[offset + _START_BYTES : offset + last.end] != last.start
            or not last.end <= length <= self._max_request_bytes
            or last.limiter.user != self._identity.principal
        ):
            return None
        exchange = Exchange(last.place, correlation_id, last.client_id, length, last.treatment)
        exchange.expects_response = last.expects_response
        exchange.limiter = last.limiter
        return exchange

    def begin(self, chunk: memoryview, offset: int) -> Exchange | None:
        """The exchange that starts at `offset`, with how to pass its request on; None if more bytes are needed.

        Raises `ProtocolError` where this is no request, or one whose response could not be handled.
        """
        if self._is_first and not self._look_at_first(chunk, offset):
            return None
        if self._identity.expects_tokens:
            exchange = self._begin_token(chunk, offset)
            if exchange is not None or self._identity.expects_tokens:
                return exchange
        header = parse_request_header(chunk, offset, max_frame_bytes=self._max_request_bytes)
        return None if header is None else self._begin_request(chunk, header)

    def _begin_request(self, chunk: memoryview, header: RequestHeader) -> Exchange | None:
        """The exchange of a request with this header; None if more has to be seen of it."""
        exchange = Exchange.of(header)
        if header.api_key == FETCH:
            return exchange if self._take_fetch(exchange, chunk, header) else None
        if header.api_key == PRODUCE:
            return exchange if self._take_produce(exchange, chunk, header) else None
        if exchange.treatment is IDENTITY:
            if header.frame_length > MAX_UNAUTHENTICATED_BYTES:
                raise ProtocolError(f"an authentication request announces {header.frame_length} bytes")
            exchange.request = Frame(header.frame_length + FRAME_LENGTH_BYTES, gather=True)
            exchange.decides = header.api_key == SASL_HANDSHAKE
        return exchange

    def limits(self, client_id: str) -> ClientLimits:
        """The handles of the connection's principal with this client-id."""
        key = (self._identity.principal, client_id)
        if self._limits is None or self._limits_of != key:
            self._limits = self._quotas.limits(*key)
            self._limits_of = key
        return self._limits

    def _look_at_first(self, chunk: memoryview, offset: int) -> bool:
        """Whether enough of the connection's first bytes is there to see which way it starts."""
        is_token = starts_with_gssapi_token(chunk, offset)
        if is_token is None:
            return False
        self._is_first = False
        if is_token:
            self._identity.expect_opaque_tokens()
        return True

    def _begin_token(self, chunk: memoryview, offset: int) -> Exchange | None:
        """The exchange of a bare token; None if more bytes are needed, or this is the first request after them."""
        length = checked_frame_length(chunk, offset, limit=MAX_UNAUTHENTICATED_BYTES)
        if length is None or (length and len(chunk) == offset + FRAME_LENGTH_BYTES):
            return None
        if self._identity.ends_tokens(chunk[offset + FRAME_LENGTH_BYTES] if length else None):
            return None
        exchange = Exchange((RAW_TOKEN, 0), 0, "", length, IDENTITY)
        is_read = self._identity.reads_tokens
        exchange.expects_response = exchange.decides = is_read
        exchange.request = Frame(length + FRAME_LENGTH_BYTES, gather=is_read)
        return exchange

    def _take_produce(self, exchange: Exchange, chunk: memoryview, header: RequestHeader) -> bool:
        """Whether enough of a Produce has been seen to know whether it will have a response."""
        wanted = acks(chunk, header)
        if wanted is None:
            return False
        exchange.expects_response = wanted != 0
        limiter = self.limits(exchange.client_id).produce
        exchange.limiter = limiter
        self._last = _Produce.of(chunk, header, exchange, limiter)
        return True

    def _take_fetch(self, exchange: Exchange, chunk: memoryview, header: RequestHeader) -> bool:
        """Whether enough of a Fetch has been seen; its limits are lowered to one window of the quota then."""
        limiter = self.limits(exchange.client_id).fetch
        if self._internal and limiter.user in self._internal:
            replica = replica_id(chunk, header)
            if replica is None:
                return False
            if replica >= 0:
                return True
        exchange.quota_type = QuotaType.FETCH
        exchange.limiter = limiter
        window_bytes = limiter.max_value_in_window
        if window_bytes is None:
            return True
        head = bytearray(chunk[header.start : min(header.end + _FETCH_LIMITS_END, header.frame_end)])
        relative = header._replace(start=0, end=header.end - header.start)
        if cap_fetch(head, relative, min(int(window_bytes), MAX_INT32)) is None:
            return False
        exchange.decides = True
        exchange.request = Frame(header.frame_length + FRAME_LENGTH_BYTES, patch=Patch(header.start, bytes(head)))
        return True


def _acks_end(chunk: memoryview, header: RequestHeader) -> int:
    """The offset behind the acks of a Produce request, which are known to be there."""
    offset = header.end
    if header.api_version >= TRANSACTIONAL_ID_SINCE:
        skip = compact_string if header.api_version >= FLEXIBLE_SINCE else string
        offset = skip(chunk, offset, len(chunk))
    return offset + 2
