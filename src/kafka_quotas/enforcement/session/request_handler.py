"""The client's side of a connection: requests as they begin and end.

Most requests stream: their first bytes decide how they pass, and at their end they are charged. A filtered request is
gathered; the filter then forwards it, responds to it, or first sends the broker a request of its own.
"""

from collections.abc import Generator
from dataclasses import dataclass, field

from kafka_quotas.enforcement.session.frame_stream import Decision, Frame
from kafka_quotas.enforcement.session.gathering import GatherShare
from kafka_quotas.enforcement.session.in_flight import AUTHENTICATION, PRODUCE, InFlightRequest
from kafka_quotas.enforcement.session.principal import PrincipalTracker
from kafka_quotas.enforcement.session.quota_accounting import QuotaAccounting
from kafka_quotas.enforcement.session.request_classifier import RequestClassifier
from kafka_quotas.enforcement.session.request_filter import Respond, SendRequest
from kafka_quotas.enforcement.session.response_handler import ResponseHandler
from kafka_quotas.enforcement.session.session_state import SessionState
from kafka_quotas.wire.codec.skip import Buffer


@dataclass(slots=True, kw_only=True, eq=False)
class RequestHandler:
    """The requests of one connection, from their first byte until they wait for their responses."""

    state: SessionState
    classifier: RequestClassifier
    tracker: PrincipalTracker
    accounting: QuotaAccounting
    responses: ResponseHandler
    memory: GatherShare
    _receiving: InFlightRequest | None = field(default=None, init=False)
    _postponed: InFlightRequest | None = field(default=None, init=False)

    def begin(self, chunk: memoryview, offset: int, now_ms: int) -> Decision | None:
        """Return how to pass on the request at an offset.

        Returns:
            None if it has to wait, or if more bytes are needed.

        Raises:
            ProtocolError: The bytes are no request, or one whose response the daemon could not handle.
        """
        state = self.state
        if not state.may_begin():
            return None
        # A request that waited for memory keeps its decision: a refusal must not be counted twice.
        request = self._postponed or self.classifier.begin(chunk, offset, now_ms)
        if request is None:
            return None
        decision = request.decision
        if isinstance(decision, Frame) and decision.gather and not self.memory.take(request.frame_length, now_ms):
            self._postponed = request
            state.awaits_memory = True
            return None
        self._postponed = None
        self._receiving = request
        return decision

    def end(self, gathered: bytearray | None, now_ms: int) -> Buffer | None:
        """Charge a request that has ended, and return what replaces it if it was gathered."""
        request, self._receiving = self._receiving, None
        assert request is not None
        client, state = request.client, self.state
        # A request of the daemon's own goes before the client's, whose bytes it does not take: it is no client's cost.
        if request.on_response_to_own is not None:
            self._await_own(request)
            return None
        state.request_count += 1
        if client is not None:
            # A broker charges a Produce once it is received whole, whatever becomes of it (`handleProduceRequest`).
            if request.api_key == PRODUCE and (request.filter is None or request.filter.charges_refused):
                self._charge_produce(request, now_ms)
            if request.exempt and client.counts_exempt:
                self.accounting.count_exempt(request)
            if client.counts_requests:
                self.accounting.charge_request(request, client, now_ms)
        if gathered is not None:
            if request.filter is not None:
                return self._filter(request, gathered, now_ms)
            if request.action is AUTHENTICATION:
                self.tracker.read_request(request, gathered)
            self.memory.end(now_ms)
        if request.expects_response and not (request.throttle_ms or request.blocks_next):
            state.in_flight.append(request)
        else:
            self.sent(request, now_ms)
        return gathered

    def sent(self, request: InFlightRequest, now_ms: int) -> None:
        """Add a request that the broker gets, or the daemon has answered, to those in flight."""
        state = self.state
        if request.expects_response:
            state.in_flight.append(request)
            if request.blocks_next or request.throttle_ms:
                state.await_response(request)
        elif request.throttle_ms:
            # Without a response (acks=0) the throttle time counts from the request, as in `KafkaApis`.
            self.accounting.settle(request, now_ms)

    def _charge_produce(self, request: InFlightRequest, now_ms: int) -> None:
        client = request.client
        if client is None or request.limiter is None:
            return
        throttle_ms = client.produce.record(request.frame_length, now_ms)
        if throttle_ms > 0:
            request.forget_template()  # its response carries its throttle time
        if throttle_ms > 0 or self.accounting.on_charge is not None:
            self.accounting.charged(request, client, client.produce, throttle_ms, now_ms)

    def _filter(self, request: InFlightRequest, frame: bytearray, now_ms: int) -> Buffer | None:
        """Carry out a filter's verdict on a whole request, and return what goes to the broker, if anything."""
        assert request.filter is not None
        verdict = request.filter.on_request(frame, request, now_ms)
        self.accounting.apply_policy(request, now_ms)
        # Until the last verdict the request stays in memory and keeps its share of the budget.
        if isinstance(verdict, SendRequest):
            self._send_own(request, frame)
            return verdict.frame
        self.memory.end(now_ms)
        if not isinstance(verdict, Respond):
            if not request.filter.charges_refused:
                self._charge_produce(request, now_ms)
            self.sent(request, now_ms)
            return verdict.frame
        # The response must follow those of the requests before: the last of them passes `ResponseHandler.end`, which
        # sends this one after it, rather than the fast path, which knows of no other.
        if self.state.in_flight:
            self.state.in_flight[-1].forget_template()
        request.local_response = verdict.frame
        request.expects_response = verdict.frame is not None
        self.sent(request, now_ms)
        self.state.to_client += self.responses.local_responses(now_ms)
        return None

    def _send_own(self, request: InFlightRequest, frame: bytearray) -> None:
        """Await the response to a filter's own request, then carry out its verdict on the client's request."""

        def on_response(response: bytearray, now_ms: int) -> Generator[None, None, None]:
            assert request.filter is not None
            work = request.filter.on_response_to_own(response, request, now_ms)
            if work is not None:
                yield from work
            sent = self._filter(request, frame, now_ms)
            # The stream to the broker is between two frames: nothing of the client passes while this is awaited.
            if sent is not None:
                self.state.to_upstream.append(sent)

        self._await_own(InFlightRequest.own(request.correlation_id, on_response))

    def _await_own(self, request: InFlightRequest) -> None:
        self.state.in_flight.append(request)
        self.state.await_response(request)
