"""One client's connection and the broker's behind it: bytes in, bytes out, and when they may move.

No I/O and no clock: the shell feeds what it read, writes what it finds in `to_upstream` and `to_client`, may leave a
side unread while something holds it (`request_holds`, `response_holds`, see `holds`), and calls `wake` at `wake_at_ms`.

How a client is held to its byte rates, as a broker of this connection would do it:

- A Produce request is charged with its length when its last byte has been seen. It is always passed on. If it took the
  client over its quota no byte behind it passes until its response has gone out and the throttle time is over.
- A Fetch response is charged with its length when its head has been seen, and is delivered; the throttle time counts
  from then. While a client has a fetch limit, what it sends behind a Fetch waits for that decision, so that a client
  that pipelines gains nothing. A broker does the same with every request.
- The response carries the larger of the broker's throttle time and ours, in the versions that have the field.

**Source:** KIP-219; `KafkaApis.handleProduceRequest`, `handleFetchRequest`, `SocketServer` (4.x).
"""

from collections import deque
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.event_log import OnCharge
from kafka_quotas.enforcement.exchange import (
    ADDRESSES,
    FETCH,
    IDENTITY,
    PRODUCE,
    RAW_TOKEN,
    STREAM,
    TAIL,
    VERSIONS,
    Exchange,
)
from kafka_quotas.enforcement.frame_stream import Decision, Frame, FrameStream, Patch
from kafka_quotas.enforcement.holds import AWAITING, DELAYED, DRAINING, NO_NEW_FRAME, THROTTLED
from kafka_quotas.enforcement.identity import Identity
from kafka_quotas.enforcement.ledger import Ledger
from kafka_quotas.enforcement.mute import Mute
from kafka_quotas.enforcement.request_intake import RequestIntake
from kafka_quotas.enforcement.rules import Rules, ThrottleStyle
from kafka_quotas.wire.addresses import Translate, rewrite_addresses
from kafka_quotas.wire.api_table import API_TABLE
from kafka_quotas.wire.api_versions import (
    API_VERSIONS,
    clamp,
    is_unsupported_version_answer,
    unsupported_version_answer,
)
from kafka_quotas.wire.fetch_response import charged_bytes
from kafka_quotas.wire.fetch_tail import FetchTail, is_bare, rewrite_tail
from kafka_quotas.wire.frame import (
    FRAME_LENGTH_BYTES,
    MAX_GATHERED_BYTES,
    MAX_UNAUTHENTICATED_BYTES,
    checked_frame_length,
)
from kafka_quotas.wire.response_header import RESPONSE_HEAD_BYTES, parse_response_head
from kafka_quotas.wire.throttle_field import (
    MAX_THROTTLE_MS,
    NEED_MORE,
    patch_throttle,
    read_throttle_ms,
    throttle_needs_whole,
    throttle_offset,
)
from kafka_quotas.wire.walk import Buffer

CLIENT_WAITS_SINCE: Final = {PRODUCE: 6, FETCH: 8}
"""First versions in which a client waits the throttle time out by itself. **Source:** KIP-219."""


PRODUCE_FLEXIBLE_SINCE: Final = 9
_STREAMED: Final = (STREAM, TAIL)
"""Treatments that pass a response on as it comes, but for its end."""
_FOUR_ZEROS: Final = bytes(4)
_FIVE_ZEROS: Final = bytes(5)


