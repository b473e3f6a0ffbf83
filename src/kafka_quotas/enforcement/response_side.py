"""The broker's side of a connection: responses as they begin and end, each for the request that waits for it longest.

A response streams unless something in it has to be changed that its first bytes don't show. Bytes of a fetch are
charged when its head has been seen, so that its throttle time is written into that head.
"""

from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quota_charges import RESPONSE_BYTES
from kafka_quotas.enforcement.charging import Charging
from kafka_quotas.enforcement.exchange import (
    ADDRESSES,
    EMPTIED,
    IDENTITY,
    PRODUCE,
    RAW_TOKEN,
    STREAM,
    TAIL,
    VERSIONS,
    Exchange,
)
from kafka_quotas.enforcement.fetch_form import FETCH_FORMS
from kafka_quotas.enforcement.flow import Flow
from kafka_quotas.enforcement.frame_stream import Decision, Frame, Patch
from kafka_quotas.enforcement.identity import COMPLETE, Identity
from kafka_quotas.enforcement.response_form import (
    bare_produce_response,
    clamped_versions,
    look_at_tail,
    passing,
    told_throttle_ms,
)
from kafka_quotas.wire.addresses import Translate, rewrite_addresses
from kafka_quotas.wire.api_versions import Serves
from kafka_quotas.wire.fetch_request import NO_SESSION, final_fetch
from kafka_quotas.wire.fetch_response import empty_fetch_response, fetch_result
from kafka_quotas.wire.frame import FRAME_LENGTH_BYTES, MAX_UNAUTHENTICATED_BYTES, checked_frame_length
from kafka_quotas.wire.response_header import parse_response_head
from kafka_quotas.wire.share_fetch_request import SHARE_FETCH
from kafka_quotas.wire.share_fetch_response import WithoutRecords, shortened
from kafka_quotas.wire.throttle_field import (
    MAX_THROTTLE_MS,
    NEED_MORE,
    patch_throttle,
    read_throttle_ms,
    throttle_needs_whole,
    throttle_offset,
)
from kafka_quotas.wire.walk import Buffer

_STREAMED: Final = (STREAM, TAIL)
"""Treatments that pass a response on as it comes, but for its end."""


def _nothing_told(frame: bytearray, now_ms: int) -> None:
    """Drop the response to a request of our own from which nothing is to be learnt."""
    del frame, now_ms


