"""The client's side of a connection: requests as they begin and end.

Most requests stream: what was decided at their head holds, and at their end they are charged. A request that somebody
deals with as a whole is gathered, and goes on, is answered here, or waits until the broker was asked something.
"""

from kafka_quotas.enforcement.session.flow import SessionState
from kafka_quotas.enforcement.session.frame_stream import Decision
from kafka_quotas.enforcement.session.gathering import GatherShare
from kafka_quotas.enforcement.session.in_flight import IDENTITY, PRODUCE, InFlightRequest
from kafka_quotas.enforcement.session.principal import PrincipalTracker
from kafka_quotas.enforcement.session.quota_accounting import QuotaAccounting
from kafka_quotas.enforcement.session.request_classifier import RequestClassifier
from kafka_quotas.enforcement.session.request_filter import Respond, SendRequest
from kafka_quotas.enforcement.session.response_handler import ResponseHandler
from kafka_quotas.wire.codec.skip import Buffer


class RequestHandler:
    """Takes note of every request of one connection, in `SessionState.in_flight` while it waits for its response."""

    __slots__ = (
        "_charging",
        "_flow",
        "_identity",
        "_intake",
        "_postponed",
        "_receiving",
        "_responses",
        "_room",
        "_tells",
        "count",
    )

    def __init__(
        self,
        flow: SessionState,
        intake: RequestClassifier,
        *,
        identity: PrincipalTracker,
        charging: QuotaAccounting,
        responses: ResponseHandler,
        room: GatherShare,
    ) -> None:
        self._flow = flow
        self._intake = intake
        self._identity = identity
        self._charging = charging
        self._tells = charging.tells
        self._responses = responses
        self._room = room
        self._receiving: InFlightRequest | None = None
        self._postponed: InFlightRequest | None = None
        self.count = 0
        """How many requests have ended."""

    def begin(self, chunk: memoryview, offset: int, now_ms: int) -> Decision | None:
        """Return how to pass on the request at an offset; None if it has to wait or more bytes are needed."""
        flow = self._flow
        if not flow.may_begin:
            return None
        exchange = self._postponed or self._intake.begin(chunk, offset, now_ms)
        if exchange is None:
            return None
        if exchange.gathers and not self._room.take(exchange.frame_length, now_ms):
            self._postponed = exchange
            flow.lacks_room = True
            return None
        self._postponed = None
        self._receiving = exchange
        return exchange.request

    def end(self, gathered: bytearray | None, now_ms: int) -> Buffer | None:
        """Return what goes on in place of a gathered request."""
        exchange, self._receiving = self._receiving, None
        assert exchange is not None
        client, flow = exchange.client, self._flow
        if exchange.on_told is not None:
            self._asked(exchange)
            return None
        self.count += 1
        if client is not None:
            if exchange.api_key == PRODUCE and exchange.limiter is not None:
                throttle_ms = client.produce.record(exchange.frame_length, now_ms)
                if throttle_ms > 0:
                    exchange.unlike()  # its throttle time is written into its response
                if throttle_ms > 0 or self._tells:
                    self._charging.charged(exchange, client, client.produce, throttle_ms, now_ms)
            if exchange.exempt and client.counts_exempt:
                self._charging.count_exempt(exchange)
            if client.counts_requests:
                self._charging.charge_request(exchange, client, now_ms)
        if gathered is not None:
            if exchange.whole is not None:
                return self._decide(exchange, gathered, now_ms)
            if exchange.treatment is IDENTITY:
                self._identity.asked(exchange, gathered)
            self._room.end(now_ms)
        if exchange.expects_response and not (exchange.throttle_ms or exchange.decides):
            flow.in_flight.append(exchange)
        else:
            self.sent(exchange, now_ms)
        return gathered

    def sent(self, exchange: InFlightRequest, now_ms: int) -> None:
        """Take note of a request that is on its way to the broker, or answered here already."""
        flow = self._flow
        if exchange.expects_response:
            flow.in_flight.append(exchange)
            if exchange.decides or exchange.throttle_ms:
                flow.await_response(exchange)
        elif exchange.throttle_ms:
            # Without a response (acks=0) the throttle time counts from the request, as in KafkaApis.
            self._charging.settle(exchange, now_ms)

    def _decide(self, exchange: InFlightRequest, frame: bytearray, now_ms: int) -> Buffer | None:
        """Return what goes to the broker, once a whole request was decided about: it, a question, or nothing."""
        assert exchange.whole is not None
        verdict = exchange.whole.on_request(frame, exchange, now_ms)
        self._charging.judge(exchange, now_ms)
        if isinstance(verdict, SendRequest):
            self._ask(exchange, frame)
            return verdict.frame
        self._room.end(now_ms)
        if not isinstance(verdict, Respond):
            self.sent(exchange, now_ms)
            return verdict.frame
        if self._flow.in_flight:
            self._flow.in_flight[-1].unlike()  # its response brings this answer along
        exchange.answer = verdict.frame
        exchange.expects_response = verdict.frame is not None
        self.sent(exchange, now_ms)
        self._flow.to_client += self._responses.answers(now_ms)
        return None

    def _ask(self, exchange: InFlightRequest, request: bytearray) -> None:
        """Let the client's side wait for the answer to a question of our own, which decides about the request."""

        def told(frame: bytearray, now_ms: int) -> None:
            assert exchange.whole is not None
            exchange.whole.on_told(frame, exchange, now_ms)
            sent = self._decide(exchange, request, now_ms)
            if sent is not None:
                self._flow.to_upstream.append(sent)

        self._asked(InFlightRequest.own(exchange.correlation_id, told))

    def _asked(self, question: InFlightRequest) -> None:
        self._flow.in_flight.append(question)
        self._flow.await_response(question)
