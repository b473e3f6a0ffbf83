"""The broker's side of a connection: responses as they begin and end, each for the earliest request in flight.

A response streams unless it needs a change that its first bytes don't show; then it is gathered, whole or only its end.
The bytes of a fetch are charged when its head has come, because its throttle time is in that head.
"""

from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.quotas.quota_charges import RESPONSE_BYTES
from kafka_quotas.enforcement.session.fetch_form import FETCH_FORMS
from kafka_quotas.enforcement.session.flow import SessionState
from kafka_quotas.enforcement.session.frame_stream import Decision, Frame, Patch
from kafka_quotas.enforcement.session.in_flight import (
    ADDRESSES,
    API_VERSIONS,
    EMPTIED,
    FETCH,
    IDENTITY,
    PRODUCE,
    RAW_TOKEN,
    SHARE_FETCH,
    STREAM,
    TAIL,
    VERSIONS,
    InFlightRequest,
)
from kafka_quotas.enforcement.session.principal import COMPLETE, PrincipalTracker
from kafka_quotas.enforcement.session.quota_accounting import QuotaAccounting
from kafka_quotas.wire.codec.frame import (
    FRAME_LENGTH_BYTES,
    MAX_GATHERED_BYTES,
    MAX_UNAUTHENTICATED_BYTES,
    checked_frame_length,
)
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.api_versions import (
    Serves,
    clamp,
    is_unsupported_version_answer,
    unsupported_version_answer,
)
from kafka_quotas.wire.passing.broker_addresses import Translate, rewrite_addresses
from kafka_quotas.wire.passing.fetch_request import NO_SESSION, final_fetch
from kafka_quotas.wire.passing.fetch_response import empty_fetch_response, fetch_result
from kafka_quotas.wire.passing.share_fetch_response import WithoutRecords, shortened
from kafka_quotas.wire.passing.throttle_time import (
    MAX_THROTTLE_MS,
    NEED_MORE,
    patch_throttle,
    read_throttle_ms,
    throttle_needs_whole,
    throttle_offset,
)
from kafka_quotas.wire.protocol.api import NEVER
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.response_header import RESPONSE_HEAD_BYTES, parse_response_head

CLIENT_WAITS_SINCE: Final = {
    PRODUCE: 6,
    FETCH: 8,
    ApiKey.LIST_OFFSETS.value: 3,
    ApiKey.METADATA.value: 6,
    ApiKey.OFFSET_COMMIT.value: 4,
    ApiKey.OFFSET_FETCH.value: 4,
    ApiKey.FIND_COORDINATOR.value: 2,
    ApiKey.JOIN_GROUP.value: 3,
    ApiKey.HEARTBEAT.value: 2,
    ApiKey.LEAVE_GROUP.value: 2,
    ApiKey.SYNC_GROUP.value: 2,
    ApiKey.DESCRIBE_GROUPS.value: 2,
    ApiKey.LIST_GROUPS.value: 2,
    API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS.value: 3,
    ApiKey.DELETE_TOPICS.value: 2,
    ApiKey.DESCRIBE_CONFIGS.value: 2,
    SHARE_FETCH: NEVER,
}
"""API key -> first version in which a client itself waits for the throttle time; an API that is missing here does so in
each version with the field.

**Source:** KIP-219; `AbstractResponse.shouldClientThrottle` of each API (4.1).
"""

PRODUCE_FLEXIBLE_SINCE: Final = 9
_FOUR_ZEROS: Final = bytes(4)
_FIVE_ZEROS: Final = bytes(5)


def told_throttle_ms(exchange: InFlightRequest) -> int:
    """Return the throttle time to write into a response, 0 where the client has waited for it already."""
    waits_itself = exchange.delayed and exchange.api_version >= CLIENT_WAITS_SINCE.get(exchange.api_key, 0)
    return 0 if waits_itself else exchange.throttle_ms


def clamped_versions(exchange: InFlightRequest, frame: bytearray, *, serves: Serves) -> Buffer:
    """Return the ApiVersions response with our maximum versions.

    A client that asks in a version above ours gets an UNSUPPORTED_VERSION response. So does one that asks in a version
    above the broker's, from the broker, and that passes unchanged; the client asks again in a lower version.
    """
    if exchange.api_version > API_TABLE[API_VERSIONS].max_version:
        return unsupported_version_answer(exchange.correlation_id)
    if is_unsupported_version_answer(frame, RESPONSE_HEAD_BYTES, len(frame)):
        return frame
    return clamp(frame, exchange.api_version, serves=serves)


