"""The client's side of a connection: requests as they begin and end.

Most requests stream: their first bytes decide how they pass, and at their end they are charged. A filtered request is
gathered; the filter then forwards it, responds to it, or first sends the broker a request of its own.
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
    """The requests of one connection, from their first byte until they wait for their responses.

    A request stays in `SessionState.in_flight` while it waits for its response.
    """

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
        """The number of requests that were received to their end."""

    def begin(self, chunk: memoryview, offset: int, now_ms: int) -> Decision | None:
        """Return how to pass on the request at an offset.

        Returns:
            None if it has to wait, or if more bytes are needed.
        """
        flow = self._flow
        if not flow.may_begin:
            return None
        # A request that waited for room keeps its decision: a refusal must not be counted twice.
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
        """Charge a request that has ended, and return what replaces it if it was gathered."""
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
                    exchange.unlike()  # its response carries its throttle time
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
        """Add a request that the broker gets, or the daemon has answered, to those in flight."""
        flow = self._flow
        if exchange.expects_response:
            flow.in_flight.append(exchange)
            if exchange.decides or exchange.throttle_ms:
                flow.await_response(exchange)
        elif exchange.throttle_ms:
            # Without a response (acks=0) the throttle time counts from the request, as in KafkaApis.
            self._charging.settle(exchange, now_ms)

    def _decide(self, exchange: InFlightRequest, frame: bytearray, now_ms: int) -> Buffer | None:
        """Carry out a filter's verdict on a whole request, and return what goes to the broker.

        Returns:
            The request, a request of the filter's own, or None for nothing.
        """
        assert exchange.whole is not None
        verdict = exchange.whole.on_request(frame, exchange, now_ms)
        self._charging.judge(exchange, now_ms)
        # Until the last verdict the request stays in memory and keeps its room.
        if isinstance(verdict, SendRequest):
            self._ask(exchange, frame)
            return verdict.frame
        self._room.end(now_ms)
        if not isinstance(verdict, Respond):
            self.sent(exchange, now_ms)
            return verdict.frame
        if self._flow.in_flight:
            self._flow.in_flight[-1].unlike()  # `ResponseHandler.end` sends this response after that one
        exchange.answer = verdict.frame
        exchange.expects_response = verdict.frame is not None
        self.sent(exchange, now_ms)
        self._flow.to_client += self._responses.answers(now_ms)
        return None

    def _ask(self, exchange: InFlightRequest, request: bytearray) -> None:
        """Await the response to a filter's own request, then carry out its verdict on the client's request."""

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
