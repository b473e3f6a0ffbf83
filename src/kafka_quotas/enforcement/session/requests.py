"""The client's side of a connection: what becomes of a request by its first bytes, and at its end.

Most requests stream: their first bytes decide how they pass, and at their end they are charged. A filtered request is
gathered; the filter then forwards it, responds to it, or first sends the broker a request of its own.

A Fetch or ShareFetch of a client with a byte rate begins when its bucket has room for it; until then the session keeps
it. A Fetch waits as long as its client lets the broker wait for data (`max_wait_ms`) and gets an empty response then,
as from a broker without data, with the time after which to come again. A ShareFetch carries acknowledgements, which the
broker has to get: it waits a little longer, and is passed on then in any case.
"""

from collections.abc import Generator, Mapping
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.quota_charges import RESPONSE_BYTES, RequestTime, charges_of
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas, ClientLimits
from kafka_quotas.enforcement.session.filters import (
    EmptyFetchFilter,
    FilterFactory,
    ProduceProtection,
    QuotaErrorFilter,
    SequenceFilter,
)
from kafka_quotas.enforcement.session.frames import Decision, Frame, Patch
from kafka_quotas.enforcement.session.identity import COMPLETE, UNAUTHENTICATED_APIS, SaslState
from kafka_quotas.enforcement.session.in_flight import (
    AUTHENTICATION,
    FETCH,
    PRODUCE,
    SHARE_FETCH,
    InFlightRequest,
    ProduceTemplate,
    response_action,
)
from kafka_quotas.enforcement.session.responses import ResponseHandler
from kafka_quotas.enforcement.session.state import ThrottledChannel
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES, MAX_UNAUTHENTICATED_BYTES
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.header import RequestHeader, parse_request_header
from kafka_quotas.wire.proxying.fetch_request import NO_SESSION, FetchLimits, fetch_limits, fetch_session, replica_id
from kafka_quotas.wire.proxying.fetch_response import answered_session
from kafka_quotas.wire.proxying.produce import acks
from kafka_quotas.wire.proxying.sasl import starts_with_gssapi_token

_HELD_SHARE_MS: Final = 5_000
"""Time for which a ShareFetch waits at least: without its records it would use up a delivery of each of them."""
_AT_BROKER_MS: Final = 500
"""Longest time for which a broker waits for the data of a fetch that has room reserved, which others lack meanwhile.

It is the default of Kafka's clients (`fetch.max.wait.ms`).
"""
_MAX_INT32: Final = 2**31 - 1


