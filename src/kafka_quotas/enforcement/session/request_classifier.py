"""The decisions about a request from its first bytes, before any of them is passed on."""

from collections.abc import Mapping
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.quota_charges import RESPONSE_BYTES, RequestTime, charges_of
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.quotas.client_limits import ClientLimits
from kafka_quotas.enforcement.session.fetch_admission import FetchAdmission
from kafka_quotas.enforcement.session.frame_stream import Frame
from kafka_quotas.enforcement.session.in_flight import (
    AUTHENTICATION,
    FETCH,
    PRODUCE,
    RAW_TOKEN,
    SHARE_FETCH,
    InFlightRequest,
)
from kafka_quotas.enforcement.session.principal import COMPLETE, UNAUTHENTICATED_APIS, PrincipalTracker, SaslState
from kafka_quotas.enforcement.session.produce_filters import QuotaErrorFilter, SequenceFilter
from kafka_quotas.enforcement.session.produce_template import ProduceTemplate
from kafka_quotas.enforcement.session.quota_accounting import QuotaAccounting
from kafka_quotas.enforcement.session.request_filter import FilterFactory, NotFiltered, ProduceProtection
from kafka_quotas.enforcement.session.session_state import SessionState
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES, MAX_UNAUTHENTICATED_BYTES, checked_frame_length
from kafka_quotas.wire.passing.fetch_request import (
    NO_SESSION,
    fetch_session,
    replica_id,
)
from kafka_quotas.wire.passing.fetch_response import answered_session
from kafka_quotas.wire.passing.produce_request import acks
from kafka_quotas.wire.passing.sasl import starts_with_gssapi_token
from kafka_quotas.wire.protocol.header import RequestHeader, parse_request_header

MAX_INT32: Final = 2**31 - 1