def bare_produce_response(exchange: InFlightRequest, chunk: memoryview, end: int) -> bool:
    """Return whether a complete Produce response certainly has a throttle time of 0 and no addresses."""
    bare = bare_end(exchange.api_version)
    return bool(bare) and chunk[end - len(bare) : end] == bare


def bare_end(api_version: int) -> bytes:
    """Return the bytes at the end of a Produce response without a throttle time and addresses.

    The throttle time is the last field; from the first flexible version on an empty tag section follows. A section with
    addresses would end with a broker's port, its rack and its tags, which can't be five zeros.

    Returns:
        b"" for a version without a throttle time.
    """
    if api_version >= PRODUCE_FLEXIBLE_SINCE:
        return _FIVE_ZEROS
    return _FOUR_ZEROS if api_version > 0 else b""


def look_at_tail(exchange: InFlightRequest, chunk: memoryview, offset: int, length: int) -> None:
    """Narrow the treatment of a response with records if the chunk holds all of it."""
    end = offset + FRAME_LENGTH_BYTES + length
    if len(chunk) >= end:
        has_none = FETCH_FORMS[exchange.api_key].names_no_brokers(chunk, offset, end)
        exchange.treatment = STREAM if has_none else ADDRESSES


def passing(exchange: InFlightRequest, length: int, *, gather: bool, patch: Patch | None = None) -> Decision:
    """Return how to pass on a response.

    Raises:
        ProtocolError: The response has to be gathered and is too long for that.
    """
    if exchange.treatment is TAIL and not gather:
        return Frame(
            length + FRAME_LENGTH_BYTES, patch=patch, find_tail=FETCH_FORMS[exchange.api_key].find_tail(length)
        )
    if not gather and patch is None:
        return length + FRAME_LENGTH_BYTES
    if gather and length > MAX_GATHERED_BYTES:
        raise ProtocolError(f"a response announces {length} bytes and would have to be changed as a whole")
    return Frame(length + FRAME_LENGTH_BYTES, gather, patch)


_STREAMED: Final = (STREAM, TAIL)
"""Treatments that stream a response, except for its end."""


def _nothing_told(frame: bytearray, now_ms: int) -> None:
    """Drop the response to a request of our own."""
    del frame, now_ms