class ResponseSide:
    """Passes on the responses of one connection."""

    __slots__ = ("_charging", "_delays", "_flow", "_identity", "_is_answering", "_serves", "_translate", "_unasked")

    def __init__(
        self,
        flow: Flow,
        *,
        identity: Identity,
        charging: Charging,
        translate: Translate,
        delays: bool,
        serves: Serves,
    ) -> None:
        self._flow = flow
        self._identity = identity
        self._charging = charging
        self._translate = translate
        self._delays = delays
        self._serves = serves
        self._unasked = False
        self._is_answering = False

    def begin(self, chunk: memoryview, offset: int, now_ms: int) -> Decision | None:
        """Return how to pass on the response at an offset; None if it has to wait or more bytes are needed."""
        flow = self._flow
        if flow.is_delaying:
            return None
        exchange = flow.in_flight[0] if flow.in_flight else None
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
            look_at_tail(exchange, chunk, offset, length)
        if exchange.client is None:
            return passing(exchange, length, gather=exchange.treatment not in _STREAMED)
        if not exchange.throttle_ms and exchange.api_key == PRODUCE and not exchange.client.counts_requests:
            end = offset + FRAME_LENGTH_BYTES + length
            if exchange.whole is None and bare_produce_response(exchange, chunk, end):
                return length + FRAME_LENGTH_BYTES
        return self._begin_charged(exchange, chunk, offset, length, now_ms)

    def end(self, gathered: bytearray | None, now_ms: int) -> Buffer | None:
        """Return what goes to the client in place of a gathered response, and after any: answers that waited for it."""
        flow = self._flow
        if self._unasked:
            self._unasked = False
            return None
        in_flight = flow.in_flight
        exchange = in_flight[0]
        passed = None
        if exchange.on_told is not None:
            assert gathered is not None
            exchange.on_told(gathered, now_ms)
        else:
            if gathered is not None:
                passed = self._changed(exchange, gathered, now_ms)
            if self._identity.state is not COMPLETE:
                self._identity.passed(exchange)
        # What goes on now may be answered here at once: such an answer waits until this response has gone out.
        if exchange is flow.awaited:
            self._charging.settle(exchange, now_ms)
        flow.thin_out(now_ms)
        in_flight.popleft()
        if not in_flight or in_flight[0].answer is None:
            return passed
        return b"".join(([] if passed is None else [passed]) + self.answers(now_ms))

    def answers(self, now_ms: int) -> list[Buffer]:
        """Return the answers made here that are due now: those of the requests that wait longest."""
        in_flight, due = self._flow.in_flight, list[Buffer]()
        if self._is_answering:
            return due  # called by what goes on below: the loop there comes to it, in its turn
        self._is_answering = True
        while in_flight and (answer := in_flight[0].answer) is not None:
            exchange = in_flight[0]
            due.append(self._changed(exchange, bytearray(answer), now_ms))
            if exchange is self._flow.awaited:
                self._charging.settle(exchange, now_ms)
            self._flow.thin_out(now_ms)
            in_flight.popleft()
        self._is_answering = False
        return due

    def _begin_charged(
        self, exchange: Exchange, chunk: memoryview, offset: int, length: int, now_ms: int
    ) -> Decision | None:
        """How to pass on a response that counts or may name a throttle time; None as in `begin`."""
        if not exchange.charged and not self._charge(exchange, chunk, offset, length, now_ms):
            return None
        if self._delays and exchange.throttle_ms and not exchange.delayed and exchange.whole is None:
            self._delay(exchange, now_ms)
            return None
        if exchange.session_id is not None and exchange.throttle_ms and exchange.whole is None:
            error_code = FETCH_FORMS[exchange.api_key].error_code(exchange.api_version, chunk, offset)
            if error_code is None:
                return None
            if error_code == 0:
                return self._emptied(exchange, chunk, offset, length, now_ms)
        gather = exchange.treatment not in _STREAMED or exchange.whole is not None
        patch = None
        if not gather and (exchange.throttle_ms > 0 or exchange.limited):
            is_whole = len(chunk) >= offset + FRAME_LENGTH_BYTES + length
            if is_whole or not throttle_needs_whole(*exchange.place):
                found = throttle_offset(*exchange.place, chunk, offset)
                if found == NEED_MORE:
                    return None
                patch = None if found is None else self._patch(exchange, chunk, found)
                exchange.patched = True
            else:
                gather = True
        if exchange.api_key in RESPONSE_BYTES and exchange.whole is None:
            self._charging.settle(exchange, now_ms)
        return passing(exchange, length, gather=gather, patch=patch)

    def _charge(self, exchange: Exchange, chunk: memoryview, offset: int, length: int, now_ms: int) -> bool:
        """Charge the response with what it is by its head; return False to wait for more bytes."""
        client, charging, fetched_bytes = exchange.client, self._charging, None
        assert client is not None
        if exchange.api_key in RESPONSE_BYTES and exchange.limiter is not None:
            fetched_bytes = FETCH_FORMS[exchange.api_key].charged_bytes(exchange.api_version, chunk, offset, length)
            if fetched_bytes is None:
                return False
        exchange.charged = True
        if client.counts_requests:
            charging.charge_response(exchange, client, length, now_ms)
        if fetched_bytes:
            charging.charge_fetch(exchange, client, fetched_bytes, now_ms)
        return True

    def _delay(self, exchange: Exchange, now_ms: int) -> None:
        exchange.delayed = True
        self._charging.count(exchange, now_ms)
        self._flow.delay(exchange, now_ms)

    def _end_session(self, exchange: Exchange, session_id: int) -> None:
        """Have the broker drop the session that it made for a full fetch whose answer is emptied.

        The client is told of none and would never use it, and the broker's cache has room for 1,000. A broker that
        throttles makes none (`FullFetchContext.getThrottledResponse`). The fetch is awaited, so that the broker's
        stream is between two requests.
        """
        if session_id in (NO_SESSION, exchange.session_id):
            return
        assert exchange.client is not None
        assert self._flow.awaited is exchange
        self._flow.in_flight.append(Exchange.own(exchange.correlation_id, _nothing_told))
        self._flow.to_upstream.append(
            final_fetch(
                exchange.api_version,
                session_id=session_id,
                correlation_id=exchange.correlation_id,
                client_id=exchange.client.client_id,
            )
        )

    def _emptied(self, exchange: Exchange, chunk: memoryview, offset: int, length: int, now_ms: int) -> Decision:
        """Return the decision that drops a fetch's data: it counts for nothing, and the client gets an empty answer."""
        assert exchange.client is not None
        amount = FETCH_FORMS[exchange.api_key].charged_bytes(exchange.api_version, chunk, offset, length)
        self._charging.unrecord_fetch(exchange, exchange.client, amount or 0, now_ms)
        if exchange.api_key == SHARE_FETCH:
            exchange.treatment = EMPTIED
            return Frame(length + FRAME_LENGTH_BYTES, gather=True, keep=WithoutRecords(length).keep)
        session_id, result = exchange.session_id, fetch_result(exchange.api_version, chunk, offset)
        assert session_id is not None
        if result is not None:
            self._end_session(exchange, result[1])
        told_ms = min(told_throttle_ms(exchange), MAX_THROTTLE_MS)
        answer = empty_fetch_response(
            exchange.api_version, exchange.correlation_id, session_id=session_id, throttle_ms=told_ms
        )
        self._charging.settle(exchange, now_ms)
        return Frame(length + FRAME_LENGTH_BYTES, replacement=answer)

    def _patch(self, exchange: Exchange, chunk: memoryview, offset: int) -> Patch | None:
        """The throttle time for the field at an offset, where ours is the larger one."""
        upstream_ms, told_ms = read_throttle_ms(chunk, offset), told_throttle_ms(exchange)
        self._charging.heed_upstream(exchange, upstream_ms)
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

    def _changed(self, exchange: Exchange, frame: bytearray, now_ms: int) -> Buffer:
        """The gathered response with our addresses, versions and throttle time in it."""
        if exchange.treatment is TAIL and exchange.whole is None:
            return FETCH_FORMS[exchange.api_key].rewrite_tail(exchange.api_version, frame, self._translate)
        if exchange.treatment is EMPTIED:
            frame = shortened(frame)
        elif exchange.treatment is IDENTITY:
            self._identity.answered(exchange, frame)
        elif exchange.treatment is VERSIONS:
            frame = bytearray(clamped_versions(exchange, frame, serves=self._serves))
        if exchange.whole is not None and exchange.answer is None:
            frame = bytearray(exchange.whole.on_response(frame, exchange, now_ms))
            self._charging.judge(exchange, now_ms)
        if exchange.client is not None and not exchange.patched:
            upstream_ms = patch_throttle(frame, *exchange.place, told_throttle_ms(exchange))
            self._charging.heed_upstream(exchange, max(upstream_ms or 0, 0))
        if exchange.treatment in (ADDRESSES, TAIL, EMPTIED):
            return rewrite_addresses(*exchange.place, frame, self._translate)
        return frame
