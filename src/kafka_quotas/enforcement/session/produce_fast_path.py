"""The short way through a session, for reads that hold nothing but plain Produce requests, or their bare responses.

Most of what passes a daemon is that, and what small requests cost is the number of steps per read. So a read is offered
here first: frames that are here as a whole, start like the last Produce and need nothing but to be charged are charged
in one loop, and nothing of them is copied, gathered or put down in `SessionState.to_upstream`. All that is out of the
ordinary (a hold, a frame that was cut, another API, another client, a limit that changed) is left where it is, to
`RequestHandler` and `ResponseHandler`; what is done here is exactly what they would do, and a property test holds the
two ways together.
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
    """Both directions of one connection."""

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
        """Return the offset behind those requests at the start of a read with which all is done: they pass as is.

        The last of them is the one that took its client over the quota, if one did: then it is awaited.
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
            if behind > end:
                spares.append(exchange)
                break
            offset = behind
            in_flight.append(exchange)
            count += 1
            size += length
        if count and (self._tells or not last.admit(size, now_ms)):
            return self._charge_each(last, [in_flight.pop() for _ in range(count)], now_ms)
        self._side.count += count
        return offset

    def _charge_each(self, last: ProduceTemplate, latest: list[InFlightRequest], now_ms: int) -> int:
        """Return the offset behind those requests, of which the last comes first, that may pass at once."""
        client, limiter, passed = last.client, last.client.produce, 0
        while latest:
            exchange = latest.pop()
            passed += FRAME_LENGTH_BYTES + exchange.frame_length
            self._side.count += 1
            throttle_ms = limiter.record(exchange.frame_length, now_ms)
            if throttle_ms > 0 or self._tells:
                self._charging.charged(exchange, client, limiter, throttle_ms, now_ms)
            if throttle_ms > 0:
                exchange.unlike()  # its throttle time is written into its response, and no other request may get it
                self._side.sent(exchange, now_ms)
                break
            self._in_flight.append(exchange)
        last.spares.extend(latest)
        return passed

    def responses(self, data: bytes) -> int:
        """Return the offset behind those responses at the start of a read with which all is done: they pass as is."""
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
            if (
                correlation_id != exchange.correlation_id
                or not offset + RESPONSE_HEAD_BYTES < behind <= end
                or data[behind - len(bare) : behind] != bare
            ):
                break
            repeats.spares.append(in_flight.popleft())
            offset = behind
        return offset
