"""The state of one connection that both its directions share: what is under way, and why nothing new may begin.

`ConnectionState` is drawn in docs/architecture.md; every change from one state to another is a method of
`SessionState`. Back-pressure is no state: a side whose peer does not take bytes is left unread in any of them, and
frames end as usual. Neither is a limit on what is under way: while it is reached no request begins. Invariants: at most
one request is awaited, and it is the last in `in_flight`; while the state is not `READING` the client's stream is
between two frames, or inside the last one that began before.

A client that is held for a throttle time.
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
    """Whose quota holds a connection (`limiter`), and from when to when (ms)."""

    limiter: Limiter
    since_ms: int
    until_ms: int

    @property
    def quota_type(self) -> QuotaType:
        """Which traffic the quota is for."""
        return self.limiter.quota_type


class ConnectionState(Enum):
    """What a connection does with the client's next request; but for `READING` none may begin."""

    READING = "reading"
    """The next request begins as soon as its first bytes are there."""
    AWAITING_RESPONSE = "awaiting a response"
    """The last request decides about the next one: its response carries a throttle time, or names the client."""
    THROTTLED = "throttled"
    """The client is over a quota and is left unread until its throttle time is over."""
    DRAINING = "draining"
    """The daemon ends: what was begun ends and is answered."""
    CLOSED = "closed"
    """Both connections end."""


READING: Final = ConnectionState.READING
AWAITING_RESPONSE: Final = ConnectionState.AWAITING_RESPONSE
THROTTLED: Final = ConnectionState.THROTTLED
DRAINING: Final = ConnectionState.DRAINING
CLOSED: Final = ConnectionState.CLOSED
"""The members as plain names: looking one up in its class costs as much as a small request's arithmetic."""


class SessionState:
    """The two streams, the requests that wait for their responses, and the state of the connection."""

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
        """The one request whose response lets the next begin; no other response does."""
        self.mute: ThrottledChannel | None = None
        self.wake_at_ms: int | None = None
        self.is_delaying = False
        """Whether the next response is held back for its throttle time (KIP-13's style)."""
        self.upstream_is_full = False
        """Whether the broker does not take bytes as fast as they come."""
        self.client_is_full = False
        """Whether the client does not take bytes as fast as they come."""
        self._ending = 0
        """How many of `in_flight` are answered and about to leave it: 1 while what goes on behind one begins."""
        self.is_crowded = False
        """Whether as many requests as may be wait for their responses: none begins before half of them are answered."""
        self.lacks_room = False
        """Whether the next request waits to be gathered, see `gathering`."""
        self.to_upstream: list[Buffer] = []
        self.to_client: list[Buffer] = []

    @property
    def may_begin(self) -> bool:
        """Whether the next request may begin, or its first bytes may be looked at once more."""
        if not self.is_crowded and len(self.in_flight) - self._ending >= self.max_in_flight:
            self.is_crowded = True
        return self.state is READING and not self.is_crowded

    @property
    def is_held(self) -> bool:
        """Whether no request may begin, so that bytes of the client are kept."""
        return self.state is not READING or self.is_crowded or self.lacks_room

    def thin_out(self, now_ms: int) -> None:
        """Let requests begin again if few enough wait, now that the first of `in_flight` is answered.

        By halves: what is kept is looked at from its start each time, which costs as much as it is long.
        """
        if self.is_crowded and len(self.in_flight) - 1 <= self.max_in_flight // 2:
            self.is_crowded = False
            self._ending = 1
            self._go_on(now_ms)
            self._ending = 0

    def found_room(self, now_ms: int) -> None:
        """Let the request begin that waited to be gathered."""
        self.lacks_room = False
        self._go_on(now_ms)

    def await_response(self, exchange: InFlightRequest) -> None:
        """Let no request begin before the response to this one was seen."""
        self.awaited = exchange
        if self.state is READING:
            self.state = AWAITING_RESPONSE

    def answered(self, exchange: InFlightRequest, now_ms: int) -> None:
        """Let the next request begin if this one was awaited; the response to any other changes nothing."""
        if self.awaited is not exchange:
            return
        self.awaited = None
        if self.state is AWAITING_RESPONSE:
            # A response in front of the awaited one may have muted the client meanwhile: its time goes on.
            is_muted = self.mute is not None and not self.is_delaying
            self._enter(THROTTLED if is_muted else READING, now_ms)

    def throttle(self, exchange: InFlightRequest, now_ms: int) -> None:
        """Leave the client unread from now on for the throttle time of a request."""
        self.hold_for(exchange, now_ms)
        if self.state is READING:
            self.state = THROTTLED

    def delay(self, exchange: InFlightRequest, now_ms: int) -> None:
        """Hold the next response back for its throttle time, and with it what the client sends after the request."""
        self.is_delaying = True
        self.hold_for(exchange, now_ms)
        if self.awaited is None:
            self.await_response(exchange)

    def hold_for(self, exchange: InFlightRequest, now_ms: int) -> None:
        """Wake up when the throttle time of a request is over, and show whose quota it is until then."""
        assert exchange.throttled_by is not None
        # The broker's throttle time holds from the same response on: a client waits once, for the longer of the two.
        until_ms = max(now_ms + max(exchange.throttle_ms, exchange.upstream_ms), self.wake_at_ms or 0)
        self.wake_at_ms = until_ms
        self.mute = ThrottledChannel(limiter=exchange.throttled_by, since_ms=now_ms, until_ms=until_ms)

    def wake(self, now_ms: int) -> None:
        """End the throttle time that is over by now, if one is."""
        if self.wake_at_ms is None or now_ms < self.wake_at_ms:
            return
        self.wake_at_ms = self.mute = None
        if self.is_delaying:
            self.is_delaying = False
            if not self.client_is_full:
                self.responses.resume(now_ms)
        if self.state is THROTTLED:
            self._enter(READING, now_ms)

    def pause_requests(self) -> None:
        """Leave the client unread until the broker takes bytes again."""
        self.upstream_is_full = True

    def resume_requests(self, now_ms: int) -> None:
        """Pass on what waited for the broker to take bytes, unless it may not begin for another reason."""
        self.upstream_is_full = False
        if self.state is READING:
            self.requests.resume(now_ms)

    def pause_responses(self) -> None:
        """Leave the broker unread until the client takes bytes again."""
        self.client_is_full = True

    def resume_responses(self, now_ms: int) -> None:
        """Pass on what waited for the client to take bytes, unless a response is held back."""
        self.client_is_full = False
        if not self.is_delaying:
            self.responses.resume(now_ms)

    def drain(self) -> None:
        """Let no further request begin, for good."""
        if self.state is not CLOSED:
            self.state = DRAINING

    def close(self) -> None:
        """Let nothing begin any more; both connections end."""
        self.state = CLOSED

    def _enter(self, state: ConnectionState, now_ms: int) -> None:
        self.state = state
        self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        if self.state is READING and not self.upstream_is_full:
            self.requests.resume(now_ms)
