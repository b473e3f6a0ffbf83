"""The state that both directions of one connection share, and the charges that change it.

docs/project/architecture.md draws `ConnectionState` and lists the pause reasons; every change of either is a method of
`SessionState`. Invariants: at most one request is awaited, and it is the last in `in_flight`; while the phase is not
`READING` the client's stream is between two frames, or inside the last one that began before.

A request is charged to every quota that it counts for; the client waits once, for the longest throttle time.

**Source:** KIP-124, KIP-219; `KafkaApis.handleProduceRequest`, `handleFetchRequest`, `RequestHandlerHelper` (4.x): a
client gets the larger of two throttle times; a broker records time on network threads without a check, and the next
check includes it.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kafka_quotas.core.metrics.throttle_time import nanos_to_percentage
from kafka_quotas.core.quotas.fetch_queue import FetchTurn
from kafka_quotas.core.quotas.quota_charges import RESPONSE_BYTES, CostModel
from kafka_quotas.core.quotas.quota_manager import Limiter, QuotaType
from kafka_quotas.enforcement.event_log.charges import OnCharge
from kafka_quotas.enforcement.quotas.broker_quotas import ClientLimits
from kafka_quotas.enforcement.session.frames import FrameStream
from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.throttle_stats import ThrottleStats
from kafka_quotas.wire.codec.skip import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledChannel:
    """A connection that the daemon has muted for a throttle time."""

    limiter: Limiter
    since_ms: int
    until_ms: int


class ConnectionState(Enum):
    """The handling of the client's next request, which may begin only in `READING`."""

    READING = "reading"
    """The next request begins as soon as its first bytes arrive."""
    AWAITING_RESPONSE = "awaiting a response"
    """The last request decides about the next one: its response may set a throttle time, or the principal."""
    THROTTLED = "throttled"
    """The client is over a quota, and the daemon does not read from it until the throttle time ends."""
    DRAINING = "draining"
    """The daemon shuts down: requests that have begun still get their responses."""
    CLOSED = "closed"
    """Both connections are closing."""


READING: Final = ConnectionState.READING
AWAITING_RESPONSE: Final = ConnectionState.AWAITING_RESPONSE
THROTTLED: Final = ConnectionState.THROTTLED
DRAINING: Final = ConnectionState.DRAINING
CLOSED: Final = ConnectionState.CLOSED
"""The members as plain names: looking one up in its class costs as much as a small request's arithmetic."""


