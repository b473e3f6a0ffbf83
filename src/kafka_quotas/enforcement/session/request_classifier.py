"""The decisions about a request from its first bytes, before any of them is passed on."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.quota_charges import RequestTime, charges_of
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.quotas.client_limits import ClientLimits
from kafka_quotas.enforcement.session.frame_stream import Frame, Patch
from kafka_quotas.enforcement.session.in_flight import (
    FETCH,
    IDENTITY,
    PRODUCE,
    RAW_TOKEN,
    SHARE_FETCH,
    InFlightRequest,
)
from kafka_quotas.enforcement.session.principal import AUTHENTICATION, COMPLETE, PrincipalTracker, SaslState
from kafka_quotas.enforcement.session.produce_filters import QuotaErrorFilter, SequenceFilter
from kafka_quotas.enforcement.session.produce_template import ProduceTemplate
from kafka_quotas.enforcement.session.request_filter import NO_FILTERS, FilterFactory, NotFiltered
from kafka_quotas.wire.codec.frame import FRAME_LENGTH_BYTES, MAX_UNAUTHENTICATED_BYTES, checked_frame_length
from kafka_quotas.wire.passing.fetch_request import NO_SESSION, cap_fetch, fetch_session, replica_id
from kafka_quotas.wire.passing.fetch_response import answered_session
from kafka_quotas.wire.passing.produce_request import acks
from kafka_quotas.wire.passing.sasl import starts_with_gssapi_token
from kafka_quotas.wire.passing.share_fetch_request import LONGEST_UP_TO_LIMITS, cap_share_fetch
from kafka_quotas.wire.protocol.request_header import RequestHeader, parse_request_header

_FETCH_LIMITS_END: Final = 16
"""Bytes from the end of a Fetch header to the end of its limits: replica id, wait time, minimum and maximum size."""
MAX_INT32: Final = 2**31 - 1


OnRefused: TypeAlias = Callable[[Limiter, int], None]
"""(limiter, ms) -> None, for a request that is refused instead of being delayed for that time."""


class RequestClassifier:
    """The classification of requests: from first bytes to an `InFlightRequest`."""

    def __init__(
        self,
        *,
        quotas: BrokerQuotas,
        identity: PrincipalTracker,
        rules: EnforcementRules,
        on_refused: OnRefused,
        claims: Mapping[int, FilterFactory] = NO_FILTERS,
    ) -> None:
        self._on_refused = on_refused
        self._quotas = quotas
        self._identity = identity
        self.max_request_bytes = rules.max_request_bytes
        self._serves = None if rules.serves_all else rules.serves
        self._claims = claims
        self._claims_produce = claims.get(PRODUCE)
        self._client: ClientLimits | None = None
        self.last: ProduceTemplate | None = None
        """The template of the last Produce, None where each has to be parsed; only `repeated` says if it is valid."""
        self.wants_answers = True
        """Whether every request so far expects a response."""

    def repeated(self) -> ProduceTemplate | None:
        """Return the template of the last Produce if it still holds for the next one, else None.

        It holds while the client's policy and limits are unchanged and no filter is active for Produce.
        """
        # The principal needs no check: an authentication request resets `last`.
        last = self.last
        if (
            last is None
            or last.version != self._quotas.version
            or (self._claims_produce is not None and self._claims_produce.is_active)
        ):
            return None
        return last

    def begin(self, chunk: memoryview, offset: int, now_ms: int) -> InFlightRequest | None:
        """Return the in-flight request that starts at `offset`, with the decision how to pass it on.

        Returns:
            None if more bytes are needed.

        Raises:
            ProtocolError: The bytes are no request, or one whose response the daemon could not handle.
        """
        repeated = self.repeated()
        if repeated is not None:
            exchange = repeated.take(chunk, offset)
            if exchange is not None:
                return exchange
        identity = self._identity
        if identity.state is not COMPLETE:
            return self._begin_unserved(chunk, offset, now_ms)
        header = parse_request_header(chunk, offset, max_frame_bytes=self.max_request_bytes)
        if header is None:
            return None
        self._check_served(header)
        return self._begin_request(chunk, header, now_ms)

    def _begin_unserved(self, chunk: memoryview, offset: int, now_ms: int) -> InFlightRequest | None:
        """Return what `begin` returns, for a client that the broker may not serve yet."""
        identity = self._identity
        if identity.state is SaslState.INITIAL_REQUEST and not self._look_at_first(chunk, offset):
            return None
        if identity.expects_tokens:
            exchange = self._begin_token(chunk, offset)
            # `_begin_token` may find the first request after the tokens: it has a header again.
            if exchange is not None or identity.expects_tokens:
                return exchange
        header = parse_request_header(chunk, offset, max_frame_bytes=self.max_request_bytes)
        if header is None:
            return None
        self._check_served(header)
        identity.admit(header)
        if identity.wants_proof(header, is_charged=self._may_charge(header.api_key)):
            return self._question(header)
        return self._begin_request(chunk, header, now_ms)

    def _check_served(self, header: RequestHeader) -> None:
        if self._serves is not None and not self._serves(header.api_key):
            raise ProtocolError(
                f"API {header.api_key} is not served here",
                hint="ApiVersions leaves it out; see apis.allow, apis.deny and --unknown-apis",
            )

    def _begin_request(self, chunk: memoryview, header: RequestHeader, now_ms: int) -> InFlightRequest | None:
        """Return the in-flight request for a header, None if more bytes are needed."""
        exchange = self._taken(chunk, header)
        if exchange is not None and exchange.client is not None and exchange.client.refuses:
            self._refuse_over(exchange, header, now_ms)
        return exchange

    def _may_charge(self, api_key: int) -> bool:
        """Return whether a request of an API may count for a quota."""
        claim = self._claims.get(api_key)
        has_byte_rate = charges_of(api_key).byte_rate is not None
        return has_byte_rate or self._quotas.counts_requests or (claim is not None and claim.is_active)

    def _question(self, header: RequestHeader) -> InFlightRequest:
        """Return a request of our own that goes before the client's.

        It takes none of the client's bytes.
        """
        exchange = InFlightRequest.own(header.correlation_id, lambda frame, _: self._identity.told(frame))
        exchange.request = Frame(0, replacement=self._identity.question(header))
        return exchange

    def _taken(self, chunk: memoryview, header: RequestHeader) -> InFlightRequest | None:
        """Return the in-flight request for a header, before the check whether to refuse it."""
        key = header.api_key
        if key == PRODUCE:
            wanted = acks(chunk, header)
            if wanted is None:
                return None
            exchange, known = self._take_produce(chunk, header, wants_answer=wanted != 0), True
        else:
            exchange, known = InFlightRequest.of(header), True
        if key == FETCH:
            known = self._take_fetch(exchange, chunk, header)
        elif key == SHARE_FETCH:
            known = self._take_share_fetch(exchange, chunk, header)
        elif key != PRODUCE and (exchange.treatment is IDENTITY or self._quotas.counts_requests):
            self._take_other(exchange, header)
        claim = self._claims.get(key) if self._claims else None
        if claim is not None and known and claim.is_active:
            known = self._claimed(claim, exchange, chunk, header)
        return exchange if known else None

    def client(self, client_id: str) -> ClientLimits:
        """Return the limits of the connection's principal with a client-id."""
        client, user = self._client, self._identity.principal
        if (
            client is None
            or client.client_id != client_id
            or client.user != user
            or client.version != self._quotas.version
        ):
            client = self._client = self._quotas.client(user, client_id)
        return client

    def _refuse_over(self, exchange: InFlightRequest, header: RequestHeader, now_ms: int) -> None:
        """Refuse a Produce or fetch of a client that is over its byte rate.

        A Produce of a client that is no longer over it is filtered while batches may follow refused ones.
        """
        limiter = exchange.limiter
        # An error needs a response to carry it: a Produce with acks=0 is delayed instead.
        if limiter is None or not exchange.expects_response:
            return
        wait_ms = 0 if limiter.bound is None else limiter.would_throttle_ms(0, now_ms)
        if wait_ms > 0:
            exchange.limiter = None  # the bytes of a refused request count for no quota
            exchange.whole = QuotaErrorFilter(limiter, wait_ms, self._quotas.order)
            self._on_refused(limiter, wait_ms)
        elif exchange.api_key == PRODUCE and exchange.whole is None and self._quotas.order.holds_any(now_ms):
            exchange.whole = SequenceFilter(header, self._quotas.order)
        else:
            return
        exchange.unlike()
        exchange.request = Frame(exchange.frame_length + FRAME_LENGTH_BYTES, gather=True)

    def _claimed(
        self, claim: FilterFactory, exchange: InFlightRequest, chunk: memoryview, header: RequestHeader
    ) -> bool:
        """Ask a factory for a filter, and return whether the first bytes were enough to decide."""
        if exchange.client is None:
            exchange.client = self.client(header.client_id)
        # A filter may throttle the client with its response, so the next request waits; the factory may reset this.
        decides, exchange.decides = exchange.decides, True
        whole = claim.claim(exchange, chunk, header)
        if isinstance(whole, NotFiltered):
            exchange.decides = decides
            return whole is NotFiltered.STREAMS
        exchange.whole = whole
        exchange.unlike()
        exchange.request = Frame(header.frame_length + FRAME_LENGTH_BYTES, gather=True)
        return True

    def _take_other(self, exchange: InFlightRequest, header: RequestHeader) -> None:
        """Decide from its header about a request that counts for no byte rate.

        Raises:
            ProtocolError: It is an authentication request that is longer than a broker accepts.
        """
        if exchange.treatment is IDENTITY:
            if header.frame_length > MAX_UNAUTHENTICATED_BYTES:
                raise ProtocolError(f"an authentication request announces {header.frame_length} bytes")
            exchange.request = Frame(header.frame_length + FRAME_LENGTH_BYTES, gather=True)
            # A broker answers one token before it reads the next, and its response decides on the principal.
            exchange.decides = True
            self.last = None
        # An authenticator charges nothing. Before any other API `wants_proof` has made sure that the client is served.
        if self._quotas.counts_requests and (self._identity.state is COMPLETE or header.api_key not in AUTHENTICATION):
            client, time = self.client(header.client_id), charges_of(header.api_key).request_time
            is_exempt = client.is_internal and time is RequestTime.UNLESS_BROKER
            is_counted = client.counts_requests and time is not RequestTime.NOT_SERVED
            if is_counted or (is_exempt and client.counts_exempt):
                exchange.client = client
                exchange.exempt = is_exempt

    def _look_at_first(self, chunk: memoryview, offset: int) -> bool:
        """Find out whether the connection starts with a GSSAPI token.

        Returns:
            False if more bytes are needed.
        """
        is_token = starts_with_gssapi_token(chunk, offset)
        if is_token is None:
            return False
        if is_token:
            self._identity.expect_opaque_tokens()
        return True

    def _begin_token(self, chunk: memoryview, offset: int) -> InFlightRequest | None:
        """Return the in-flight request for a bare token.

        Returns:
            None if more bytes are needed, or if this is the first request after the tokens.
        """
        length = checked_frame_length(chunk, offset, limit=MAX_UNAUTHENTICATED_BYTES)
        # The first byte after the length tells a request from an opaque token.
        if length is None or (length and len(chunk) == offset + FRAME_LENGTH_BYTES):
            return None
        if self._identity.ends_tokens(chunk[offset + FRAME_LENGTH_BYTES] if length else None):
            return None
        exchange = InFlightRequest((RAW_TOKEN, 0), 0, length, IDENTITY)
        # How many responses an opaque mechanism sends is unknown, so its tokens stream both ways without pairing.
        is_read = self._identity.reads_tokens
        exchange.expects_response = exchange.decides = is_read
        exchange.request = Frame(length + FRAME_LENGTH_BYTES, gather=is_read)
        return exchange

    def _take_produce(self, chunk: memoryview, header: RequestHeader, *, wants_answer: bool) -> InFlightRequest:
        """Return the in-flight request for a Produce whose acks have been read, and keep its template."""
        if not wants_answer:
            self.wants_answers = False
        client = self.client(header.client_id)
        repeated = ProduceTemplate(
            chunk, header, client, expects_response=wants_answer, max_bytes=self.max_request_bytes
        )
        if self.last is not None:
            self.last.retire()
        # Each Produce of a client that gets errors has to be checked against its quota before it passes.
        self.last = None if client.refuses else repeated
        return repeated.exchange(header.frame_length, header.correlation_id)

    def _take_fetch(self, exchange: InFlightRequest, chunk: memoryview, header: RequestHeader) -> bool:
        """Decide about a Fetch, and lower its size limits to one window of the quota.

        Returns:
            False if more bytes are needed.
        """
        client = self.client(header.client_id)
        if client.is_internal:
            replica = replica_id(chunk, header)
            if replica is None:
                return False
            # A follower's fetch counts for no client's byte rate, as in `KafkaApis`.
            if replica >= 0:
                exchange.exempt = True
                exchange.client = client if client.counts_requests or client.counts_exempt else None
                return True
        limiter = client.fetch
        window_bytes = None if client.is_shadow else limiter.max_value_in_window
        if client.empties_fetches and (window_bytes is not None or client.counts_requests):
            session = fetch_session(chunk, header)
            if session is None:
                return False
            exchange.session_id = answered_session(*session)
        if window_bytes is not None:
            head = bytearray(chunk[header.start : min(header.end + _FETCH_LIMITS_END, header.frame_end)])
            relative = header._replace(start=0, end=header.end - header.start)
            if cap_fetch(head, relative, min(int(window_bytes), MAX_INT32)) is None:
                return False
            exchange.request = Frame(header.frame_length + FRAME_LENGTH_BYTES, patch=Patch(header.start, bytes(head)))
        exchange.client = client
        exchange.limiter = limiter
        exchange.decides = window_bytes is not None or client.counts_requests
        return True

    def _take_share_fetch(self, exchange: InFlightRequest, chunk: memoryview, header: RequestHeader) -> bool:
        """Decide about a ShareFetch, and lower its limits if its data is delivered.

        The new limits are one window of the quota: the client must not be muted for longer than it holds the locks on
        the records that it got. A broker does not lower them; it returns no records while it throttles.

        Returns:
            False if more bytes are needed.
        """
        client = self.client(header.client_id)
        limiter = client.fetch
        window_bytes = None if client.is_shadow else limiter.max_value_in_window
        exchange.decides = window_bytes is not None or client.counts_requests
        if client.empties_fetches and exchange.decides:
            exchange.session_id = NO_SESSION
        elif window_bytes is not None:
            head = bytearray(chunk[header.start : min(header.end + LONGEST_UP_TO_LIMITS, header.frame_end)])
            relative = header._replace(start=0, end=header.end - header.start)
            end = cap_share_fetch(head, relative, min(int(window_bytes), MAX_INT32))
            if end is None:
                return False
            patch = Patch(header.start, bytes(head[:end]))
            exchange.request = Frame(header.frame_length + FRAME_LENGTH_BYTES, patch=patch)
        exchange.client = client
        exchange.limiter = limiter
        return True
