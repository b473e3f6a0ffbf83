"""What is decided about a request when its head has been seen, before a byte of it is passed on."""

from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quota_manager import Limiter, QuotaType
from kafka_quotas.enforcement.broker_quotas import BrokerQuotas, ClientLimits
from kafka_quotas.enforcement.exchange import FETCH, PRODUCE, RAW_TOKEN, Exchange, Treatment, treatment_of
from kafka_quotas.enforcement.frame_stream import Frame
from kafka_quotas.enforcement.identity import Identity
from kafka_quotas.enforcement.rules import Rules
from kafka_quotas.wire.fetch_request import cap_fetch, replica_id
from kafka_quotas.wire.frame import FRAME_LENGTH_BYTES, MAX_UNAUTHENTICATED_BYTES, checked_frame_length
from kafka_quotas.wire.produce_request import acks
from kafka_quotas.wire.request_header import RequestHeader, parse_request_header
from kafka_quotas.wire.sasl import starts_with_gssapi_token

MAX_INT32: Final = 2**31 - 1


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

    def begin(self, chunk: memoryview, offset: int) -> tuple[Exchange, Frame] | None:
        """The exchange that starts at `offset` and how to pass its request on; None if more bytes are needed.

        Raises `ProtocolError` where this is no request, or one whose response could not be handled.
        """
        if self._is_first and not self._look_at_first(chunk, offset):
            return None
        if self._identity.expects_tokens:
            token = self._begin_token(chunk, offset)
            if token is not None or self._identity.expects_tokens:
                return token
        header = parse_request_header(chunk, offset, max_frame_bytes=self._max_request_bytes)
        if header is None:
            return None
        exchange = Exchange(header, treatment_of(header.api_key, header.api_version))
        if not self._take(exchange, chunk, header):
            return None
        gather = exchange.treatment is Treatment.IDENTITY
        if gather and header.frame_length > MAX_UNAUTHENTICATED_BYTES:
            raise ProtocolError(f"an authentication request announces {header.frame_length} bytes")
        return exchange, Frame(header.frame_length + FRAME_LENGTH_BYTES, gather)

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

    def _begin_token(self, chunk: memoryview, offset: int) -> tuple[Exchange, Frame] | None:
        """The exchange of a bare token; None if more bytes are needed, or this is the first request after them."""
        length = checked_frame_length(chunk, offset, limit=MAX_UNAUTHENTICATED_BYTES)
        if length is None or (length and len(chunk) == offset + FRAME_LENGTH_BYTES):
            return None
        if self._identity.ends_tokens(chunk[offset + FRAME_LENGTH_BYTES] if length else None):
            return None
        exchange = Exchange(RequestHeader(RAW_TOKEN, 0, 0, "", offset, offset, length), Treatment.IDENTITY)
        exchange.expects_response = self._identity.reads_tokens
        return exchange, Frame(length + FRAME_LENGTH_BYTES, self._identity.reads_tokens)

    def _take(self, exchange: Exchange, chunk: memoryview, header: RequestHeader) -> bool:
        """Whether enough of a request has been seen to know all that its API asks for."""
        if exchange.api_key == PRODUCE:
            wanted = acks(chunk, header)
            if wanted is None:
                return False
            exchange.expects_response = wanted != 0
            _limit(exchange, QuotaType.PRODUCE, self.limits(exchange.client_id).produce)
            return True
        return exchange.api_key != FETCH or self._take_fetch(exchange, chunk, header)

    def _take_fetch(self, exchange: Exchange, chunk: memoryview, header: RequestHeader) -> bool:
        """Whether enough of a Fetch has been seen; its limits are lowered to one window of the quota then."""
        limiter = self.limits(exchange.client_id).fetch
        if self._internal and limiter.user in self._internal:
            replica = replica_id(chunk, header)
            if replica is None:
                return False
            if replica >= 0:
                return True
        _limit(exchange, QuotaType.FETCH, limiter)
        if not exchange.limited:
            return True
        window_bytes = limiter.max_value_in_window
        return window_bytes is None or cap_fetch(chunk, header, min(int(window_bytes), MAX_INT32)) is not None


def _limit(exchange: Exchange, quota_type: QuotaType, limiter: Limiter) -> None:
    exchange.quota_type = quota_type
    exchange.limiter = limiter
    exchange.limited = limiter.bound is not None
