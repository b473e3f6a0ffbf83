"""The fast path of a session, for reads that hold only plain Produce requests, or their bare responses.

Most bytes that pass a daemon are that, and the number of steps per read decides what small requests cost. So the shell
offers each read here first: one loop charges the frames that are complete, start like the last Produce and need only to
be charged, and copies and gathers none of them, nor appends them to `SessionState.to_upstream`. The path leaves
everything else (a pause, a cut frame, another API, another client, a changed limit) to `RequestHandler` and
`ResponseHandler`. It does exactly what they would do; a property test compares the two.
"""

from typing import Final

from kafka_quotas.enforcement.session.flow import READING, SessionState
from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.enforcement.session.produce_template import ProduceTemplate
from kafka_quotas.enforcement.session.quota_accounting import QuotaAccounting
from kafka_quotas.enforcement.session.request_classifier import RequestClassifier
from kafka_quotas.enforcement.session.request_handler import RequestHandler
from kafka_quotas.wire.codec.frame import FRAME_LENGTH_BYTES
from kafka_quotas.wire.protocol.response_header import RESPONSE_HEAD, RESPONSE_HEAD_BYTES

_response_head: Final = RESPONSE_HEAD.unpack_from


class ProduceFastPath:
    """The fast path of one connection, in both directions."""

    __slots__ = (
        "_charging",
        "_flow",
        "_in_flight",
        "_intake",
        "_requests",
        "_responses",
        "_side",
        "_tells",
    )

    def __init__(
        self, flow: SessionState, intake: RequestClassifier, side: RequestHandler, *, charging: QuotaAccounting
    ) -> None:
        self._flow = flow
        self._in_flight = flow.in_flight
        self._requests = flow.requests
        self._responses = flow.responses
        self._intake = intake
        self._side = side
        self._charging = charging
        self._tells = charging.tells

    def requests(self, data: bytes, now_ms: int) -> int:
        """Charge the plain requests at the start of a read, and return the offset of their end.

        They pass unchanged. If one takes its client over the quota it is the last, and the session awaits its response.
        """
        last = self._intake.repeated()
        if last is None or not last.is_plain or self._flow.state is not READING or not self._requests.is_between:
            return 0
        in_flight, take, spares = self._in_flight, last.take, last.spares
        room = self._flow.max_in_flight - len(in_flight)
        count = size = offset = 0
        end = len(data)
        while offset < end and count < room:
            exchange = take(data, offset)
            if exchange is None:
                break
            length = exchange.frame_length
            behind = offset + FRAME_LENGTH_BYTES + length
            # `RequestHandler` takes a cut frame: it is charged when its last byte has come.
            if behind > end:
                spares.append(exchange)
                break
            offset = behind
            in_flight.append(exchange)
            count += 1
            size += length
        # `admit` records the sum where no throttle time can come of it. Otherwise the requests are charged one by one,
        # as a broker does, because the first one over the quota mutes the client.
        if count and (self._tells or not last.admit(size, now_ms)):
            return self._charge_each(last, [in_flight.pop() for _ in range(count)], now_ms)
        self._side.count += count
        return offset

    def _charge_each(self, last: ProduceTemplate, latest: list[InFlightRequest], now_ms: int) -> int:
        """Charge requests until one exceeds the quota, and return the number of bytes that may pass.

        Args:
            last: The template of the requests.
            latest: The requests, the last one first.
            now_ms: The time of the charges.
        """
        client, limiter, passed = last.client, last.client.produce, 0
        while latest:
            exchange = latest.pop()
            passed += FRAME_LENGTH_BYTES + exchange.frame_length
            self._side.count += 1
            throttle_ms = limiter.record(exchange.frame_length, now_ms)
            if throttle_ms > 0 or self._tells:
                self._charging.charged(exchange, client, limiter, throttle_ms, now_ms)
            if throttle_ms > 0:
                exchange.unlike()  # its response carries its throttle time, which no other request may inherit
                self._side.sent(exchange, now_ms)
                break
            self._in_flight.append(exchange)
        last.spares.extend(latest)
        return passed

    def responses(self, data: bytes) -> int:
        """Take the bare responses at the start of a read, and return the offset of their end.

        They pass unchanged.
        """
        flow, in_flight = self._flow, self._in_flight
        if flow.state is not READING or flow.is_crowded or flow.is_delaying or not self._responses.is_between:
            return 0
        offset, end = 0, len(data)
        while in_flight and end - offset > RESPONSE_HEAD_BYTES:
            exchange = in_flight[0]
            repeats = exchange.repeats
            if repeats is None:
                break
            length, correlation_id = _response_head(data, offset)
            behind, bare = offset + FRAME_LENGTH_BYTES + length, repeats.response_end
            # `ResponseHandler` takes any other response: one with a throttle time, a wrong correlation id or a cut end.
            if (
                correlation_id != exchange.correlation_id
                or not offset + RESPONSE_HEAD_BYTES < behind <= end
                or data[behind - len(bare) : behind] != bare
            ):
                break
            repeats.spares.append(in_flight.popleft())
            offset = behind
        return offset
