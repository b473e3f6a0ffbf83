"""The broker's side of a connection: responses as they begin and end, each for the earliest request in flight.

A response streams unless it needs a change that its first bytes don't show; then it is gathered, whole or only its end.
The bytes of a fetch are charged when its head has come, because its throttle time is in that head.
A gathered response takes memory from the budget of all connections, and a long one is changed in slices.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.quota_charges import RESPONSE_BYTES
from kafka_quotas.enforcement.session.frames import Decision, Frame, GatherShare, Patch
from kafka_quotas.enforcement.session.identity import COMPLETE, PrincipalTracker
from kafka_quotas.enforcement.session.in_flight import (
    ADDRESSES,
    API_VERSIONS,
    AUTHENTICATION,
    EMPTIED,
    PRODUCE,
    RAW_TOKEN,
    SHARE_FETCH,
    STREAM,
    TAIL,
    VERSIONS,
    InFlightRequest,
    bare_end,
)
from kafka_quotas.enforcement.session.state import QuotaAccounting, SessionState
from kafka_quotas.wire.codec.encoding import (
    FRAME_LENGTH_BYTES,
    MAX_GATHERED_BYTES,
    MAX_UNAUTHENTICATED_BYTES,
    checked_frame_length,
)
from kafka_quotas.wire.codec.skip import Buffer, finished
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import RESPONSE_HEAD_BYTES, parse_response_head
from kafka_quotas.wire.proxying.api_versions import (
    Serves,
    clamp,
    is_unsupported_version_answer,
    unsupported_version_answer,
)
from kafka_quotas.wire.proxying.broker_addresses import Translate, rewriting
from kafka_quotas.wire.proxying.fetch_request import NO_SESSION, final_fetch
from kafka_quotas.wire.proxying.fetch_response import (
    TailFinder,
    WithoutRecords,
    charged_bytes,
    empty_fetch_response,
    error_code,
    fetch_result,
    names_no_brokers,
    rewrite_tail,
    shortened,
)
from kafka_quotas.wire.proxying.throttle_time import (
    MAX_THROTTLE_MS,
    NEED_MORE,
    patching_throttle,
    read_throttle_ms,
    throttle_needs_whole,
    throttle_offset,
)

SLICED_BYTES: Final = 8 * 1024
"""Longest response that is changed at once: some hundred coordinators, or a millisecond."""
_STREAMED: Final = (STREAM, TAIL)


@dataclass(slots=True, kw_only=True, eq=False)
class ResponseHandler:
    """The responses of one connection, on their way to the client."""

    state: SessionState
    tracker: PrincipalTracker
    accounting: QuotaAccounting
    translate: Translate
    delays: bool
    """Whether responses wait for their throttle time, rather than requests (KIP-13)."""
    serves: Serves
    memory: GatherShare
    requests_memory: GatherShare
    """The share of the client's side: a response never waits for memory while a request holds some."""
    _unasked: bool = field(default=False, init=False)
    _postponed: Decision | None = field(default=None, init=False)
    _work: Generator[None, None, Buffer | None] | None = field(default=None, init=False)
    _is_responding: bool = field(default=False, init=False)

    def begin(self, chunk: memoryview, offset: int, now_ms: int) -> Decision | None:
        """Return how to pass on the response at an offset, None if it has to wait or more bytes are needed."""
        state = self.state
        # While a response is delayed the later ones wait too: their order is that of the requests.
        if state.holds_responses:
            return None
        # A response that waited for memory keeps its decision: it may be charged, or corrected, once only.
        decision = self._postponed or self._begin(chunk, offset, now_ms)
        if isinstance(decision, Frame) and decision.gather and decision.keep is None:
            may_wait = not self.requests_memory.holds_room
            if state.holds_room or not self.memory.take(decision.length, now_ms, may_wait=may_wait):
                self._postponed = decision
                state.responses_await_memory = True
                return None
            self._postponed = None
        return decision

    def _begin(self, chunk: memoryview, offset: int, now_ms: int) -> Decision | None:
        state = self.state
        # A broker answers the requests of a connection in their order: `SocketServer` mutes the channel meanwhile.
        request = state.in_flight[0] if state.in_flight else None
        if request is None or request.api_key == RAW_TOKEN:
            return self._begin_token(request, chunk, offset)
        head = parse_response_head(chunk, offset)
        if head is None:
            return None
        length, correlation_id = head
        if correlation_id != request.correlation_id:
            raise ProtocolError(
                f"the upstream answered correlation id {correlation_id} where {request.correlation_id} was due"
            )
        end = offset + FRAME_LENGTH_BYTES + length
        # Looking at all of a response that has come costs less than searching the end of one while it streams.
        if request.action is TAIL and len(chunk) >= end:
            names_none = names_no_brokers(request.api_key, chunk, offset, end)
            request.action = STREAM if names_none else ADDRESSES
        if request.client is None:
            return self._passing(request, length, gather=request.action not in _STREAMED)
        is_plain = request.api_key == PRODUCE and request.filter is None and not request.client.counts_requests
        if is_plain and not request.throttle_ms:
            bare = bare_end(request.api_version)
            if bare and chunk[end - len(bare) : end] == bare:
                return length + FRAME_LENGTH_BYTES
        return self._begin_charged(request, chunk, offset, length, now_ms)

    def end(self, gathered: bytearray | None, now_ms: int) -> Buffer | None:
        """End a response, and return what replaces it if it was gathered, with the daemon's own after it."""
        state = self.state
        if self._unasked:
            self._unasked = False
            return None
        request = state.in_flight[0]
        passed: Buffer | None = None
        if gathered is not None:
            state.holds_room = self.memory.holds_room
            work = self._changing(request, gathered, now_ms)
            if len(gathered) > SLICED_BYTES:
                self._work = work
                state.is_working = True
                return None
            passed = finished(work)
        return self._ended(request, passed, now_ms)

    def work(self, now_ms: int) -> bool:
        """Do the next slice of the work on a long response, and return whether some is left."""
        assert self._work is not None
        state = self.state
        try:
            next(self._work)
        except StopIteration as end:
            passed: Buffer | None = end.value
        except ProtocolError as error:
            error.sender = error.sender or state.responses.sender
            raise
        else:
            return True
        self._work = None
        state.is_working = False
        after = self._ended(state.in_flight[0], passed, now_ms)
        if after is not None:
            state.to_client.append(after)
        state.pass_responses(now_ms)
        return False

    def _ended(self, request: InFlightRequest, passed: Buffer | None, now_ms: int) -> Buffer | None:
        """Let the next response begin, and return what replaces a gathered one, with our own after it."""
        state, in_flight = self.state, self.state.in_flight
        if request.on_response_to_own is None and self.tracker.state is not COMPLETE:
            self.tracker.take_other_response(request)
        # A request that begins now may get a response of the daemon at once, which must follow this one: so this
        # request stays in `in_flight` until then.
        if request is state.awaited:
            self.accounting.settle(request, now_ms)
        state.allow_more_requests(now_ms)
        in_flight.popleft()
        if not in_flight or in_flight[0].local_response is None:
            return passed
        return b"".join(([] if passed is None else [passed]) + self.local_responses(now_ms))

    def local_responses(self, now_ms: int) -> list[Buffer]:
        """Return the daemon's own responses that are due: those of the earliest requests in flight."""
        in_flight, due = self.state.in_flight, list[Buffer]()
        if self._is_responding:
            return due  # a request that begins within the loop below: the loop reaches its response in order
        self._is_responding = True
        while in_flight and (response := in_flight[0].local_response) is not None:
            request = in_flight[0]
            due.append(finished(self._changing(request, bytearray(response), now_ms)) or b"")
            if request is self.state.awaited:
                self.accounting.settle(request, now_ms)
            self.state.allow_more_requests(now_ms)
            in_flight.popleft()
        self._is_responding = False
        return due

    def _begin_charged(
        self, request: InFlightRequest, chunk: memoryview, offset: int, length: int, now_ms: int
    ) -> Decision | None:
        """Return how to pass on a response that is charged or may carry a throttle time, None as in `begin`."""
        # `begin` may see one head several times, while bytes are missing or the response is delayed.
        if not request.charged and not self._charge(request, chunk, offset, length, now_ms):
            return None
        # KIP-13, before KIP-219: the response itself is held back. A filter sets its throttle time only at the end.
        if self.delays and request.throttle_ms and not request.delayed and request.filter is None:
            request.delayed = True
            self.accounting.count(request, now_ms)
            self.state.delay(request, now_ms)
            return None
        # A broker keeps the data of a throttled fetch. An error passes unchanged: it has no data.
        if request.session_id is not None and request.throttle_ms and request.filter is None:
            error = error_code(*request.api, chunk, offset)
            if error is None:
                return None
            if not error:
                return self._emptied(request, chunk, offset, length, now_ms)
        gather = request.action not in _STREAMED or request.filter is not None
        patch = None
        limiter = request.accountable
        if not gather and (request.throttle_ms > 0 or (limiter is not None and limiter.bound is not None)):
            is_whole = len(chunk) >= offset + FRAME_LENGTH_BYTES + length
            # In some versions the field's place depends on what comes before it, so only a whole response shows it.
            if is_whole or not throttle_needs_whole(*request.api):
                found = throttle_offset(*request.api, chunk, offset)
                if found == NEED_MORE:
                    return None
                if found is not None:
                    upstream_ms, ours_ms = read_throttle_ms(chunk, found), request.reported_throttle_ms
                    self.accounting.heed_upstream(request, upstream_ms)
                    if ours_ms > upstream_ms:
                        patch = Patch(found, min(ours_ms, MAX_THROTTLE_MS).to_bytes(4, "big"))
                request.patched = True
            else:
                gather = True
        # KIP-219: a client is muted when its response goes out. That of a fetch starts to do so now.
        if request.api_key in RESPONSE_BYTES and request.filter is None:
            self.accounting.settle(request, now_ms)
        return self._passing(request, length, gather=gather, patch=patch)

    @staticmethod
    def _passing(request: InFlightRequest, length: int, *, gather: bool, patch: Patch | None = None) -> Decision:
        frame_bytes = length + FRAME_LENGTH_BYTES
        # Addresses that newer fetch responses name come after the records (KIP-951): only their end is gathered.
        if request.action is TAIL and not gather:
            return Frame(frame_bytes, patch=patch, find_tail=TailFinder(request.api_key, length).find)
        if not gather and patch is None:
            return frame_bytes
        if gather and length > MAX_GATHERED_BYTES:
            raise ProtocolError(f"a response announces {length} bytes and would have to be changed as a whole")
        return Frame(frame_bytes, gather, patch)

    def _charge(self, request: InFlightRequest, chunk: memoryview, offset: int, length: int, now_ms: int) -> bool:
        client, accounting, fetched_bytes = request.client, self.accounting, None
        assert client is not None
        if request.api_key in RESPONSE_BYTES and request.limiter is not None:
            fetched_bytes = charged_bytes(*request.api, chunk, offset, length)
            if fetched_bytes is None:
                return False
        request.charged = True
        if client.counts_requests:
            accounting.charge_response(request, client, length, now_ms)
        if fetched_bytes is not None:
            accounting.charge_fetch(request, client, fetched_bytes, now_ms)
        return True

    def _emptied(
        self, request: InFlightRequest, chunk: memoryview, offset: int, length: int, now_ms: int
    ) -> Decision | None:
        """Give a fetch's bytes back and send an empty response instead, or return None if bytes are missing."""
        assert request.client is not None
        throttle_at = throttle_offset(*request.api, chunk, offset)
        if throttle_at == NEED_MORE:
            return None
        # `recordAndGetThrottleTimeMs` is taken back by `unrecordQuotaSensor` in `handleFetchRequest`: what is not
        # delivered counts for nothing.
        amount = charged_bytes(*request.api, chunk, offset, length)
        self.accounting.unrecord_fetch(request, request.client, amount or 0, now_ms)
        # The results of acknowledgements stay in a ShareFetch response, as when a broker throttles.
        if request.api_key == SHARE_FETCH:
            request.action = EMPTIED
            return Frame(length + FRAME_LENGTH_BYTES, gather=True, keep=WithoutRecords().keep)
        session_id, result = request.session_id, fetch_result(request.api_version, chunk, offset)
        assert session_id is not None
        if result is not None and result[1] not in (NO_SESSION, session_id):
            # The broker made a fetch session of which the client does not learn: it would never use it, and the
            # broker's cache holds 1,000. A broker that throttles makes none (`FullFetchContext.getThrottledResponse`).
            # The fetch is awaited, so the stream to the broker is between two requests.
            assert self.state.awaited is request
            self.state.in_flight.append(InFlightRequest.own(request.correlation_id, lambda _frame, _now_ms: None))
            self.state.to_upstream.append(
                final_fetch(
                    request.api_version,
                    session_id=result[1],
                    correlation_id=request.correlation_id,
                    client_id=request.client.client_id,
                )
            )
        # The broker may have throttled the fetch itself, for longer: the client waits for the longer of the two.
        upstream_ms = 0 if throttle_at is None else read_throttle_ms(chunk, throttle_at)
        self.accounting.heed_upstream(request, upstream_ms)
        empty = empty_fetch_response(
            request.api_version,
            request.correlation_id,
            session_id=session_id,
            throttle_ms=min(max(request.reported_throttle_ms, upstream_ms), MAX_THROTTLE_MS),
        )
        self.accounting.settle(request, now_ms)
        return Frame(length + FRAME_LENGTH_BYTES, replacement=empty)

    def _begin_token(self, request: InFlightRequest | None, chunk: memoryview, offset: int) -> Frame | None:
        # Only an opaque mechanism's tokens come in unknown numbers, without pairing (`SaslServerAuthenticator` answers
        # as often as the mechanism wants).
        if request is None and (not self.tracker.expects_tokens or self.tracker.reads_tokens):
            raise ProtocolError("the upstream sent a response that nobody asked for")
        length = checked_frame_length(chunk, offset, limit=MAX_UNAUTHENTICATED_BYTES)
        if length is None:
            return None
        self._unasked = request is None
        return Frame(length + FRAME_LENGTH_BYTES, gather=request is not None)

    def _changing(
        self, request: InFlightRequest, frame: bytearray, now_ms: int
    ) -> Generator[None, None, Buffer | None]:
        """Return the response as the client gets it, None for one of the daemon's own."""
        if request.on_response_to_own is not None:
            work = request.on_response_to_own(frame, now_ms)
            if work is not None:
                yield from work
            return None
        if request.action is TAIL and request.filter is None:
            return rewrite_tail(*request.api, frame, self.translate)
        if request.action is EMPTIED:
            frame = shortened(frame)
        elif request.action is AUTHENTICATION:
            self.tracker.read_response(request, frame)
        elif request.action is VERSIONS:
            frame = self._clamped_versions(request, frame)
        # A filter that responded itself has made the response as it should be.
        if request.filter is not None and request.local_response is None:
            changed = request.filter.on_response(frame, request, now_ms)
            frame = bytearray((yield from changed) if isinstance(changed, Generator) else changed)
            self.accounting.apply_policy(request, now_ms)
        if request.client is not None and not request.patched:
            upstream_ms = yield from patching_throttle(frame, *request.api, request.reported_throttle_ms)
            self.accounting.heed_upstream(request, max(upstream_ms or 0, 0))
        # Last, because rewriting may change the frame's length and so every offset in it.
        if request.action in (ADDRESSES, TAIL, EMPTIED):
            return (yield from rewriting(*request.api, frame, self.translate))
        return frame

    def _clamped_versions(self, request: InFlightRequest, frame: bytearray) -> bytearray:
        # KIP-511: a client that asks in a version above ours gets UNSUPPORTED_VERSION, and asks again in a lower one.
        if request.api_version > API_TABLE[API_VERSIONS].max_version:
            return bytearray(unsupported_version_answer(request.correlation_id))
        # The broker's own answer of that kind has the form of version 0, and passes unchanged.
        if is_unsupported_version_answer(frame, RESPONSE_HEAD_BYTES, len(frame)):
            return frame
        return bytearray(clamp(frame, request.api_version, serves=self.serves))
