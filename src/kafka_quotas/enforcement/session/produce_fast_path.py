"""The fast path of a session, for reads that hold only plain Produce requests, or their bare responses.

Most bytes that pass a daemon are that, and the number of steps per read decides what small requests cost. So a session
offers each read here first: one loop charges the frames that are complete, start like the last Produce and need only to
be charged, and copies and gathers none of them, nor appends them to `SessionState.to_upstream`. The path leaves
everything else (a pause, a cut frame, another API, another client, a changed limit) to `RequestHandler` and
`ResponseHandler`. It does exactly what they would do; a property test compares the two.
"""

from typing import Final

from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.enforcement.session.produce_template import ProduceTemplate
from kafka_quotas.enforcement.session.quota_accounting import QuotaAccounting
from kafka_quotas.enforcement.session.request_classifier import RequestClassifier
from kafka_quotas.enforcement.session.request_handler import RequestHandler
from kafka_quotas.enforcement.session.session_state import READING, SessionState
from kafka_quotas.wire.codec.frame import FRAME_LENGTH_BYTES
from kafka_quotas.wire.protocol.response_header import RESPONSE_HEAD, RESPONSE_HEAD_BYTES

_response_head: Final = RESPONSE_HEAD.unpack_from


class ProduceFastPath:
    """The fast path of one connection, in both directions."""

    __slots__ = (
        "_accounting",
        "_classifier",
        "_handler",
        "_in_flight",
        "_logs_charges",
        "_requests",
        "_responses",
        "_state",
    )

    def __init__(
        self,
        state: SessionState,
        classifier: RequestClassifier,
        handler: RequestHandler,
        *,
        accounting: QuotaAccounting,
    ) -> None:
        self._state = state
        self._in_flight = state.in_flight
        self._requests = state.requests
        self._responses = state.responses
        self._classifier = classifier
        self._handler = handler
        self._accounting = accounting
        self._logs_charges = accounting.logs_charges

    def pass_requests(self, data: bytes, now_ms: int) -> int:
        """Charge the plain requests at the start of a read, and return the offset of their end.

        They pass unchanged. If one takes its client over the quota it is the last, and the session awaits its response.
        """
        template = self._classifier.template()
        state = self._state
        if template is None or not template.is_plain or state.phase is not READING or not self._requests.is_between:
            return 0
        in_flight, take, spares = self._in_flight, template.take, template.spares
        most = state.max_in_flight - len(in_flight)
        count = size = offset = 0
        end = len(data)
        while offset < end and count < most:
            request = take(data, offset)
            if request is None:
                break
            length = request.frame_length
            frame_end = offset + FRAME_LENGTH_BYTES + length
            # `RequestHandler` takes a cut frame: it is charged when its last byte has come.
            if frame_end > end:
                spares.append(request)
                break
            offset = frame_end
            in_flight.append(request)
            count += 1
            size += length
        # `admit` records the sum where no throttle time can come of it. Otherwise the requests are charged one by one,
        # as a broker does, because the first one over the quota mutes the client.
        if count and (self._logs_charges or not template.admit(size, now_ms)):
            return self._charge_each(template, [in_flight.pop() for _ in range(count)], now_ms)
        state.request_count += count
        return offset

    def _charge_each(self, template: ProduceTemplate, latest: list[InFlightRequest], now_ms: int) -> int:
        """Charge requests until one exceeds the quota, and return the number of bytes that may pass.

        Args:
            template: The template of the requests.
            latest: The requests, the last one first.
            now_ms: The time of the charges.
        """
        client, limiter, passed = template.client, template.client.produce, 0
        while latest:
            request = latest.pop()
            passed += FRAME_LENGTH_BYTES + request.frame_length
            self._state.request_count += 1
            throttle_ms = limiter.record(request.frame_length, now_ms)
            if throttle_ms > 0 or self._logs_charges:
                self._accounting.charged(request, client, limiter, throttle_ms, now_ms)
            if throttle_ms > 0:
                request.forget_template()  # its response carries its throttle time, which no other may inherit
                self._handler.sent(request, now_ms)
                break
            self._in_flight.append(request)
        template.spares.extend(latest)
        return passed

    def pass_responses(self, data: bytes) -> int:
        """Take the bare responses at the start of a read, and return the offset of their end.

        They pass unchanged.
        """
        state, in_flight = self._state, self._in_flight
        # At the limit of requests in flight each response may let requests begin: `ResponseHandler` sees to that.
        if (
            state.phase is not READING
            or state.is_at_max_in_flight
            or state.is_delaying
            or not self._responses.is_between
        ):
            return 0
        offset, end = 0, len(data)
        while in_flight and end - offset > RESPONSE_HEAD_BYTES:
            request = in_flight[0]
            template = request.template
            if template is None:
                break
            length, correlation_id = _response_head(data, offset)
            frame_end, bare = offset + FRAME_LENGTH_BYTES + length, template.response_end
            # `ResponseHandler` takes any other response: one with a throttle time, a wrong correlation id or a cut end.
            if (
                correlation_id != request.correlation_id
                or not offset + RESPONSE_HEAD_BYTES < frame_end <= end
                or data[frame_end - len(bare) : frame_end] != bare
            ):
                break
            template.spares.append(in_flight.popleft())
            offset = frame_end
        return offset
