"""The limits in a Fetch or ShareFetch request, lowered in place, and the replica id of a Fetch.

A broker returns at most what a client's quota allows in one quota window, because it would refuse a larger response
again and again and the consumer would starve. The proxy has the same effect by lowering the request's own `max_bytes`.
Requests of versions 0 to 2 have no such field, only one limit per partition, which the broker keeps as well: of those
only `min_bytes` is lowered.

**Source:** KIP-74, KAFKA-9677; `KafkaApis.handleFetchRequest` (`maxQuotaWindowBytes`, `fetchMaxBytes`,
`fetchMinBytes`), Kafka 4.1; KIP-903 for the replica id that moved into a tagged field; KIP-932 and
`ShareFetchRequest.json`, Kafka 4.3.
"""

from struct import Struct
from typing import Final, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import CLASSIC, framed
from kafka_quotas.wire.codec.skip import (
    Buffer,
    Layout,
    TruncatedError,
    compact_array,
    compact_string,
    read_int32,
    read_unsigned_varint,
    skip,
    tags,
)
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import RequestHeader

MAX_BYTES_SINCE: Final = 3
REPLICA_TAGGED_SINCE: Final = 15
SESSIONS_SINCE: Final = 7
NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
"""The epoch of requests without a session; they and initial ones name all their partitions."""
REPLICA_STATE_TAG: Final = 1
NO_REPLICA: Final = -1
"""The replica id of a consumer. A broker that follows sends its own, which is 0 or more."""

RACK_SINCE: Final = 11

_INT32: Final = Struct(">i")
_TWO_INT32: Final = Struct(">ii")
_THREE_INT32: Final = Struct(">iii")
_HEAD: Final = Struct(">hhi")
_FINAL: Final = Struct(">iiibii")
"""Waiting time, min_bytes, max_bytes, isolation level, session id, session epoch."""
_SHARE_FETCH: Final = ApiKey.SHARE_FETCH.value
_BODY_V15: Final[Layout] = (
    21,  # waiting time, min_bytes, max_bytes, isolation level, session id, session epoch
    compact_array(16, compact_array(32, tags), tags),  # topics by id, their partitions
    compact_array(16, compact_array(4), tags),  # forgotten topics
    compact_string,  # rack
)
_UP_TO_SHARE_LIMITS: Final[Layout] = (compact_string, compact_string, 4)
"""Group, member and epoch of the share session."""


class FetchLimits(NamedTuple):
    """The limits of a Fetch or ShareFetch request."""

    start: int
    wait_ms: int
    """How long the broker may let the client wait."""
    min_bytes: int
    max_bytes: int | None
    """None in versions without the field."""

    def lowered(self, size: int, *, waited_ms: int = 0, longest_wait_ms: int | None = None) -> bytes:
        """Return the bytes of the limits, lowered to a size.

        Args:
            size: The size, 0 or more.
            waited_ms: How long the client has waited already, which the broker is not to let it wait again.
            longest_wait_ms: The longest that the broker is to let it wait, None for as long as it asks for.
        """
        wait_ms = max(0, self.wait_ms - waited_ms) if waited_ms else self.wait_ms
        wait_ms = wait_ms if longest_wait_ms is None else min(wait_ms, longest_wait_ms)
        max_bytes = size if self.max_bytes is None else min(self.max_bytes, size)
        # A broker would wait for bytes that it may not return. Versions without `max_bytes` have their minimum capped.
        min_bytes = min(self.min_bytes, max_bytes)
        if self.max_bytes is None:
            return _TWO_INT32.pack(wait_ms, min_bytes)
        return _THREE_INT32.pack(wait_ms, min_bytes, max_bytes)