class RequestClassifier:
    """The classification of requests: from first bytes to an `InFlightRequest`."""

    def __init__(
        self,
        state: SessionState,
        *,
        quotas: BrokerQuotas,
        tracker: PrincipalTracker,
        rules: EnforcementRules,
        accounting: QuotaAccounting,
        factories: Mapping[int, FilterFactory],
    ) -> None:
        self._state = state
        self._accounting = accounting
        self._admission = FetchAdmission(state=state, accounting=accounting)
        self._tracker = tracker
        self.max_request_bytes = rules.max_request_bytes
        self._serves = None if rules.serves_all else rules.serves
        self._pending: RequestHeader | None = None
        """The header at offset 0 of a request of which more bytes are needed: no byte of it is parsed twice."""
        self.last: ProduceTemplate | None = None
        """The template of the last Produce, None where each has to be parsed; the template knows if it is valid."""
        self.move(quotas, factories)

    def move(self, quotas: BrokerQuotas, factories: Mapping[int, FilterFactory]) -> None:
        """Classify requests by the quotas and filters of another broker from the next one on."""
        self._quotas = quotas
        self._factories = factories
        self._client: ClientLimits | None = None
        self.last = None

    def begin(self, chunk: memoryview, offset: int, now_ms: int) -> InFlightRequest | None:
        """Return the in-flight request that starts at `offset`, with the decision how to pass it on.

        Returns:
            None if more bytes are needed.

        Raises:
            ProtocolError: The bytes are no request, or one whose response the daemon could not handle.
        """
        taken = list[InFlightRequest]()
        last = self.last if self._pending is None else None
        if last is not None and last.take(chunk, offset, MAX_INT32, 1, taken) > offset:
            taken[0].decision = FRAME_LENGTH_BYTES + taken[0].frame_length
            return taken[0]
        if self._tracker.state is not COMPLETE:
            return self._begin_unserved(chunk, offset, now_ms)
        header = self._header(chunk, offset)
        return None if header is None else self._begin_request(chunk, header, now_ms)

    def _begin_unserved(self, chunk: memoryview, offset: int, now_ms: int) -> InFlightRequest | None:
        """Return what `begin` returns, for a client that the broker may not serve yet."""
        tracker = self._tracker
        if tracker.state is SaslState.INITIAL_REQUEST:
            # Kerberos clients of Kafka 0.9 begin with a bare token, without any request before it.
            is_token = starts_with_gssapi_token(chunk, offset)
            if is_token is None:
                return None
            if is_token:
                tracker.expect_opaque_tokens()
        if tracker.expects_tokens:
            request = self._begin_token(chunk, offset)
            # `_begin_token` may find the first request after the tokens: it has a header again.
            if request is not None or tracker.expects_tokens:
                return request
        header = self._header(chunk, offset)
        if header is None:
            return None
        tracker.admit(header)
        # The client's bytes stay kept: after the broker's answer `begin` sees this request again.
        if tracker.needs_proof(header, is_charged=self._may_charge(header.api_key)):
            return self._proof_request(header)
        return self._begin_request(chunk, header, now_ms)

    def _header(self, chunk: memoryview, offset: int) -> RequestHeader | None:
        """Return the header of the request at an offset, None if more bytes are needed."""
        header = self._pending
        if header is not None:
            return header
        header = parse_request_header(chunk, offset, max_frame_bytes=self.max_request_bytes)
        if header is not None and self._serves is not None and not self._serves(header.api_key):
            raise ProtocolError(
                f"API {header.api_key} is not served here",
                hint="ApiVersions leaves it out; see apis.allow, apis.deny and --unknown-apis",
            )
        return header

    def _begin_request(self, chunk: memoryview, header: RequestHeader, now_ms: int) -> InFlightRequest | None:
        """Return the in-flight request for a header, None if more bytes are needed."""
        request = self._classify(chunk, header)
        if request is not None and request.client is not None and request.client.refuses:
            self._refuse_over(request, header, now_ms)
        if request is None or (
            header.api_key in RESPONSE_BYTES and not self._admission.admit(request, chunk, header, now_ms)
        ):
            # What waits for more bytes, or for room, is kept from its start on.
            self._pending = header._replace(start=0, end=header.end - header.start)
            return None
        if self._state.held is not None:  # it waits no more, or has no limit any more
            self._state.hold(None)
            if self._state.turn.is_waiting:
                self._state.turn.leave(now_ms)
        self._pending = None
        return request

    def _may_charge(self, api_key: int) -> bool:
        factory = self._factories.get(api_key)
        has_byte_rate = charges_of(api_key).byte_rate is not None
        return has_byte_rate or self._quotas.counts_requests or (factory is not None and factory.is_active)

    def _proof_request(self, header: RequestHeader) -> InFlightRequest:
        """Return a request of our own that goes before the client's, and takes none of the client's bytes."""
        request = InFlightRequest.own(header.correlation_id, lambda frame, _: self._tracker.take_proof(frame))
        request.decision = Frame(0, replacement=self._tracker.proof_request(header))
        return request

    def _classify(self, chunk: memoryview, header: RequestHeader) -> InFlightRequest | None:
        """Return the in-flight request for a header, before the check whether to refuse it."""
        key = header.api_key
        is_known = True
        if key == PRODUCE:
            wanted = acks(chunk, header)
            if wanted is None:
                return None
            request = self._take_produce(chunk, header, expects_response=wanted != 0)
        else:
            request = InFlightRequest.of(header)
        if key == FETCH:
            is_known = self._take_fetch(request, chunk, header)
        elif key == SHARE_FETCH:
            self._take_share_fetch(request, header)
        elif key != PRODUCE and (request.action is AUTHENTICATION or self._quotas.counts_requests):
            self._take_other(request, header)
        factory = self._factories.get(key)
        if factory is not None and is_known and factory.is_active:
            is_known = self._has_filter_or_none(factory, request, chunk, header)
        return request if is_known else None

    def client(self, client_id: str) -> ClientLimits:
        """Return the limits of the connection's principal with a client-id."""
        client, user = self._client, self._tracker.principal
        if (
            client is None
            or client.client_id != client_id
            or client.user != user
            or client.version != self._quotas.version
        ):
            client = self._client = self._quotas.client(user, client_id)
        return client

    def _refuse_over(self, request: InFlightRequest, header: RequestHeader, now_ms: int) -> None:
        """Refuse a Produce or fetch of a client that is over its byte rate.

        A Produce of a client that is no longer over it is filtered while batches may follow refused ones.
        """
        limiter = request.limiter
        # An error needs a response to carry it: a Produce with acks=0 is delayed instead.
        if limiter is None or not request.expects_response:
            return
        wait_ms = 0 if limiter.bound is None else limiter.would_throttle_ms(0, now_ms)
        if wait_ms > 0 and not self._accounting.is_refused_often(now_ms):
            request.limiter = None  # the bytes of a refused request count for no quota
            mutes = self._accounting.refused(limiter, wait_ms, now_ms)
            request.filter = QuotaErrorFilter(header, limiter, wait_ms, self._quotas.sequences, mutes=mutes)
        elif request.api_key == PRODUCE and request.filter is None and self._quotas.sequences.holds_any(now_ms):
            request.filter = SequenceFilter(header, self._quotas.sequences)
        else:
            return
        self._gather(request)

    def _has_filter_or_none(
        self, factory: FilterFactory, request: InFlightRequest, chunk: memoryview, header: RequestHeader
    ) -> bool:
        """Ask a factory for a filter, and return whether the first bytes were enough to decide."""
        if request.client is None:
            request.client = self.client(header.client_id)
        # A filter may throttle the client with its response, so the next request waits; the factory may reset this.
        blocks_next, request.blocks_next = request.blocks_next, True
        made = factory.make_filter(request, chunk, header)
        if isinstance(made, NotFiltered):
            request.blocks_next = blocks_next
            return made is NotFiltered.STREAMS
        request.filter = made
        self._gather(request)
        return True

    def _gather(self, request: InFlightRequest) -> None:
        # A later request must not reuse this one for the fast path, which never gathers.
        request.forget_template()
        request.decision = Frame(request.frame_length + FRAME_LENGTH_BYTES, gather=True)

    def _take_other(self, request: InFlightRequest, header: RequestHeader) -> None:
        """Decide from its header about a request that counts for no byte rate."""
        if request.action is AUTHENTICATION:
            if header.frame_length > MAX_UNAUTHENTICATED_BYTES:
                raise ProtocolError(f"an authentication request announces {header.frame_length} bytes")
            self._gather(request)
            # A broker answers one token before it reads the next, and its response decides on the principal.
            request.blocks_next = True
            self.last = None
        # An authenticator charges nothing. Before any other API `needs_proof` has made sure that the client is served.
        is_served = self._tracker.state is COMPLETE or header.api_key not in UNAUTHENTICATED_APIS
        if self._quotas.counts_requests and is_served:
            client, time = self.client(header.client_id), charges_of(header.api_key).request_time
            is_exempt = client.is_internal and time is RequestTime.UNLESS_BROKER
            is_counted = client.counts_requests and time is not RequestTime.NOT_SERVED
            if is_counted or (is_exempt and client.counts_exempt):
                request.client = client
                request.exempt = is_exempt

    def _begin_token(self, chunk: memoryview, offset: int) -> InFlightRequest | None:
        """Return a bare token, None if bytes are missing or this is the first request after the tokens."""
        length = checked_frame_length(chunk, offset, limit=MAX_UNAUTHENTICATED_BYTES)
        # Clients of version 0 of SaslHandshake send tokens without a header (KIP-43), up to their first request.
        # The first byte after the length tells a request from an opaque token.
        if length is None or (length and len(chunk) == offset + FRAME_LENGTH_BYTES):
            return None
        if self._tracker.ends_tokens(chunk[offset + FRAME_LENGTH_BYTES] if length else None):
            return None
        request = InFlightRequest((RAW_TOKEN, 0), 0, length, AUTHENTICATION)
        # How many responses an opaque mechanism sends is unknown, so its tokens stream both ways without pairing.
        is_read = self._tracker.reads_tokens
        request.expects_response = request.blocks_next = is_read
        request.decision = Frame(length + FRAME_LENGTH_BYTES, gather=is_read)
        return request

    def _take_produce(self, chunk: memoryview, header: RequestHeader, *, expects_response: bool) -> InFlightRequest:
        if not expects_response:
            self._state.expects_all_responses = False
        client, factory = self.client(header.client_id), self._factories.get(PRODUCE)
        start_end, is_reusable = None, not client.refuses
        if isinstance(factory, ProduceProtection):
            start_end = factory.harmless_until(chunk, header)
            is_reusable = is_reusable and start_end is not None
            factory = factory.inner
        template = ProduceTemplate(
            chunk,
            header,
            client,
            expects_response=expects_response,
            max_bytes=self.max_request_bytes,
            quotas=self._quotas,
            factory=factory,
            start_end=start_end,
        )
        if self.last is not None:
            self.last.retire()  # also after a change of the quotas, whose limiters a spare request would keep
        # Each Produce of a client that gets errors has to be checked against its quota before it passes.
        self.last = template if is_reusable else None
        return template.request(header.frame_length, header.correlation_id)

    def _take_fetch(self, request: InFlightRequest, chunk: memoryview, header: RequestHeader) -> bool:
        """Lower a Fetch's size limits to one window of the quota, and return whether its bytes were enough."""
        client = self.client(header.client_id)
        # Anybody can claim to be a follower in a Fetch: only an internal principal is believed (CLUSTER_ACTION).
        if client.is_internal:
            replica = replica_id(chunk, header)
            if replica is None:
                return False
            # A follower's fetch counts for no client's byte rate, as in `KafkaApis`.
            if replica >= 0:
                request.exempt = True
                request.client = client if client.counts_requests or client.counts_exempt else None
                return True
        limiter = client.fetch
        has_limit = not client.is_shadow and limiter.bound is not None
        # The empty response has to name the session that the client knows (KIP-227), which only the request shows.
        if (client.holds_fetches and has_limit) or (client.empties_fetches and (has_limit or client.counts_requests)):
            session = fetch_session(chunk, header)
            if session is None:
                return False
            request.session_id = answered_session(*session)
        request.client = client
        request.limiter = limiter
        # Its response may set a throttle time, and what is pipelined after it must not pass before that.
        request.blocks_next = has_limit or client.counts_requests
        return True

    def _take_share_fetch(self, request: InFlightRequest, header: RequestHeader) -> None:
        client = self.client(header.client_id)
        has_limit = not client.is_shadow and client.fetch.bound is not None
        request.blocks_next = has_limit or client.counts_requests
        if (client.holds_fetches and has_limit) or (client.empties_fetches and request.blocks_next):
            request.session_id = NO_SESSION
        request.client = client
        request.limiter = client.fetch
