"""What is under way on one connection, and what stands still: the state that both its directions share.

The shell reads the holds and the outputs after everything it fed, and calls `Session.wake` at `wake_at_ms`.
"""

from collections import deque

from kafka_quotas.enforcement.exchange import Exchange
from kafka_quotas.enforcement.frame_stream import FrameStream
from kafka_quotas.enforcement.holds import THROTTLED
from kafka_quotas.enforcement.mute import Mute
from kafka_quotas.wire.walk import Buffer


class Flow:
    """The two streams, why each of them stands still (see `holds`), and the requests that wait for their responses."""

    __slots__ = (
        "in_flight",
        "mute",
        "request_holds",
        "requests",
        "response_holds",
        "responses",
        "to_client",
        "to_upstream",
        "wake_at_ms",
    )

    requests: FrameStream
    responses: FrameStream

    def __init__(self) -> None:
        self.in_flight: deque[Exchange] = deque()
        self.request_holds = 0
        self.response_holds = 0
        self.to_upstream: list[Buffer] = []
        self.to_client: list[Buffer] = []
        self.wake_at_ms: int | None = None
        self.mute: Mute | None = None

    def release_requests(self, reason: int, now_ms: int) -> None:
        """Nothing; what had waited for this reason goes on, unless another one holds."""
        self.request_holds &= ~reason
        if not self.request_holds:
            self.requests.resume(now_ms)

    def release_responses(self, reason: int, now_ms: int) -> None:
        """Nothing; what had waited for this reason goes on, unless another one holds."""
        self.response_holds &= ~reason
        if not self.response_holds:
            self.responses.resume(now_ms)

    def hold_for(self, exchange: Exchange, now_ms: int) -> None:
        """Nothing; somebody waits for the throttle time of an exchange from now on, and it shows who."""
        assert exchange.limiter is not None
        until_ms = max(now_ms + max(exchange.throttle_ms, exchange.upstream_ms), self.wake_at_ms or 0)
        self.wake_at_ms = until_ms
        self.mute = Mute(quota_type=exchange.quota_type, limiter=exchange.limiter, since_ms=now_ms, until_ms=until_ms)

    def mute_client(self, exchange: Exchange, now_ms: int) -> None:
        """Nothing; the client's side stands still for the throttle time of an exchange."""
        self.request_holds |= THROTTLED
        self.hold_for(exchange, now_ms)
