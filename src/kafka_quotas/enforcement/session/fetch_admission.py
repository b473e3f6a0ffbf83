"""The admission of a Fetch or ShareFetch of a client with a byte rate: when it begins, and how much it asks for.

It begins when its bucket has room for it; until then the session keeps it. A Fetch waits as long as its client lets the
broker wait for data (`max_wait_ms`) and gets an empty response then, as from a broker without data, with the time after
which to come again. A ShareFetch carries acknowledgements, which the broker has to get: it waits a little longer, and
is passed on then in any case.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.session.frame_stream import Frame, Patch
from kafka_quotas.enforcement.session.in_flight import SHARE_FETCH, InFlightRequest
from kafka_quotas.enforcement.session.produce_filters import EmptyFetchFilter
from kafka_quotas.enforcement.session.quota_accounting import QuotaAccounting
from kafka_quotas.enforcement.session.session_state import SessionState, ThrottledChannel
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES
from kafka_quotas.wire.passing.fetch_request import (
    cap_fetch,
    cap_share_fetch,
    fetch_limits,
    fetch_wait_ms,
    share_fetch_limits,
    share_limits_end,
)
from kafka_quotas.wire.protocol.header import RequestHeader

_FETCH_LIMITS_END: Final = 16
"""Bytes from the end of a Fetch header to the end of its limits: replica id, wait time, minimum and maximum size."""
_HELD_SHARE_MS: Final = 5_000
"""Time for which a ShareFetch waits at least: without its records it would use up a delivery of each of them."""
_MAX_INT32: Final = 2**31 - 1


class _Limits(NamedTuple):
    max_bytes: int
    wait_ms: int


@dataclass(slots=True, kw_only=True, eq=False)
class FetchAdmission:
    """The admission of one connection's fetches."""

    state: SessionState
    accounting: QuotaAccounting

    def admit(self, request: InFlightRequest, chunk: memoryview, header: RequestHeader, now_ms: int) -> bool:
        """Lower the limits of a fetch to what it may return, and return whether it may begin.

        Returns:
            False if it has to wait, or if more bytes are needed.
        """
        client, limiter = request.client, request.limiter
        if client is None or limiter is None or client.is_shadow:
            return True
        is_share, window_bytes = header.api_key == SHARE_FETCH, limiter.max_value_in_window
        # A broker does not lower the limits of a ShareFetch; it returns no records while it throttles.
        if window_bytes is None or (is_share and not client.holds_fetches):
            return True
        end = share_limits_end(chunk, header) if is_share else min(header.end + _FETCH_LIMITS_END, header.frame_end)
        if end is None:
            return False
        head = bytearray(chunk[header.start : end])
        relative = header._replace(start=0, end=header.end - header.start)
        limits = _limits(head, relative)
        if limits is None:
            return False
        # A fetch that is larger than a window's worth would be throttled for longer than a window, so a broker lowers
        # the limits too (`handleFetchRequest`: `fetchMaxBytes`). A window of one sample makes that 0, at which a broker
        # returns one batch and others return nothing: librdkafka's embedded cluster, for one.
        size, waited_ms = max(1, min(int(window_bytes), _MAX_INT32)), 0
        if client.holds_fetches:
            turn = self.state.turn
            waited_ms = now_ms - turn.since_ms if turn.is_waiting else 0
            entered = self._enter(request, header, limits, now_ms)
            if entered is None:
                return request.filter is not None
            size = max(1, min(entered, _MAX_INT32))
        if is_share:
            cap_share_fetch(head, relative, size, waited_ms=waited_ms)
        else:
            cap_fetch(head, relative, size, waited_ms=waited_ms)
        request.decision = Frame(header.frame_length + FRAME_LENGTH_BYTES, patch=Patch(header.start, bytes(head)))
        return True

    def _enter(self, request: InFlightRequest, header: RequestHeader, limits: _Limits, now_ms: int) -> int | None:
        """Return the size that a fetch may have, None if it waits or is answered without data."""
        limiter, turn = request.limiter, self.state.turn
        assert limiter is not None
        queue = limiter.fetch_queue(limiter.bound or 0.0, now_ms)
        waited_ms = now_ms - turn.since_ms if turn.is_waiting else 0
        size = queue.enter(turn, limits.max_bytes, now_ms)
        if size is None:
            is_share = request.api_key == SHARE_FETCH
            until_ms = turn.since_ms + max(limits.wait_ms, _HELD_SHARE_MS if is_share else 0)
            if now_ms < until_ms:
                opens_ms = queue.opens_ms(turn, now_ms)
                until_ms = until_ms if opens_ms is None else min(until_ms, opens_ms)
                self.state.hold(ThrottledChannel(limiter=limiter, since_ms=turn.since_ms, until_ms=until_ms))
                return None
            if not is_share:
                self._answer_empty(request, header, limiter, queue.wait_ms(turn, now_ms))
                return None
            size = queue.enter(turn, limits.max_bytes, now_ms, at_once=True)
        turn.request = request
        if waited_ms:
            self.accounting.held(limiter, waited_ms, now_ms)
        return size

    @staticmethod
    def _answer_empty(request: InFlightRequest, header: RequestHeader, limiter: Limiter, wait_ms: int) -> None:
        request.limiter = None
        request.filter = EmptyFetchFilter(header, limiter, wait_ms)
        request.decision = Frame(header.frame_length + FRAME_LENGTH_BYTES, gather=True)


def _limits(head: bytearray, header: RequestHeader) -> _Limits | None:
    """Return what a fetch asks for, None if more bytes are needed."""
    if header.api_key == SHARE_FETCH:
        asked = share_fetch_limits(head, header)
        return None if asked is None else _Limits(asked.max_bytes, asked.wait_ms)
    limits = fetch_limits(head, header)
    if limits is None:
        return None
    return _Limits(_MAX_INT32 if limits.max_bytes is None else limits.max_bytes, fetch_wait_ms(head, header))