class Session:
    """The state of one connection pair."""

    def __init__(
        self,
        *,
        quotas: BrokerQuotas,
        identity: Identity,
        rules: Rules,
        translate: Translate,
        ledger: Ledger,
        on_charge: OnCharge | None = None,
    ) -> None:
        self._identity = identity
        self._on_charge = on_charge
        self._translate = translate
        self._ledger = ledger
        self._max_throttle_ms = rules.max_throttle_ms
        self._delays_responses = rules.throttle_style is ThrottleStyle.DELAY
        self._intake = RequestIntake(quotas=quotas, identity=identity, rules=rules)
        self._begin_again = self._intake.begin_again
        self._receiving: Exchange | None = None
        self._in_flight: deque[Exchange] = deque()
        self._draining = False
        self._unasked = False
        self.to_upstream: list[Buffer] = []
        """Bytes for the broker, in order; the shell writes and clears them. Views are into the chunks that were fed."""
        self.to_client: list[Buffer] = []
        """Bytes for the client, likewise."""
        self.request_holds = 0
        """Why the client's side stands still, see `holds`."""
        self.response_holds = 0
        """Why the broker's side stands still, see `holds`."""
        self.wake_at_ms: int | None = None
        """When `wake` is to be called, None for never."""
        self.mute: Mute | None = None
        """What the client waits for, None if it doesn't."""
        self.request_count = 0
        self._requests = FrameStream(self._begin_request, self._end_request, self.to_upstream)
        self._responses = FrameStream(self._begin_response, self._end_response, self.to_client)
        self.from_client = self._requests.feed
        """(chunk, now_ms): takes what the client sent; raises `ProtocolError` where it is what we can't handle."""
        self.from_upstream = self._responses.feed
        """(chunk, now_ms): takes what the broker sent; raises `ProtocolError` where it answers no request of ours."""

    @property
    def principal(self) -> str:
        """Who the client is, as far as it is known by now."""
        return self._identity.principal

    @property
    def unanswered(self) -> int:
        """How many requests wait for their response, or for its end."""
        return len(self._in_flight)

    @property
    def mid_request(self) -> bool:
        """Whether the client stopped in the middle of a request, if nothing comes behind what it sent."""
        return self._requests.mid_frame or self._requests.rest_bytes > 0

    @property
    def drained(self) -> bool:
        """Whether every request that was begun has been answered."""
        return not (self._in_flight or self._requests.mid_frame)

    @property
    def waiting_request_bytes(self) -> int:
        """How many bytes of the client wait because its side stands still."""
        return self._requests.rest_bytes if self.request_holds else 0

    @property
    def waiting_response_bytes(self) -> int:
        """How many bytes of the broker wait because its side stands still."""
        return self._responses.rest_bytes if self.response_holds else 0

    def hold_requests(self, reason: int) -> None:
        """Nothing; the client's side stands still until the reason is released."""
        self.request_holds |= reason

    def release_requests(self, reason: int, now_ms: int) -> None:
        """Nothing; the outputs hold what had waited, unless another reason holds."""
        self.request_holds &= ~reason
        if not self.request_holds:
            self._requests.resume(now_ms)

    def hold_responses(self, reason: int) -> None:
        """Nothing; the broker's side stands still until the reason is released."""
        self.response_holds |= reason

    def release_responses(self, reason: int, now_ms: int) -> None:
        """Nothing; the outputs hold what had waited, unless another reason holds."""
        self.response_holds &= ~reason
        if not self.response_holds:
            self._responses.resume(now_ms)

    def wake(self, now_ms: int) -> None:
        """Nothing; whoever had to wait until now goes on. Called too early it does nothing."""
        if self.wake_at_ms is None or now_ms < self.wake_at_ms:
            return
        self.wake_at_ms = None
        self.mute = None
        if self.response_holds & DELAYED:
            self.release_responses(DELAYED, now_ms)
        if self.request_holds & THROTTLED:
            self.release_requests(THROTTLED, now_ms)

    def drain(self) -> None:
        """Nothing; the request that is being received may end, no other may begin."""
        self._draining = True
        if not self._requests.mid_frame:
            self.request_holds |= DRAINING

    # The client's side.

    def _begin_request(self, chunk: memoryview, offset: int, now_ms: int) -> Decision | None:
        del now_ms
        if self.request_holds & NO_NEW_FRAME:
            return None
        exchange = self._begin_again(chunk, offset) or self._intake.begin(chunk, offset)
        if exchange is None:
            return None
        self._receiving = exchange
        return exchange.request

    def _end_request(self, gathered: bytearray | None, now_ms: int) -> Buffer | None:
        exchange, self._receiving = self._receiving, None
        assert exchange is not None
        self.request_count += 1
        if exchange.api_key == PRODUCE:
            self._charge(exchange, exchange.frame_length, now_ms)
        elif gathered is not None:
            self._identity.asked(*exchange.place, gathered)
        if exchange.expects_response:
            self._in_flight.append(exchange)
            if exchange.decides or exchange.throttle_ms:
                self.request_holds |= AWAITING
        elif exchange.throttle_ms:
            self._mute(exchange, now_ms)
        if self._draining:
            self.request_holds |= DRAINING
        return gathered

    # The broker's side.

    def _begin_response(self, chunk: memoryview, offset: int, now_ms: int) -> Decision | None:
        if self.response_holds & DELAYED:
            return None
        exchange = self._in_flight[0] if self._in_flight else None
        if exchange is None or exchange.api_key == RAW_TOKEN:
            return self._begin_token(exchange, chunk, offset)
        head = parse_response_head(chunk, offset)
        if head is None:
            return None
        length, correlation_id = head
        if correlation_id != exchange.correlation_id:
            raise ProtocolError(
                f"the upstream answered correlation id {correlation_id} where {exchange.correlation_id} was due"
            )
        if exchange.treatment is TAIL:
            _look_at_tail(exchange, chunk, offset, length)
        if exchange.limiter is None:
            return _decision(exchange, length, gather=exchange.treatment not in _STREAMED)
        end = offset + FRAME_LENGTH_BYTES + length
        if exchange.api_key == PRODUCE and not exchange.throttle_ms and _ends_bare(exchange, chunk, end):
            return length + FRAME_LENGTH_BYTES
        return self._begin_charged(exchange, chunk, offset, length, now_ms)

    def _begin_charged(
        self, exchange: Exchange, chunk: memoryview, offset: int, length: int, now_ms: int
    ) -> Decision | None:
        """How to pass on the response to a Produce or Fetch; None if it has to wait or more bytes are needed."""
        if not exchange.charged:
            self._charge(exchange, charged_bytes(exchange.api_version, length), now_ms)
        if self._delays_responses and exchange.throttle_ms and not exchange.delayed:
            exchange.delayed = True
            self.response_holds |= DELAYED
            self._wait(exchange, now_ms)
            return None
        place = exchange.place
        is_whole = len(chunk) >= offset + FRAME_LENGTH_BYTES + length
        gather = exchange.treatment not in _STREAMED
        patches = not gather and (exchange.throttle_ms > 0 or exchange.limited)
        patch = None
        if patches and (is_whole or not throttle_needs_whole(*place)):
            found = throttle_offset(*place, chunk, offset)
            if found == NEED_MORE:
                return None
            patch = None if found is None else self._patch(exchange, chunk, found)
            exchange.patched = True
        elif patches:
            gather = True
        if exchange.api_key == FETCH:
            self._settle(exchange, now_ms)
        return _decision(exchange, length, gather=gather, patch=patch)

    def _patch(self, exchange: Exchange, chunk: memoryview, offset: int) -> Patch | None:
        """The throttle time for the field at an offset, where ours is the larger one."""
        upstream_ms, told_ms = read_throttle_ms(chunk, offset), self._told_ms(exchange)
        self._heed_upstream(exchange, upstream_ms)
        return Patch(offset, min(told_ms, MAX_THROTTLE_MS).to_bytes(4, "big")) if told_ms > upstream_ms else None

    def _begin_token(self, exchange: Exchange | None, chunk: memoryview, offset: int) -> Frame | None:
        """How to pass on a bare token; only those of mechanisms that we can't read come without being asked for."""
        if exchange is None and (not self._identity.expects_tokens or self._identity.reads_tokens):
            raise ProtocolError("the upstream sent a response that nobody asked for")
        length = checked_frame_length(chunk, offset, limit=MAX_UNAUTHENTICATED_BYTES)
        if length is None:
            return None
        self._unasked = exchange is None
        return Frame(length + FRAME_LENGTH_BYTES, gather=exchange is not None)

    def _end_response(self, gathered: bytearray | None, now_ms: int) -> Buffer | None:
        if self._unasked:
            self._unasked = False
            return None
        exchange = self._in_flight.popleft()
        passed = None if gathered is None else self._rewritten(exchange, gathered)
        if exchange.api_key != FETCH and self.request_holds & AWAITING and not self._in_flight:
            self._settle(exchange, now_ms)
        return passed

    def _rewritten(self, exchange: Exchange, frame: bytearray) -> Buffer:
        """The gathered response with our addresses, versions and throttle time in it."""
        if exchange.treatment is IDENTITY:
            self._identity.answered(*exchange.place, frame)
        elif exchange.treatment is VERSIONS:
            return _clamped(exchange, frame)
        elif exchange.treatment is TAIL:
            return rewrite_tail(exchange.api_version, frame, self._translate)
        if exchange.limiter is not None and not exchange.patched:
            upstream_ms = patch_throttle(frame, *exchange.place, self._told_ms(exchange))
            self._heed_upstream(exchange, upstream_ms or 0)
        if exchange.treatment is ADDRESSES:
            return rewrite_addresses(*exchange.place, frame, self._translate)
        return frame

    # Throttling.

    def _charge(self, exchange: Exchange, amount: int, now_ms: int) -> None:
        """Nothing; the amount is recorded, and what the client has to wait for it is noted in the exchange."""
        limiter = exchange.limiter
        assert limiter is not None
        exchange.charged = True
        throttle_ms = limiter.record(amount, now_ms)
        if throttle_ms > 0:
            if self._max_throttle_ms is not None:
                throttle_ms = min(throttle_ms, self._max_throttle_ms)
            exchange.throttle_ms = throttle_ms
            self._ledger.throttled(exchange.quota_type, limiter, throttle_ms)
        if self._on_charge is not None:
            kind, user, client_id = exchange.quota_type, limiter.user, limiter.client_id
            self._on_charge((now_ms, user, client_id, kind, exchange.api_key, amount, exchange.throttle_ms, False))

    def _told_ms(self, exchange: Exchange) -> int:
        """The throttle time to write into a response; 0 where the client would wait it out a second time."""
        waits_itself = exchange.delayed and exchange.api_version >= CLIENT_WAITS_SINCE[exchange.api_key]
        return 0 if waits_itself else exchange.throttle_ms

    def _heed_upstream(self, exchange: Exchange, upstream_ms: int) -> None:
        """Nothing; a throttle time that the broker set counts if it is the larger, and is said if we limit as well."""
        if upstream_ms <= 0:
            return
        assert exchange.limiter is not None
        if exchange.limited:
            self._ledger.throttled_upstream(exchange.quota_type, exchange.limiter, upstream_ms)
        if exchange.throttle_ms:
            exchange.throttle_ms = max(exchange.throttle_ms, upstream_ms)

    def _settle(self, exchange: Exchange, now_ms: int) -> None:
        """Nothing; what waited for this response goes on, or the client is muted from now on."""
        if exchange.throttle_ms and not exchange.delayed:
            self.request_holds &= ~AWAITING
            self._mute(exchange, now_ms)
        elif self.request_holds & AWAITING:
            self.release_requests(AWAITING, now_ms)

    def _mute(self, exchange: Exchange, now_ms: int) -> None:
        """Nothing; the client's side stands still for the throttle time of the exchange."""
        self.request_holds |= THROTTLED
        self._wait(exchange, now_ms)

    def _wait(self, exchange: Exchange, now_ms: int) -> None:
        assert exchange.limiter is not None
        until_ms = max(now_ms + exchange.throttle_ms, self.wake_at_ms or 0)
        self.wake_at_ms = until_ms
        self.mute = Mute(quota_type=exchange.quota_type, limiter=exchange.limiter, since_ms=now_ms, until_ms=until_ms)