class RequestHandler:
    """The requests of one connection, from their first byte until they wait for their responses."""

    def __init__(
        self,
        responses: ResponseHandler,
        rules: EnforcementRules,
        quotas: BrokerQuotas,
        factories: Mapping[int, FilterFactory],
    ) -> None:
        self._responses = responses
        self._state = responses.state
        self._accounting = responses.accounting
        self._tracker = responses.tracker
        self._memory = responses.requests_memory
        self._max_request_bytes = rules.max_request_bytes
        self._serves = None if rules.serves_all else rules.serves
        self._pending: RequestHeader | None = None
        """The header at offset 0 of a request of which more bytes are needed: no byte of it is parsed twice."""
        self._held: InFlightRequest | None = None
        """The fetch at offset 0 that waits for room in its bucket."""
        self._postponed: InFlightRequest | None = None
        self._receiving: InFlightRequest | None = None
        self.last: ProduceTemplate | None = None
        """The template of the last Produce, None if each has to be parsed; the template knows if it is valid."""
        self.move(quotas, factories)

    def move(self, quotas: BrokerQuotas, factories: Mapping[int, FilterFactory]) -> None:
        """Classify requests by the quotas and filters of another broker from the next one on."""
        self._quotas = quotas
        self._factories = factories
        self._client: ClientLimits | None = None
        self.last = self._held = None

    def begin(self, chunk: memoryview, offset: int, now_ms: int) -> Decision | None:
        """Return how to pass on the request at an offset, None if it has to wait or more bytes are needed."""
        state = self._state
        if not state.may_begin():
            return None
        # A request that waited for memory keeps its decision: a refusal must not be counted twice.
        request = self._postponed or self._begin(chunk, offset, now_ms)
        if request is None:
            return None
        decision = request.decision
        if isinstance(decision, Frame) and decision.gather and not self._memory.take(request.frame_length, now_ms):
            self._postponed = request
            state.awaits_memory = True
            return None
        self._postponed = None
        self._receiving = request
        return decision

    def _begin(self, chunk: memoryview, offset: int, now_ms: int) -> InFlightRequest | None:
        """Return the request that starts at `offset`, with its decision, or None if more bytes are needed."""
        taken = list[InFlightRequest]()
        last = self.last if self._pending is None else None
        if last is not None and last.take(chunk, offset, _MAX_INT32, 1, taken) > offset:
            taken[0].decision = FRAME_LENGTH_BYTES + taken[0].frame_length
            return taken[0]
        if self._tracker.state is not COMPLETE:
            return self._begin_unserved(chunk, offset, now_ms)
        header = self._header(chunk, offset)
        return None if header is None else self._begin_request(chunk, header, now_ms)

    def _begin_unserved(self, chunk: memoryview, offset: int, now_ms: int) -> InFlightRequest | None:
        tracker = self._tracker
        if tracker.state is SaslState.INITIAL_REQUEST:
            # Kerberos clients of Kafka 0.9 begin with a bare token, without any request before it.
            is_token = starts_with_gssapi_token(chunk, offset)
            if is_token is None:
                return None
            if is_token:
                tracker.expect_opaque_tokens()
        if tracker.expects_tokens:
            request = tracker.begin_token(chunk, offset)
            # `begin_token` may find the first request after the tokens: it has a header again.
            if request is not None or tracker.expects_tokens:
                return request
        header = self._header(chunk, offset)
        if header is None:
            return None
        tracker.admit(header)
        key, factory = header.api_key, self._factories.get(header.api_key)
        is_charged = charges_of(key).byte_rate is not None or self._quotas.counts_requests
        # The client's bytes stay kept: after the broker's answer `begin` sees this request again.
        if tracker.needs_proof(header, is_charged=is_charged or (factory is not None and factory.is_active)):
            proof = InFlightRequest.own(header.correlation_id, lambda frame, _: tracker.take_proof(frame))
            proof.decision = Frame(0, replacement=tracker.proof_request(header))
            return proof
        return self._begin_request(chunk, header, now_ms)

    def _header(self, chunk: memoryview, offset: int) -> RequestHeader | None:
        if self._pending is not None:
            return self._pending
        header = parse_request_header(chunk, offset, max_frame_bytes=self._max_request_bytes)
        if header is not None and self._serves is not None and not self._serves(header.api_key):
            raise ProtocolError(
                f"API {header.api_key} is not served here",
                hint="ApiVersions leaves it out; see apis.allow, apis.deny and --unknown-apis",
            )
        return header

    def _begin_request(self, chunk: memoryview, header: RequestHeader, now_ms: int) -> InFlightRequest | None:
        request = self._held
        # A changed limit needs no new decision; one that went away does, and so do others for the client.
        if (
            request is None
            or request.client is None
            or request.client.version != self._quotas.version
            or request.limiter is None
            or request.limiter.bound is None
        ):
            request = self._classify(chunk, header)
        if request is not None and request.client is not None and request.client.refuses:
            self._refuse_over(request, header, now_ms)
        if request is None or (header.api_key in RESPONSE_BYTES and not self._admit(request, chunk, header, now_ms)):
            # What waits for more bytes, or for room, is kept from its start on.
            self._pending = header._replace(start=0, end=header.end - header.start)
            return None
        self._state.held = None  # it waits no more, or has no limit any more
        if self._state.turn.is_waiting:
            self._state.turn.leave()
        self._pending = self._held = None
        return request

    def _classify(self, chunk: memoryview, header: RequestHeader) -> InFlightRequest | None:
        """Return the in-flight request for a header, before it may be refused, None if more bytes are needed."""
        key = header.api_key
        if key == PRODUCE:
            wanted = acks(chunk, header)
            if wanted is None:
                return None
            request = self._take_produce(chunk, header, expects_response=wanted != 0)
        else:
            api = (key, header.api_version)
            request = InFlightRequest(api, header.correlation_id, header.frame_length, response_action(*api))
        if key in (FETCH, SHARE_FETCH):
            if not self._take_fetch(request, chunk, header):
                return None
        elif key != PRODUCE and (request.action is AUTHENTICATION or self._quotas.counts_requests):
            self._take_other(request, header)
        factory = self._factories.get(key)
        if factory is None or not factory.is_active:
            return request
        if request.client is None:
            request.client = self._client_of(header)
        # A filter may throttle the client with its response, so the next request waits; the factory may reset this.
        blocks_next, request.blocks_next = request.blocks_next, True
        request.filter = factory.make_filter(request, chunk, header)
        if request.filter is None:
            request.blocks_next = blocks_next
        else:
            self._gather(request)
        return request

    def _client_of(self, header: RequestHeader) -> ClientLimits:
        client, user, client_id = self._client, self._tracker.principal, header.client_id
        if (
            client is None
            or client.client_id != client_id
            or client.user != user
            or client.version != self._quotas.version
        ):
            client = self._client = self._quotas.client(user, client_id, self._tracker.peer)
        return client

    def _gather(self, request: InFlightRequest) -> None:
        # A later request must not reuse this one for the fast path, which never gathers.
        request.template = None
        request.decision = Frame(request.frame_length + FRAME_LENGTH_BYTES, gather=True)

    def _take_produce(self, chunk: memoryview, header: RequestHeader, *, expects_response: bool) -> InFlightRequest:
        if not expects_response:
            self._state.expects_all_responses = False
        client, factory = self._client_of(header), self._factories.get(PRODUCE)
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
            max_bytes=self._max_request_bytes,
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
        """Look up the client that a fetch counts for, and return whether its bytes were enough."""
        client, is_share = self._client_of(header), header.api_key == SHARE_FETCH
        # Anybody can claim to be a follower in a Fetch: only an internal principal is believed (CLUSTER_ACTION).
        if client.is_internal and not is_share:
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
        # Its response may set a throttle time, and what is pipelined after it must not pass before that.
        request.blocks_next = has_limit or client.counts_requests
        if (client.holds_fetches and has_limit) or (client.empties_fetches and request.blocks_next):
            # The empty response has to name the session that the client knows (KIP-227), which only a Fetch shows.
            session = (NO_SESSION, 0) if is_share else fetch_session(chunk, header)
            if session is None:
                return False
            request.session_id = answered_session(*session)
        request.client = client
        request.limiter = limiter
        return True

    def _take_other(self, request: InFlightRequest, header: RequestHeader) -> None:
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
            client, time = self._client_of(header), charges_of(header.api_key).request_time
            is_exempt = client.is_internal and time is RequestTime.UNLESS_BROKER
            is_counted = client.counts_requests and time is not RequestTime.NOT_SERVED
            if is_counted or (is_exempt and client.counts_exempt):
                request.client = client
                request.exempt = is_exempt

    def _refuse_over(self, request: InFlightRequest, header: RequestHeader, now_ms: int) -> None:
        """Refuse a Produce or fetch of a client over its byte rate, or filter it while batches are missing."""
        limiter, sequences = request.limiter, self._quotas.sequences
        # An error needs a response to carry it: a Produce with acks=0 is delayed instead.
        if limiter is None or not request.expects_response:
            return
        wait_ms = 0 if limiter.bound is None else limiter.would_throttle_ms(0, now_ms)
        if wait_ms > 0 and not self._accounting.is_refused_often(now_ms):
            request.limiter = None  # the bytes of a refused request count for no quota
            mutes = self._accounting.refused(limiter, wait_ms, now_ms)
            request.filter = QuotaErrorFilter(header, limiter, wait_ms, sequences, mutes=mutes)
        elif request.api_key == PRODUCE and request.filter is None and sequences.holds_any(now_ms):
            request.filter = SequenceFilter(header, sequences)
        else:
            return
        self._gather(request)

    def _admit(self, request: InFlightRequest, chunk: memoryview, header: RequestHeader, now_ms: int) -> bool:
        """Lower the limits of a fetch to what it may return. False: it has to wait, or more bytes are needed."""
        client, limiter = request.client, request.limiter
        if client is None or limiter is None or client.is_shadow:
            return True
        # A broker does not lower the limits of a ShareFetch; it returns no records while it throttles.
        if limiter.bound is None or (header.api_key == SHARE_FETCH and not client.holds_fetches):
            return True
        limits = fetch_limits(chunk, header)
        if limits is None:
            return False
        waited_ms, longest_wait_ms = 0, None
        if client.holds_fetches:
            turn = self._state.turn
            waited_ms = now_ms - turn.since_ms if turn.is_waiting else 0
            entered = self._enter(request, header, limiter, limits, now_ms)
            if entered is None:
                return request.filter is not None
            size, longest_wait_ms = entered, _AT_BROKER_MS
            if waited_ms:
                self._accounting.throttle_stats.throttled(limiter, waited_ms, now_ms)
        else:
            size = int(limiter.max_value(now_ms) or 0)
        # A fetch that is larger than a window's worth would be throttled for longer than a window, so a broker lowers
        # the limits too (`handleFetchRequest`: `fetchMaxBytes`). A window of one sample makes that 0, at which a broker
        # returns one batch and others return nothing: librdkafka's embedded cluster, for one.
        size = max(1, min(size, _MAX_INT32))
        lowered = limits.lowered(size, waited_ms=waited_ms, longest_wait_ms=longest_wait_ms)
        # The head is copied up to its limits, so that it goes out in one piece.
        head = bytes(chunk[header.start : limits.start]) + lowered
        request.decision = Frame(header.frame_length + FRAME_LENGTH_BYTES, patch=Patch(header.start, head))
        return True

    def _enter(
        self, request: InFlightRequest, header: RequestHeader, limiter: Limiter, limits: FetchLimits, now_ms: int
    ) -> int | None:
        """Return the size that a fetch may have, None if it waits or is answered without data."""
        turn, is_share = self._state.turn, request.api_key == SHARE_FETCH
        queue = limiter.fetch_queue(now_ms)
        wanted = _MAX_INT32 if limits.max_bytes is None else limits.max_bytes
        size = queue.enter(turn, wanted, now_ms)
        if size is None:
            until_ms = turn.since_ms + max(limits.wait_ms, _HELD_SHARE_MS if is_share else 0)
            if now_ms < until_ms:
                opens_ms = queue.opens_ms(turn, now_ms)
                until_ms = until_ms if opens_ms is None else min(until_ms, opens_ms)
                self._held = request
                self._state.held = ThrottledChannel(limiter=limiter, since_ms=turn.since_ms, until_ms=until_ms)
                return None
            if not is_share:
                request.limiter = None
                request.filter = EmptyFetchFilter(header, limiter, queue.wait_ms(turn, now_ms))
                self._gather(request)
                return None
            size = queue.enter(turn, wanted, now_ms, at_once=True)
        turn.request = request
        return size

    def end(self, gathered: bytearray | None, now_ms: int) -> Buffer | None:
        """Charge a request that has ended, and return what replaces it if it was gathered."""
        request, self._receiving = self._receiving, None
        assert request is not None
        client, state = request.client, self._state
        # A request of the daemon's own precedes the client's and takes none of its bytes: no client pays for it.
        if request.on_response_to_own is not None:
            self._await_own(request)
            return None
        state.request_count += 1
        if client is not None:
            # A broker charges a Produce once it is received whole, whatever becomes of it (`handleProduceRequest`).
            if request.api_key == PRODUCE and (request.filter is None or request.filter.charges_refused):
                self._charge_produce(request, client, now_ms)
            if request.exempt and client.counts_exempt:
                self._accounting.count_exempt(request)
            if client.counts_requests:
                self._accounting.charge_request(request, client, now_ms)
        if gathered is not None:
            if request.filter is not None:
                return self._filter(request, gathered, now_ms)
            if request.action is AUTHENTICATION:
                self._tracker.read_request(request, gathered)
            self._memory.end(now_ms)
        if request.expects_response and not (request.throttle_ms or request.blocks_next):
            state.in_flight.append(request)
        else:
            self.sent(request, now_ms)
        return gathered

    def sent(self, request: InFlightRequest, now_ms: int) -> None:
        """Add a request that the broker gets, or the daemon has answered, to those in flight."""
        state = self._state
        if request.expects_response:
            state.in_flight.append(request)
            if request.blocks_next or request.throttle_ms:
                state.await_response(request)
        elif request.throttle_ms:
            # Without a response (acks=0) the throttle time counts from the request, as in `KafkaApis`.
            self._accounting.settle(request, now_ms)

    def _charge_produce(self, request: InFlightRequest, client: ClientLimits, now_ms: int) -> None:
        if request.limiter is None:
            return
        throttle_ms = client.produce.record(request.frame_length, now_ms)
        if throttle_ms > 0:
            request.template = None  # its response carries its throttle time
        if throttle_ms > 0 or self._accounting.on_charge is not None:
            self._accounting.charged(request, client.produce, request.frame_length, throttle_ms, now_ms)

    def _filter(self, request: InFlightRequest, frame: bytearray, now_ms: int) -> Buffer | None:
        """Carry out a filter's verdict on a whole request, and return what goes to the broker, if anything."""
        assert request.filter is not None
        verdict = request.filter.on_request(frame, request, now_ms)
        self._accounting.apply_policy(request, now_ms)
        # Until the last verdict the request stays in memory and keeps its share of the budget.
        if verdict.is_own:
            self._send_own(request, frame)
            return verdict.to_broker
        self._memory.end(now_ms)
        if verdict.to_broker is not None:
            if not request.filter.charges_refused and request.client is not None:
                self._charge_produce(request, request.client, now_ms)
            self.sent(request, now_ms)
            return verdict.to_broker
        # The response must follow those of the requests before: the last of them passes `ResponseHandler.end`, which
        # sends this one after it, rather than the fast path, which knows of no other.
        if self._state.in_flight:
            self._state.in_flight[-1].template = None
        request.local_response = verdict.response
        request.expects_response = verdict.response is not None
        self.sent(request, now_ms)
        self._state.to_client += self._responses.local_responses(now_ms)
        return None

    def _send_own(self, request: InFlightRequest, frame: bytearray) -> None:
        def on_response(response: bytearray, now_ms: int) -> Generator[None, None, None]:
            assert request.filter is not None
            work = request.filter.on_response_to_own(response, request, now_ms)
            if work is not None:
                yield from work
            sent = self._filter(request, frame, now_ms)
            # The stream to the broker is between two frames: nothing of the client passes while this is awaited.
            if sent is not None:
                self._state.to_upstream.append(sent)

        self._await_own(InFlightRequest.own(request.correlation_id, on_response))

    def _await_own(self, request: InFlightRequest) -> None:
        self._state.in_flight.append(request)
        self._state.await_response(request)