def fetch_limits(buffer: Buffer, header: RequestHeader) -> FetchLimits | None:
    """Return the limits of the request that `header` was parsed from, or None if more bytes are needed."""
    frame_end, has_max = header.frame_end, True
    if header.api_key == _SHARE_FETCH:
        end = min(len(buffer), frame_end)
        try:
            start = skip(_UP_TO_SHARE_LIMITS, buffer, header.end, end)
        except TruncatedError:
            # The bytes at hand end here, not the request.
            if end < frame_end:
                return None
            raise
    else:
        start = _limits_start(header)
        has_max = header.api_version >= MAX_BYTES_SINCE  # older versions limit each partition instead (KIP-74)
    end = start + (_THREE_INT32.size if has_max else _TWO_INT32.size)
    if end > frame_end:
        raise TruncatedError
    if end > len(buffer):
        return None
    if has_max:
        return FetchLimits(start, *_THREE_INT32.unpack_from(buffer, start))
    wait_ms, min_bytes = _TWO_INT32.unpack_from(buffer, start)
    return FetchLimits(start, wait_ms, min_bytes, None)


def fetch_session(buffer: Buffer, header: RequestHeader) -> tuple[int, int] | None:
    """Return the id and epoch of a request's fetch session, or None if more bytes are needed."""
    # Older requests have no session and name all their partitions, as one with the final epoch does (KIP-227).
    if header.api_version < SESSIONS_SINCE:
        return NO_SESSION, FINAL_EPOCH
    offset = _limits_start(header) + 13  # after the limits and the isolation level
    if offset + 8 > header.frame_end:
        raise TruncatedError
    if offset + 8 > len(buffer):
        return None
    session_id, epoch = _TWO_INT32.unpack_from(buffer, offset)
    return session_id, epoch


def final_fetch(api_version: int, *, session_id: int, correlation_id: int, client_id: str) -> bytes:
    """Return the request of a consumer that ends a fetch session and asks for no data.

    A broker drops the session of a request with the final epoch, and answers at once if that names no partition.
    **Source:** KIP-227; `FetchManager.newContext` (4.3.1).
    """
    form = API_TABLE[ApiKey.FETCH].encoding(api_version)
    # The client-id has the classic encoding in every version of the header (KIP-482).
    head = _HEAD.pack(ApiKey.FETCH, api_version, correlation_id) + CLASSIC.encoded_text(client_id) + form.no_tags
    # Later a consumer leaves the tagged replica state out (KIP-903).
    replica = _INT32.pack(NO_REPLICA) if api_version < REPLICA_TAGGED_SINCE else b""
    limits = _FINAL.pack(0, 0, 0, 0, session_id, FINAL_EPOCH)
    topics = form.encoded_count(0) * 2  # and forgotten ones
    rack = form.encoded_text("") if api_version >= RACK_SINCE else b""
    return framed(b"".join((head, replica, limits, topics, rack, form.no_tags)))


def replica_id(buffer: Buffer, header: RequestHeader) -> int | None:
    """Return the id of the fetching broker, `NO_REPLICA` for a consumer, or None if more bytes are needed.

    From version 15 on the request is read once all of it has come. Any client can claim an id.
    """
    end = min(len(buffer), header.frame_end)
    try:
        # From version 15 on the id is a tagged field, after everything else (KIP-903).
        if header.api_version < REPLICA_TAGGED_SINCE:
            return read_int32(buffer, header.end, end)
        if end < header.frame_end:
            return None
        return _tagged_replica_id(buffer, skip(_BODY_V15, buffer, header.end, end), end)
    except TruncatedError:
        # The bytes at hand end here, not the request.
        if end < header.frame_end:
            return None
        raise


def _limits_start(header: RequestHeader) -> int:
    """Return the offset of the waiting time of a Fetch, which the replica id precedes until version 14."""
    return header.end + (4 if header.api_version < REPLICA_TAGGED_SINCE else 0)


def _tagged_replica_id(buffer: Buffer, offset: int, end: int) -> int:
    count, offset = read_unsigned_varint(buffer, offset, end)
    for _ in range(count):
        tag, offset = read_unsigned_varint(buffer, offset, end)
        size, offset = read_unsigned_varint(buffer, offset, end)
        # The replica state starts with the id; its epoch follows.
        if tag == REPLICA_STATE_TAG:
            return read_int32(buffer, offset, min(end, offset + size))
        offset += size
    # Consumers leave the replica state out.
    return NO_REPLICA