def _clamped(exchange: Exchange, frame: bytearray) -> Buffer:
    """The ApiVersions response with our maximum versions; a client that asks in a version beyond ours is told so.

    A broker that is older than the version asked for says only that, and the client asks again.
    """
    if exchange.api_version > API_TABLE[API_VERSIONS].max_version:
        return unsupported_version_answer(exchange.correlation_id)
    if is_unsupported_version_answer(frame, RESPONSE_HEAD_BYTES, len(frame)):
        return frame
    return clamp(frame, exchange.api_version)


def _ends_bare(exchange: Exchange, chunk: memoryview, end: int) -> bool:
    """Whether a Produce response is whole, up to `end`, and surely has a throttle time of 0 and no addresses behind it.

    The throttle time is the last field there is; from the first flexible version on an empty tag section follows. Were
    that not empty, its last entry would end with a broker's port, its rack and its tags: five zeros could not be.
    """
    if exchange.api_version >= PRODUCE_FLEXIBLE_SINCE:
        return chunk[end - 5 : end] == _FIVE_ZEROS
    return chunk[end - 4 : end] == _FOUR_ZEROS and exchange.api_version > 0


def _look_at_tail(exchange: Exchange, chunk: memoryview, offset: int, length: int) -> None:
    """Nothing; a Fetch response that is at hand as a whole is treated as what it turns out to be."""
    end = offset + FRAME_LENGTH_BYTES + length
    if len(chunk) >= end:
        exchange.treatment = STREAM if is_bare(chunk, offset, end) else ADDRESSES


def _decision(exchange: Exchange, length: int, *, gather: bool, patch: Patch | None = None) -> Decision:
    """How to pass on a response; raises `ProtocolError` if it is to be gathered and too long for that."""
    if exchange.treatment is TAIL:
        return Frame(length + FRAME_LENGTH_BYTES, patch=patch, find_tail=FetchTail(length).find)
    if not gather and patch is None:
        return length + FRAME_LENGTH_BYTES
    if gather and length > MAX_GATHERED_BYTES:
        raise ProtocolError(f"a response announces {length} bytes and would have to be changed as a whole")
    return Frame(length + FRAME_LENGTH_BYTES, gather, patch)