class ResponseHandler:
    """The responses of one connection, on their way to the client."""

    __slots__ = ("_charging", "_delays", "_flow", "_identity", "_is_answering", "_serves", "_translate", "_unasked")

    def __init__(
        self,
        flow: SessionState,
        *,
        identity: PrincipalTracker,
        charging: QuotaAccounting,
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
        """Return how to pass on the response at an offset.

        Returns:
            None if it has to wait, or if more bytes are needed.

        Raises:
            ProtocolError: The response answers no request, or can't be passed on.
        """
        flow = self._flow
        # While a response is delayed the later ones wait too: their order is that of the requests.
        if flow.is_delaying:
            return None
        # A broker answers the requests of a connection in their order.
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
        """End a response, and return what replaces it if it was gathered.

        The daemon's own responses that waited for this one come after it.
        """
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
        # A request that begins now may get a response of the daemon at once, which must follow this one: so this
        # request stays in `in_flight` until then.
        if exchange is flow.awaited:
            self._charging.settle(exchange, now_ms)
        flow.thin_out(now_ms)
        in_flight.popleft()
        if not in_flight or in_flight[0].answer is None:
            return passed
        return b"".join(([] if passed is None else [passed]) + self.answers(now_ms))

    def answers(self, now_ms: int) -> list[Buffer]:
        """Return the daemon's own responses that are due: those of the earliest requests in flight."""
        in_flight, due = self._flow.in_flight, list[Buffer]()
        if self._is_answering:
            return due  # a request that begins within the loop below: the loop reaches its response in order
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
        self, exchange: InFlightRequest, chunk: memoryview, offset: int, length: int, now_ms: int
    ) -> Decision | None:
        """Return how to pass on a response that is charged or may carry a throttle time, None as in `begin`."""
        # `begin` may see one head several times, while bytes are missing or the response is delayed.
        if not exchange.charged and not self._charge(exchange, chunk, offset, length, now_ms):
            return None
        if self._delays and exchange.throttle_ms and not exchange.delayed and exchange.whole is None:
            self._delay(exchange, now_ms)
            return None
        # A broker keeps the data of a throttled fetch. An error passes unchanged: it has no data.
        if exchange.session_id is not None and exchange.throttle_ms and exchange.whole is None:
            error_code = FETCH_FORMS[exchange.api_key].error_code(exchange.api_version, chunk, offset)
            if not error_code:  # None: more bytes are needed
                return None if error_code is None else self._emptied(exchange, chunk, offset, length, now_ms)
        gather = exchange.treatment not in _STREAMED or exchange.whole is not None
        patch = None
        if not gather and (exchange.throttle_ms > 0 or exchange.limited):
            is_whole = len(chunk) >= offset + FRAME_LENGTH_BYTES + length
            # In some versions the field's place depends on what comes before it, so only a whole response shows it.
            if is_whole or not throttle_needs_whole(*exchange.place):
                found = throttle_offset(*exchange.place, chunk, offset)
                if found == NEED_MORE:
                    return None
                patch = None if found is None else self._patch(exchange, chunk, found)
                exchange.patched = True
            else:
                gather = True
        # KIP-219: a client is muted when its response goes out. That of a fetch starts to do so now.
        if exchange.api_key in RESPONSE_BYTES and exchange.whole is None:
            self._charging.settle(exchange, now_ms)
        return passing(exchange, length, gather=gather, patch=patch)

    def _charge(self, exchange: InFlightRequest, chunk: memoryview, offset: int, length: int, now_ms: int) -> bool:
        """Charge a response from its head, and return whether its bytes were enough."""
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

    def _delay(self, exchange: InFlightRequest, now_ms: int) -> None:
        exchange.delayed = True
        self._charging.count(exchange, now_ms)
        self._flow.delay(exchange, now_ms)

    def _end_session(self, exchange: InFlightRequest, session_id: int) -> None:
        """Make the broker close the fetch session that it made for a full fetch whose response is emptied.

        The client does not learn of the session and would never use it, and the broker's cache holds 1,000. A broker
        that throttles makes none (`FullFetchContext.getThrottledResponse`). The fetch is awaited, so the stream to the
        broker is between two requests.
        """
        if session_id in (NO_SESSION, exchange.session_id):
            return
        assert exchange.client is not None
        assert self._flow.awaited is exchange
        self._flow.in_flight.append(InFlightRequest.own(exchange.correlation_id, _nothing_told))
        self._flow.to_upstream.append(
            final_fetch(
                exchange.api_version,
                session_id=session_id,
                correlation_id=exchange.correlation_id,
                client_id=exchange.client.client_id,
            )
        )

    def _emptied(self, exchange: InFlightRequest, chunk: memoryview, offset: int, length: int, now_ms: int) -> Decision:
        """Give back the bytes of a fetch, and return the decision to send an empty response in its place."""
        assert exchange.client is not None
        amount = FETCH_FORMS[exchange.api_key].charged_bytes(exchange.api_version, chunk, offset, length)
        self._charging.unrecord_fetch(exchange, exchange.client, amount or 0, now_ms)
        # The results of acknowledgements stay in a ShareFetch response, as when a broker throttles.
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

    def _patch(self, exchange: InFlightRequest, chunk: memoryview, offset: int) -> Patch | None:
        """Return our throttle time for the field at an offset, None if the broker's is at least as long."""
        upstream_ms, told_ms = read_throttle_ms(chunk, offset), told_throttle_ms(exchange)
        self._charging.heed_upstream(exchange, upstream_ms)
        return Patch(offset, min(told_ms, MAX_THROTTLE_MS).to_bytes(4, "big")) if told_ms > upstream_ms else None

    def _begin_token(self, exchange: InFlightRequest | None, chunk: memoryview, offset: int) -> Frame | None:
        """Return how to pass on a bare token, None if more bytes are needed.

        Raises:
            ProtocolError: No request waits for a response, and the mechanism is not opaque.
        """
        if exchange is None and (not self._identity.expects_tokens or self._identity.reads_tokens):
            raise ProtocolError("the upstream sent a response that nobody asked for")
        length = checked_frame_length(chunk, offset, limit=MAX_UNAUTHENTICATED_BYTES)
        if length is None:
            return None
        self._unasked = exchange is None
        return Frame(length + FRAME_LENGTH_BYTES, gather=exchange is not None)

    def _changed(self, exchange: InFlightRequest, frame: bytearray, now_ms: int) -> Buffer:
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
