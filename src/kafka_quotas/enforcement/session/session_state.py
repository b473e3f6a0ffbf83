"""The state that both directions of one connection share: the requests in flight, and why no request may begin.

docs/project/architecture.md draws `ConnectionState` and lists the pause reasons; every change of either is a method of
`SessionState`. Invariants: at most one request is awaited, and it is the last in `in_flight`; while the phase is not
`READING` the client's stream is between two frames, or inside the last one that began before.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kafka_quotas.core.quotas.fetch_queue import FetchTurn
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.session.frame_stream import FrameStream
from kafka_quotas.enforcement.session.in_flight import InFlightRequest
from kafka_quotas.wire.codec.skip import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledChannel:
    """A connection that the daemon has muted for a throttle time."""

    limiter: Limiter
    """The violated quota of the client."""
    since_ms: int
    """Start of the throttle time."""
    until_ms: int
    """End of the throttle time."""


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
    """The wait of a Fetch that its bucket has no room for, None if none waits: see `core.quotas.fetch_queue`."""
    wake_at_ms: int | None = None
    """The time to call `wake` (ms), None for never."""
    request_count: int = 0
    """The number of requests that were received to their end."""
    expects_all_responses: bool = True
    """Whether the client expects a response to every request so far.

    Then dropping what is unread of a client that has left is safe: it got no response to it.
    """
    turn: FetchTurn = field(default_factory=FetchTurn)
    """Its place at the queue of its fetches' bucket; the shell sets the callback."""
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

    def hold(self, held: ThrottledChannel | None) -> None:
        """Keep a Fetch until a time at the latest, when `wake` has it looked at again, or no longer (None)."""
        self.held = held
        self._set_wake()

    def resume_held(self, now_ms: int) -> None:
        """Look at a Fetch again that waits for room in its bucket."""
        if self.held is None:
            return
        if self.may_begin() and not self.upstream_is_full:
            self.requests.resume(now_ms)
        else:
            self.turn.leave(now_ms)  # other clients need not wait until this one may send again
            self.hold(None)

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
            is_muted = self.mute is not None and not self.is_delaying
            self._enter(THROTTLED if is_muted else READING, now_ms)

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
        self._set_wake()

    def _set_wake(self) -> None:
        ends = [each.until_ms for each in (self.mute, self.held) if each is not None]
        self.wake_at_ms = min(ends) if ends else None

    def wake(self, now_ms: int) -> None:
        """End the throttle time if it is over by now, and look at a Fetch again that has waited long enough."""
        # A timer may fire early, by the resolution of its clock: it is set again then.
        if self.held is not None and now_ms >= self.held.until_ms:
            self.resume_held(now_ms)
        if self.mute is not None and now_ms >= self.mute.until_ms:
            self._end_mute(now_ms)

    def _end_mute(self, now_ms: int) -> None:
        self.mute = None
        self._set_wake()
        if self.is_delaying:
            self.is_delaying = False
            self.pass_responses(now_ms)
        if self.phase is THROTTLED:
            self._enter(READING, now_ms)

    def unmute(self, now_ms: int) -> None:
        """End the throttle time that the client waits for, if any, before it is over."""
        if self.mute is not None:
            self._end_mute(now_ms)

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

    def _enter(self, phase: ConnectionState, now_ms: int) -> None:
        self.phase = phase
        self._resume_requests(now_ms)

    def _resume_requests(self, now_ms: int) -> None:
        if self.phase is READING and not self.upstream_is_full:
            self.requests.resume(now_ms)
