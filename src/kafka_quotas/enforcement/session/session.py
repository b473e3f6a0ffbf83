"""One client connection and its upstream connection: bytes in, bytes out, and when they may move.

No I/O and no clock. The shell around a `Session` has these duties:

- It passes each read to `receive_from_client`, or to `pass_from_broker` and, unless all of it passes,
  `receive_from_broker`, in the order of the reads, and never changes the bytes afterwards: output consists of views
  into them.
- After each call of `receive_from_*`, and of `state.wake`, `unmute`, `resume_*`, it writes `state.to_upstream` to the
  broker and `state.to_client` to the client, and clears both lists.
- Then it stops reading from the client while `state.waiting_request_bytes` is above 0, and from the broker while
  `state.waiting_response_bytes` is; and it calls `state.wake` at `state.wake_at_ms`, which may have changed.
- It reports the back pressure of either side with `state.pause_*` and `state.resume_*`, and leaves the other side
  unread meanwhile. It calls `state.resume_gathering` some time after `gathering.on_room`, never within it, and
  `state.resume_response` after that of `answers`, and `state.resume_held` after `state.turn.on_turn`.
- While `state.is_working` it calls `work` until that returns False, and serves others in between.
- While `state.holds_room` it calls `return_room` once the client has taken what was written.
- At the end it calls `state.drain` (and closes once `state.is_drained`) or `state.close`, and `end`; and
  `release` once both connections have ended.

How the session enforces quotas, as a broker would on this connection:

- It charges a Produce request with its length after its last byte, and passes it on. If the request takes the client
  over its quota no byte after it passes until its response has gone out and the throttle time has ended.
- It passes a Fetch on when its bucket has room for it, and answers it empty when the client has waited as long as it
  asked to: see `core.quotas.fetch_queue`. It charges the response with its length after its head, and delivers it; the
  throttle time starts then. While a client has a fetch limit, what it sends after a Fetch waits for that decision:
  pipelining gains nothing. A broker does the same with every request.
- It charges nothing before the broker has authenticated the client, or has answered a request that only clients that it
  serves get answered: see `identity`.
- It counts requests and estimates their time when they end, for a client with a limit on either.
- The response carries the larger of the broker's throttle time and ours, in the versions that have the field.

Most bytes that pass a daemon are plain Produce requests and their bare responses, and the number of steps per read
decides what small requests cost. So each read meets a fast path first: one loop takes the frames that are complete,
start like the last Produce and need only to be charged, and copies and gathers none of them. Everything else (a pause,
a cut frame, another API, another client, a changed limit) is left to `RequestHandler` and `ResponseHandler`. The fast
path does exactly what they would do; a property test compares the two.

A module that has to see whole requests of an API registers a `filters.FilterFactory` for it.

**Source:** KIP-219; `KafkaApis.handleProduceRequest`, `handleFetchRequest`, `SocketServer` (4.x).
"""

from collections.abc import Callable, Mapping
from typing import Final

from kafka_quotas.core.quotas.quota_charges import CostModel
from kafka_quotas.enforcement.config.rules import MAX_QUEUED_REQUEST_BYTES, EnforcementRules, ThrottleStyle
from kafka_quotas.enforcement.event_log.charges import OnCharge
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.session.filters import NO_FILTERS, FilterFactory
from kafka_quotas.enforcement.session.frames import FrameStream, GatherBudget
from kafka_quotas.enforcement.session.identity import PrincipalTracker
from kafka_quotas.enforcement.session.in_flight import InFlightRequest, ProduceTemplate
from kafka_quotas.enforcement.session.requests import RequestHandler
from kafka_quotas.enforcement.session.responses import ResponseHandler
from kafka_quotas.enforcement.session.state import READING, QuotaAccounting, SessionState
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.throttle_stats import ThrottleStats
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES
from kafka_quotas.wire.protocol.header import RESPONSE_HEAD, RESPONSE_HEAD_BYTES
from kafka_quotas.wire.proxying.broker_addresses import Translate

_response_head: Final = RESPONSE_HEAD.unpack_from


