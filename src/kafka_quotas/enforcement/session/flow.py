"""The state that both directions of one connection share: the requests in flight, and why no request may begin.

docs/architecture.md draws `ConnectionState`; every change from one state to another is a method of `SessionState`.
Back-pressure is no state: the daemon stops reading a side whose peer does not take bytes, in any state, and frames end
as usual. Neither is the limit on requests in flight: while it is reached no request begins. Invariants: at most one
request is awaited, and it is the last in `in_flight`; while the state is not `READING` the client's stream is between
two frames, or inside the last one that began before.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafka_quotas.core.quotas.quota_manager import Limiter, QuotaType
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

    @property
    def quota_type(self) -> QuotaType:
        """The type of the violated quota."""
        return self.limiter.quota_type


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


class SessionState:
    """The state of one connection: its two streams, the requests in flight, and what pauses them."""

    __slots__ = (
        "_ending",
        "awaited",
        "client_is_full",
        "in_flight",
        "is_crowded",
        "is_delaying",
        "lacks_room",
        "max_in_flight",
        "mute",
        "requests",
        "responses",
        "state",
        "to_client",
        "to_upstream",
        "upstream_is_full",
        "wake_at_ms",
    )

    requests: FrameStream
    responses: FrameStream

    def __init__(self, *, max_in_flight: int) -> None:
        self.state = READING
        self.max_in_flight = max_in_flight
        self.in_flight: deque[InFlightRequest] = deque()
        self.awaited: InFlightRequest | None = None
        """The one request whose response lets the next request begin."""
        self.mute: ThrottledChannel | None = None
        self.wake_at_ms: int | None = None
        self.is_delaying = False
        """Whether the daemon holds the next response back for its throttle time (KIP-13)."""
        self.upstream_is_full = False
        """Whether the broker reads more slowly than the client sends."""
        self.client_is_full = False
        """Whether the client reads more slowly than the broker sends."""
        self._ending = 0
        """Answered requests still in `in_flight`: 1 while `thin_out` lets requests begin after one, else 0."""
        self.is_crowded = False
        """Whether `max_in_flight` was reached: no request begins until half of the requests are answered."""
        self.lacks_room = False
        """Whether the next request waits for room to be gathered, see `gathering`."""
        self.to_upstream: list[Buffer] = []
        self.to_client: list[Buffer] = []

    @property
    def may_begin(self) -> bool:
        """Whether the next request may begin."""
        if not self.is_crowded and len(self.in_flight) - self._ending >= self.max_in_flight:
            self.is_crowded = True
        return self.state is READING and not self.is_crowded

    @property
    def is_held(self) -> bool:
        """Whether the session keeps the client's bytes because no request may begin."""
        return self.state is not READING or self.is_crowded or self.lacks_room

    def thin_out(self, now_ms: int) -> None:
        """Let requests begin again if at most half of the limit remain after the first of `in_flight`.

        The caller removes that first request, which is answered, from `in_flight` afterwards.
        """
        # Not after each response: `resume` reads the kept bytes from their start, which costs as much as they are long.
        if self.is_crowded and len(self.in_flight) - 1 <= self.max_in_flight // 2:
            self.is_crowded = False
            self._ending = 1
            self._go_on(now_ms)
            self._ending = 0

    def found_room(self, now_ms: int) -> None:
        """Let the request begin that waited for room to be gathered."""
        self.lacks_room = False
        self._go_on(now_ms)

    def await_response(self, exchange: InFlightRequest) -> None:
        """Let no request begin before the response to this one has passed."""
        self.awaited = exchange
        if self.state is READING:
            self.state = AWAITING_RESPONSE

    def answered(self, exchange: InFlightRequest, now_ms: int) -> None:
        """Let the next request begin if this one was awaited.

        The response to any other request changes nothing.
        """
        if self.awaited is not exchange:
            return
        self.awaited = None
        if self.state is AWAITING_RESPONSE:
            # A response before the awaited one may have muted the client meanwhile: that throttle time continues.
            is_muted = self.mute is not None and not self.is_delaying
            self._enter(THROTTLED if is_muted else READING, now_ms)

    def throttle(self, exchange: InFlightRequest, now_ms: int) -> None:
        """Mute the client for the throttle time of a request, from now on."""
        self.hold_for(exchange, now_ms)
        # While a response is awaited no request begins anyway; `answered` finds the mute and enters `THROTTLED` then.
        if self.state is READING:
            self.state = THROTTLED

    def delay(self, exchange: InFlightRequest, now_ms: int) -> None:
        """Hold the next response back for its throttle time."""
        self.is_delaying = True
        self.hold_for(exchange, now_ms)
        # No request begins until the response has passed: pipelining would be a way around the delay.
        if self.awaited is None:
            self.await_response(exchange)

    def hold_for(self, exchange: InFlightRequest, now_ms: int) -> None:
        """Set `wake_at_ms` to the end of a request's throttle time, and `mute` to whose quota it is."""
        assert exchange.throttled_by is not None
        # The broker's throttle time starts at the same response: a client waits once, for the longer of the two.
        until_ms = max(now_ms + max(exchange.throttle_ms, exchange.upstream_ms), self.wake_at_ms or 0)
        self.wake_at_ms = until_ms
        self.mute = ThrottledChannel(limiter=exchange.throttled_by, since_ms=now_ms, until_ms=until_ms)

    def wake(self, now_ms: int) -> None:
        """End the throttle time if it is over by now."""
        if self.wake_at_ms is None or now_ms < self.wake_at_ms:
            return
        self.wake_at_ms = self.mute = None
        if self.is_delaying:
            self.is_delaying = False
            # `resume_responses` passes the response on to a client that does not read yet.
            if not self.client_is_full:
                self.responses.resume(now_ms)
        if self.state is THROTTLED:
            self._enter(READING, now_ms)

    def pause_requests(self) -> None:
        """Stop reading from the client until the broker takes bytes again."""
        self.upstream_is_full = True

    def resume_requests(self, now_ms: int) -> None:
        """Pass on the requests that waited for the broker to take bytes, unless the state forbids it."""
        self.upstream_is_full = False
        if self.state is READING:
            self.requests.resume(now_ms)

    def pause_responses(self) -> None:
        """Stop reading from the broker until the client takes bytes again."""
        self.client_is_full = True

    def resume_responses(self, now_ms: int) -> None:
        """Pass on the responses that waited for the client to take bytes, unless one is delayed."""
        self.client_is_full = False
        if not self.is_delaying:
            self.responses.resume(now_ms)

    def drain(self) -> None:
        """Let no further request begin, for good."""
        if self.state is not CLOSED:
            self.state = DRAINING

    def close(self) -> None:
        """Let no request begin any more, because both connections are closing."""
        self.state = CLOSED

    def _enter(self, state: ConnectionState, now_ms: int) -> None:
        self.state = state
        self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        if self.state is READING and not self.upstream_is_full:
            self.requests.resume(now_ms)