@dataclass(slots=True, kw_only=True, eq=False)
class SessionState:
    """The state of one connection: its two streams, the requests in flight, and what pauses them."""

    max_in_flight: int
    phase: ConnectionState = READING
    requests: FrameStream = field(init=False)
    responses: FrameStream = field(init=False)
    in_flight: deque[InFlightRequest] = field(default_factory=deque)
    awaited: InFlightRequest | None = None
    """The one request whose response lets the next request begin."""
    mute: ThrottledChannel | None = None
    """The throttle time that the client waits for, None if it doesn't."""
    held: ThrottledChannel | None = None
    """The wait of a Fetch that its bucket has no room for, None if none waits: see `core.quotas.fetch_queue`.

    `wake` has it looked at again.
    """
    request_count: int = 0
    """The number of requests that were received to their end."""
    expects_all_responses: bool = True
    """Whether the client expects a response to every request so far.

    Then dropping what is unread of a client that has left is safe: it got no response to it.
    """
    turn: FetchTurn = field(default_factory=FetchTurn)
    """Its places at the queues of its fetches' buckets; the shell sets the callback."""
    to_upstream: list[Buffer] = field(default_factory=list)
    to_client: list[Buffer] = field(default_factory=list)
    _ending: int = field(default=0, init=False)
    """Answered requests still in `in_flight`: 1 while `allow_more_requests` lets requests begin after one."""

    # Pause reasons, each independent of the phase and of the others.
    is_delaying: bool = False
    """Whether the daemon holds the next response back for its throttle time (KIP-13)."""
    upstream_is_full: bool = False
    """Whether the broker reads more slowly than the client sends."""
    client_is_full: bool = False
    """Whether the client reads more slowly than the broker sends."""
    is_at_max_in_flight: bool = False
    """Whether `max_in_flight` was reached: no request begins until half of the requests are answered."""
    awaits_memory: bool = False
    """Whether the next request waits for memory to be gathered, see `gathering`."""
    responses_await_memory: bool = False
    """Whether the next response waits for memory to be gathered, or for the end of the last one's."""
    holds_room: bool = False
    """Whether the last gathered response keeps its memory, which the shell returns when the client takes bytes."""
    is_working: bool = False
    """Whether a long response is being changed, a slice at a time: see `Session.work`."""

    @property
    def is_held(self) -> bool:
        """Whether the session keeps the client's bytes because no request may begin."""
        return self.phase is not READING or self.is_at_max_in_flight or self.awaits_memory or self.held is not None

    @property
    def waiting_request_bytes(self) -> int:
        """Bytes of the client that wait because its next request may not begin."""
        return self.requests.rest_bytes if self.is_held else 0

    @property
    def waiting_response_bytes(self) -> int:
        """Bytes of the broker that wait because a response is delayed, changed, or without memory."""
        return self.responses.rest_bytes if self.holds_responses else 0

    @property
    def holds_responses(self) -> bool:
        """Whether no response may begin."""
        return self.is_delaying or self.is_working or self.responses_await_memory

    @property
    def is_drained(self) -> bool:
        """Whether the client has got the response to every request that has begun."""
        return not (self.in_flight or self.requests.mid_frame)

    @property
    def wake_at_ms(self) -> int | None:
        """The time to call `wake` (ms), None for never."""
        if self.mute is None or self.held is None:
            waiting = self.mute or self.held
            return None if waiting is None else waiting.until_ms
        return min(self.mute.until_ms, self.held.until_ms)

    def may_begin(self) -> bool:
        """Return whether the next request may begin, and note it where `max_in_flight` is reached."""
        if not self.is_at_max_in_flight and len(self.in_flight) - self._ending >= self.max_in_flight:
            self.is_at_max_in_flight = True
        return self.phase is READING and not self.is_at_max_in_flight

    def allow_more_requests(self, now_ms: int) -> None:
        """Let requests begin again if at most half of the limit remain after the first of `in_flight`.

        The caller removes that first request, which is answered, from `in_flight` afterwards.
        """
        # Not after each response: `resume` reads the kept bytes from their start, which costs as much as they are long.
        if self.is_at_max_in_flight and len(self.in_flight) - 1 <= self.max_in_flight // 2:
            self.is_at_max_in_flight = False
            self._ending = 1
            self._resume_requests(now_ms)
            self._ending = 0

    def resume_gathering(self, now_ms: int) -> None:
        """Let the request begin that waited for memory to be gathered."""
        self.awaits_memory = False
        self._resume_requests(now_ms)

    def resume_response(self, now_ms: int) -> None:
        """Let the response begin that waited for memory to be gathered."""
        self.responses_await_memory = False
        self.pass_responses(now_ms)

    def resume_held(self, now_ms: int) -> None:
        """Look at a Fetch again that waits for room in its bucket."""
        if self.held is None:
            return
        if self.may_begin() and not self.upstream_is_full:
            self.requests.resume(now_ms)
        else:
            self.turn.leave()  # other clients need not wait until this one may send again
            self.held = None

    def await_response(self, request: InFlightRequest) -> None:
        """Let no request begin before the response to this one has passed."""
        self.awaited = request
        # DRAINING and CLOSED are for good: the response still passes, but nothing begins after it.
        if self.phase is READING:
            self.phase = AWAITING_RESPONSE

    def answered(self, request: InFlightRequest, now_ms: int) -> None:
        """Let the next request begin if this one was awaited."""
        if request is not self.awaited:
            return
        self.awaited = None
        if self.phase is AWAITING_RESPONSE:
            # A response before the awaited one may have muted the client meanwhile: that throttle time continues.
            self.phase = THROTTLED if self.mute is not None and not self.is_delaying else READING
            self._resume_requests(now_ms)

    def throttle(self, request: InFlightRequest, now_ms: int) -> None:
        """Mute the client for the throttle time of a request, from now on."""
        self._mute(request, now_ms)
        # While a response is awaited no request begins anyway; `answered` finds the mute and enters `THROTTLED` then.
        if self.phase is READING:
            self.phase = THROTTLED

    def delay(self, request: InFlightRequest, now_ms: int) -> None:
        """Hold the next response back for its throttle time."""
        self.is_delaying = True
        self._mute(request, now_ms)
        # KIP-13: the response itself is late. No request begins until it has passed: pipelining would be a way around.
        if self.awaited is None:
            self.await_response(request)

    def _mute(self, request: InFlightRequest, now_ms: int) -> None:
        assert request.throttled_by is not None
        # The broker's throttle time starts at the same response: a client waits once, for the longer of the two. A
        # shorter one must not end a mute that still runs: responses to pipelined requests may each set one.
        muted_ms = 0 if self.mute is None else self.mute.until_ms
        until_ms = max(now_ms + max(request.throttle_ms, request.upstream_ms), muted_ms)
        self.mute = ThrottledChannel(limiter=request.throttled_by, since_ms=now_ms, until_ms=until_ms)

    def wake(self, now_ms: int) -> None:
        """End the throttle time if it is over by now, and look at a Fetch again that has waited long enough."""
        # A timer may fire early, by the resolution of its clock: it is set again then.
        if self.held is not None and now_ms >= self.held.until_ms:
            self.resume_held(now_ms)
        if self.mute is not None and now_ms >= self.mute.until_ms:
            self.unmute(now_ms)

    def unmute(self, now_ms: int) -> None:
        """End the throttle time that the client waits for, if any."""
        if self.mute is None:
            return
        self.mute = None
        if self.is_delaying:
            self.is_delaying = False
            self.pass_responses(now_ms)
        if self.phase is THROTTLED:
            self.phase = READING
            self._resume_requests(now_ms)

    def pause_requests(self) -> None:
        """Take note that the client is left unread until the broker takes bytes again."""
        self.upstream_is_full = True

    def resume_requests(self, now_ms: int) -> None:
        """Pass on the requests that waited for the broker to take bytes, unless the phase forbids it."""
        self.upstream_is_full = False
        self._resume_requests(now_ms)

    def pause_responses(self) -> None:
        """Take note that the broker is left unread until the client takes bytes again."""
        self.client_is_full = True

    def resume_responses(self, now_ms: int) -> None:
        """Pass on the responses that waited for the client to take bytes, unless one is delayed."""
        self.client_is_full = False
        self.pass_responses(now_ms)

    def pass_responses(self, now_ms: int) -> None:
        """Pass on the responses that waited, unless something else holds them."""
        if not (self.holds_responses or self.client_is_full):
            self.responses.resume(now_ms)

    def drain(self) -> None:
        """Let the request that has begun end, and no other begin, for good."""
        if self.phase is not CLOSED:
            self.phase = DRAINING

    def close(self) -> None:
        """Let no request begin any more, because both connections are closing."""
        self.phase = CLOSED

    def release(self) -> None:
        """Drop all that requests and responses keep, because both connections have ended."""
        self.requests.release()
        self.responses.release()
        self.in_flight.clear()
        self.awaited = None
        self.turn = FetchTurn()

    def _resume_requests(self, now_ms: int) -> None:
        if self.phase is READING and not self.upstream_is_full:
            self.requests.resume(now_ms)