class Session:
    """The enforcement of quotas on one client connection and its upstream connection."""

    def __init__(
        self,
        *,
        quotas: BrokerQuotas,
        tracker: PrincipalTracker,
        rules: EnforcementRules,
        translate: Translate,
        throttle_stats: ThrottleStats,
        counters: Counters,
        costs: Callable[[], CostModel],
        on_charge: OnCharge | None = None,
        factories: Mapping[int, FilterFactory] = NO_FILTERS,
        gathering: GatherBudget | None = None,
    ) -> None:
        """Make the session of a connection without any bytes.

        `gathering` is the memory of all connections for gathered frames, None for a budget of its own.
        """
        self.tracker = tracker
        self.state = state = SessionState(max_in_flight=rules.max_in_flight)
        """Output, pause reasons and wake time, which the shell reads after each call."""
        self._accounting = accounting = QuotaAccounting(
            state=state, throttle_stats=throttle_stats, counters=counters, costs=costs, on_charge=on_charge
        )
        budget = gathering or GatherBudget(MAX_QUEUED_REQUEST_BYTES)
        self.gathering, self.answers = budget.share(), budget.share()
        """Its shares of the memory for gathered requests and responses; the shell sets the callbacks."""
        responses = ResponseHandler(
            state=state,
            tracker=tracker,
            accounting=accounting,
            translate=translate,
            delays=rules.throttle_style is ThrottleStyle.DELAY,
            serves=rules.serves,
            memory=self.answers,
            requests_memory=self.gathering,
        )
        self._requests = requests = RequestHandler(responses, rules, quotas, factories)
        state.requests = FrameStream(requests.begin, requests.end, state.to_upstream)
        state.responses = FrameStream(responses.begin, responses.end, state.to_client, sender="upstream")
        self.work = responses.work
        """Does a slice of the work on a long response, and returns whether some is left; raises like `receive_*`."""

    def return_room(self, now_ms: int) -> None:
        """Return the memory of the last gathered response, which the client has taken."""
        self.state.holds_room = False
        self.answers.end(now_ms)
        if self.state.responses_await_memory:
            self.answers.on_room()

    def end(self, now_ms: int) -> None:
        """Return all memory of a connection that ends, and the place of its Fetch."""
        self.gathering.end(now_ms)
        self.answers.end(now_ms)
        self.state.turn.leave()

    def move(
        self, quotas: BrokerQuotas, *, factories: Mapping[int, FilterFactory], on_charge: OnCharge | None = None
    ) -> None:
        """Charge another broker's buckets for the requests that begin from now on."""
        self._requests.move(quotas, factories)
        self._accounting.on_charge = on_charge

    def release(self) -> None:
        """Drop all that the connection keeps, once it has ended, so that no collector is needed to free it."""
        self.state.release()
        self.gathering.release()
        self.answers.release()

    def receive_from_client(self, data: bytes, now_ms: int) -> bool:
        """Take the bytes of one read from the client, at a time that is never before an earlier call's.

        Returns:
            True if `data` passes as it is and changed nothing that the shell looks at: write it to the broker, and
            that is all. Otherwise the output is in `state.to_upstream` and `state.to_client`, and pause reasons and the
            wake time may have changed.

        Raises:
            ProtocolError: The daemon can't handle what the client sent: close both connections.
            KafkaQuotasError: No listener can be opened for a broker in a response of the daemon's own: the same.
        """
        state, end, offset = self.state, len(data), 0
        template = self._requests.last
        if template is not None and template.is_plain and state.phase is READING and state.requests.is_between:
            in_flight = state.in_flight
            before = len(in_flight)
            # `RequestHandler` takes a cut frame: it is charged when its last byte has come.
            offset = template.take(data, 0, end, state.max_in_flight - before, in_flight)
            if offset:
                count = len(in_flight) - before
                # `admit` records the sum if no throttle time can come of it. Otherwise the requests are charged one
                # by one, as a broker does, because the first one over the quota mutes the client.
                if self._accounting.on_charge is None and template.admit(offset - FRAME_LENGTH_BYTES * count, now_ms):
                    state.request_count += count
                else:
                    offset = self._charge_each(template, [in_flight.pop() for _ in range(count)], now_ms)
                if offset == end and state.phase is READING:
                    return True
        state.requests.feed(memoryview(data), now_ms, offset)
        return False

    def pass_from_broker(self, data: bytes) -> int:
        """Pass the bare responses to plain Produce requests at the start of a read from the broker.

        Returns:
            The number of bytes that pass as they are and changed nothing that the shell looks at. If it is all of
            `data`, write it to the client, and that is all; otherwise `receive_from_broker` gets it.
        """
        state, offset = self.state, 0
        # At the limit of requests in flight each response may let requests begin: `ResponseHandler` sees to that.
        is_steady = state.phase is READING and not (state.is_at_max_in_flight or state.is_delaying)
        if not (is_steady and state.responses.is_between):
            return 0
        in_flight, last_head = state.in_flight, len(data) - RESPONSE_HEAD_BYTES
        while in_flight and offset < last_head:
            request = in_flight[0]
            template = request.template
            if template is None:
                break
            length, correlation_id = _response_head(data, offset)
            frame_end, bare = offset + FRAME_LENGTH_BYTES + length, template.response_end
            # `ResponseHandler` takes any other response: with a throttle time, a wrong correlation id or a cut end.
            if (
                correlation_id != request.correlation_id
                or not offset + RESPONSE_HEAD_BYTES < frame_end <= len(data)
                or data[frame_end - len(bare) : frame_end] != bare
            ):
                break
            template.spares.append(in_flight.popleft())
            offset = frame_end
        return offset

    def receive_from_broker(self, data: bytes, now_ms: int, passed: int) -> None:
        """Take the bytes of one read from the broker, of which `pass_from_broker` has passed some.

        Raises:
            ProtocolError: The bytes answer no request, or can't be passed on: close both connections.
            KafkaQuotasError: No listener can be opened for a broker that a response names: the same.
        """
        self.state.responses.feed(memoryview(data), now_ms, passed)

    def _charge_each(self, template: ProduceTemplate, latest: list[InFlightRequest], now_ms: int) -> int:
        """Charge requests, the last one first, until one is over the quota, and return the passed bytes."""
        limiter, passed = template.client.produce, 0
        while latest:
            request = latest.pop()
            passed += FRAME_LENGTH_BYTES + request.frame_length
            self.state.request_count += 1
            throttle_ms = limiter.record(request.frame_length, now_ms)
            if throttle_ms > 0 or self._accounting.on_charge is not None:
                self._accounting.charged(request, limiter, request.frame_length, throttle_ms, now_ms)
            if throttle_ms > 0:
                request.template = None  # its response carries its throttle time, which no other may inherit
                self._requests.sent(request, now_ms)
                break
            self.state.in_flight.append(request)
        template.spares.extend(latest)
        return passed