_NANOS_PER_US: Final = 1000
_NANOS_PER_MS: Final = 1_000_000
MAX_REFUSED: Final = 10
"""Requests refused within a window before their client is delayed instead, so that no more of its bytes are taken."""


@dataclass(slots=True, kw_only=True, eq=False)
class QuotaAccounting:
    """The charging of all requests of one connection."""

    state: SessionState
    throttle_stats: ThrottleStats
    counters: Counters
    costs: Callable[[], CostModel]
    on_charge: OnCharge | None
    """Receives each charge for the event log, None without one."""
    _refused_ms: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_REFUSED), init=False)
    _delays_until_ms: int = field(default=0, init=False)

    def charged(self, request: InFlightRequest, limiter: Limiter, amount: float, throttle_ms: int, now_ms: int) -> None:
        """Apply the throttle time of an amount that a limiter has recorded, and log the charge."""
        if throttle_ms > 0:
            throttle_ms = self._violated(request, limiter, throttle_ms, now_ms)
        self._log_charge(request, limiter, amount, throttle_ms, now_ms)

    def charge_fetch(self, request: InFlightRequest, client: ClientLimits, amount: int, now_ms: int) -> None:
        """Record the bytes of a response with records, and set the request's throttle time."""
        turn, wait_ms = self.state.turn, 0
        queue = turn.path if turn.request is request else None
        if queue is not None:
            wait_ms = queue.answered(turn, amount, now_ms)
        if amount:
            throttle_ms = client.fetch.record(amount, now_ms)
            if queue is not None and throttle_ms > 0:
                throttle_ms = queue.throttle_ms(throttle_ms, now_ms)
            self.charged(request, client.fetch, amount, throttle_ms, now_ms)
        if wait_ms:
            request.throttled(client.fetch, wait_ms)
        elif not client.empties_fetches:
            request.session_id = None  # it is delivered

    def unrecord_fetch(self, request: InFlightRequest, client: ClientLimits, amount: int, now_ms: int) -> None:
        """Give back the bytes of a response that lost its records."""
        client.fetch.unrecord(amount, now_ms)
        self._log_charge(request, client.fetch, -amount, 0, now_ms)

    def charge_request(self, request: InFlightRequest, client: ClientLimits, now_ms: int) -> None:
        """Record one request, and its estimated time on an I/O thread of the broker."""
        rate = client.request_rate
        if rate.bound is not None:
            self.charged(request, rate, 1, rate.record(1, now_ms), now_ms)
        # A broker reads the data of a fetch when it makes the response: `charge_response` charges that time.
        if request.api_key not in RESPONSE_BYTES and client.request_time.bound is not None:
            self._charge_time(request, client, now_ms)

    def count_exempt(self, request: InFlightRequest) -> None:
        """Count the estimated time of a request that is exempt from the request quota.

        Source:
            KIP-124; `ClientRequestQuotaManager.maybeRecordExempt` (4.x), which counts while any client has a quota of
            this type.
        """
        nanos = self.costs().request_nanos(request.api_key, request.frame_length)
        self.counters.exempt_request_us += int(nanos / _NANOS_PER_US)

    def charge_response(self, request: InFlightRequest, client: ClientLimits, length: int, now_ms: int) -> None:
        """Record the time of a response on a network thread, and charge the time of a fetch."""
        if client.request_time.bound is None:
            return
        nanos = self.costs().response_nanos(request.api_key, length)
        if request.exempt:
            self.counters.exempt_request_us += int(nanos / _NANOS_PER_US)
        else:
            # KIP-124: time on network threads is recorded without a check; the client's next request is throttled.
            client.request_time.record_without_throttle(nanos_to_percentage(nanos), now_ms)
        if request.api_key in RESPONSE_BYTES:
            self._charge_time(request, client, now_ms)

    def _charge_time(self, request: InFlightRequest, client: ClientLimits, now_ms: int) -> None:
        nanos, limiter = self.costs().request_nanos(request.api_key, request.frame_length), client.request_time
        # `count_exempt` has counted an exempt request already; the event log has it all the same.
        throttle_ms = 0 if request.exempt else limiter.record(nanos_to_percentage(nanos), now_ms)
        self.charged(request, limiter, nanos / _NANOS_PER_MS, throttle_ms, now_ms)

    def _log_charge(
        self, request: InFlightRequest, limiter: Limiter, amount: float, throttle_ms: int, now_ms: int
    ) -> None:
        if self.on_charge is not None:
            who, quota_type = (now_ms, limiter.user, limiter.client_id), limiter.quota_type
            is_exempt = request.exempt and quota_type is QuotaType.REQUEST
            self.on_charge((*who, quota_type, request.api_key, amount, throttle_ms, is_exempt))

    def _violated(self, request: InFlightRequest, limiter: Limiter, throttle_ms: int, now_ms: int) -> int:
        """Throttle the client as its policy says, and return the throttle time, 0 in shadow mode."""
        client = request.client
        assert client is not None
        is_refusable = client.refuses and request.expects_response and limiter in (client.produce, client.fetch)
        delays = is_refusable and self.is_refused_often(now_ms)
        if delays:  # until it rests: each window would have its refusals otherwise
            window = limiter.manager.window
            self._delays_until_ms = now_ms + throttle_ms + window.samples * window.window_ms
        elif client.max_throttle_ms is not None:
            throttle_ms = min(throttle_ms, client.max_throttle_ms)
        if client.is_shadow:
            self.throttle_stats.shadowed_here.count(limiter, throttle_ms)
            return 0
        # An error needs a response to carry it: the next Produce with acks=0 could not be refused, so it is delayed.
        if is_refusable and client.refuses_at_once and not delays:
            return 0
        request.throttled(limiter, throttle_ms)
        return throttle_ms

    def refused(self, limiter: Limiter, wait_ms: int, now_ms: int) -> bool:
        """Count a request that is refused instead of delayed, and return whether its client is muted as well."""
        self.counters.refused_requests += 1
        self.throttle_stats.refused_here.count(limiter, wait_ms)
        recent_ms, window = self._refused_ms, limiter.manager.window
        recent_ms.append(now_ms)
        span_ms = window.samples * window.window_ms
        if len(recent_ms) == MAX_REFUSED and now_ms - recent_ms[0] < span_ms:
            self._delays_until_ms = now_ms + wait_ms + span_ms
        return self.is_refused_often(now_ms)

    def is_refused_often(self, now_ms: int) -> bool:
        """Return whether the client is delayed, not refused, until it was within its quotas for a window."""
        return now_ms < self._delays_until_ms

    def apply_policy(self, request: InFlightRequest, now_ms: int) -> None:
        """Apply the client's policy to the throttle time that a filter set, and log the filter's charges."""
        # A filter knows limiters, not policies: what it asked for is capped, or only counted, here.
        limiter, throttle_ms = request.throttled_by, request.throttle_ms
        request.throttle_ms = 0
        if request.client is not None and limiter is not None and throttle_ms > 0:
            throttle_ms = self._violated(request, limiter, throttle_ms, now_ms)
        if self.on_charge is not None and request.filter is not None:
            for charged, amount in request.filter.charges():
                self._log_charge(request, charged, amount, throttle_ms if charged is limiter else 0, now_ms)

    def heed_upstream(self, request: InFlightRequest, upstream_ms: int) -> None:
        """Record a throttle time that the broker set, and count it if the daemon limits the client too."""
        limiter = request.accountable
        if upstream_ms <= 0 or limiter is None:
            return  # the client counts for nothing here, and waits by itself for what the broker wrote
        if limiter.bound is not None:
            self.throttle_stats.set_upstream.count(limiter, upstream_ms)
        request.upstream_ms = upstream_ms

    def settle(self, request: InFlightRequest, now_ms: int) -> None:
        """Mute the client for a request's throttle time, and let the request begin that awaited its response.

        Source:
            KIP-219: the throttle time starts when the response goes out; `SocketServer` mutes the channel until its
            end.
        """
        # A response that was delayed has had its throttle time already.
        if request.throttle_ms and not request.delayed:
            self.count(request, now_ms)
            self.state.throttle(request, now_ms)
        self.state.answered(request, now_ms)

    def count(self, request: InFlightRequest, now_ms: int) -> None:
        """Count a throttle time for the limiter that set it."""
        limiter = request.throttled_by
        if limiter is not None:
            self.throttle_stats.throttled(limiter, request.throttle_ms, now_ms)
