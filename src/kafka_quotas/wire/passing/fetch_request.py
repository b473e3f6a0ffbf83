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
_THREE_INT32: Final = Struct(">iii")
_HEAD: Final = Struct(">hhi")
_FINAL: Final = Struct(">iiibii")
"""Waiting time, min_bytes, max_bytes, isolation level, session id, session epoch."""
_TWO_INT32: Final = Struct(">ii")
_BODY_V15: Final[Layout] = (
    21,  # waiting time, min_bytes, max_bytes, isolation level, session id, session epoch
    compact_array(16, compact_array(32, tags), tags),  # topics by id, their partitions
    compact_array(16, compact_array(4), tags),  # forgotten topics
    compact_string,  # rack
)
_UP_TO_SHARE_LIMITS: Final[Layout] = (compact_string, compact_string, 16)
"""Group, member, epoch of the share session, waiting time, `min_bytes` and `max_bytes`."""


class FetchLimits(NamedTuple):
    """The limits of a Fetch request in bytes.

    It is a tuple and not a dataclass because the daemon's hot path makes one per request.
    """

    min_bytes: int
    max_bytes: int | None
    """None in versions without the field."""


def fetch_limits(buffer: Buffer, header: RequestHeader) -> FetchLimits | None:
    """Return the limits of the request that `header` was parsed from, or None if more bytes are needed.

    Raises:
        ProtocolError: The request ends before them.
    """
    offset = _min_bytes_offset(header)
    # Versions 0 to 2 limit each partition instead (KIP-74).
    has_max = header.api_version >= MAX_BYTES_SINCE
    end = offset + (8 if has_max else 4)
    if end > header.frame_end:
        raise TruncatedError
    if end > len(buffer):
        return None
    if has_max:
        return FetchLimits(*_TWO_INT32.unpack_from(buffer, offset))
    return FetchLimits(_INT32.unpack_from(buffer, offset)[0], None)


def fetch_wait_ms(buffer: Buffer, header: RequestHeader) -> int:
    """Return how long the broker may let a Fetch wait whose limits `fetch_limits` has found."""
    wait_ms: int = _INT32.unpack_from(buffer, _min_bytes_offset(header) - 4)[0]
    return wait_ms


def cap_fetch(
    buffer: bytearray | memoryview, header: RequestHeader, max_window_bytes: int, *, waited_ms: int = 0
) -> FetchLimits | None:
    """Lower the limits of the request to a size, and return the limits before.

    None means that more bytes are needed and nothing was changed.

    Args:
        buffer: The request.
        header: Its header.
        max_window_bytes: The size.
        waited_ms: How long the client has waited already, which the broker is not to let it wait again.

    Raises:
        ProtocolError: The request ends before its limits.
    """
    limits = fetch_limits(buffer, header)
    if limits is None:
        return None
    min_bytes, max_bytes = limits
    offset = _min_bytes_offset(header)
    if max_bytes is not None and max_bytes > max_window_bytes:
        _INT32.pack_into(buffer, offset + 4, max_window_bytes)
    # Versions 0 to 2 have no `max_bytes`; their `min_bytes` is capped all the same.
    if max_bytes is None or max_bytes > max_window_bytes:
        max_bytes = max_window_bytes
    # A broker would wait for bytes that it may not return.
    if min_bytes > max_bytes:
        _INT32.pack_into(buffer, offset, max_bytes)
    if waited_ms:
        _INT32.pack_into(buffer, offset - 4, max(0, fetch_wait_ms(buffer, header) - waited_ms))
    return limits


def share_limits_end(buffer: Buffer, header: RequestHeader) -> int | None:
    """Return the offset after the limits of a ShareFetch, or None if more bytes are needed.

    Raises:
        ProtocolError: The request ends before its limits.
    """
    end = min(len(buffer), header.frame_end)
    try:
        return skip(_UP_TO_SHARE_LIMITS, buffer, header.end, end)
    except TruncatedError:
        # The bytes at hand end here, not the request.
        if end < header.frame_end:
            return None
        raise


class ShareFetchLimits(NamedTuple):
    """The limits of a ShareFetch request."""

    end: int
    """Offset after them."""
    wait_ms: int
    """How long the broker may let the client wait."""
    min_bytes: int
    max_bytes: int


def share_fetch_limits(buffer: Buffer, header: RequestHeader) -> ShareFetchLimits | None:
    """Return the limits of the request, or None if more bytes are needed.

    Raises:
        ProtocolError: The request ends before its limits.
    """
    after = share_limits_end(buffer, header)
    if after is None:
        return None
    return ShareFetchLimits(after, *_THREE_INT32.unpack_from(buffer, after - _THREE_INT32.size))


def cap_share_fetch(
    buffer: bytearray | memoryview, header: RequestHeader, max_bytes: int, *, waited_ms: int = 0
) -> int | None:
    """Lower the limits in the request to `max_bytes` (0 or more), and return the offset after them.

    None means that more bytes are needed and nothing was changed. `waited_ms` is as in `cap_fetch`.

    Raises:
        ProtocolError: The request ends before its limits.
    """
    limits = share_fetch_limits(buffer, header)
    if limits is None:
        return None
    after, wait_ms, least, most = limits
    wait_ms = max(0, wait_ms - waited_ms) if waited_ms else wait_ms
    _THREE_INT32.pack_into(buffer, after - _THREE_INT32.size, wait_ms, min(least, max_bytes), min(most, max_bytes))
    return after


def fetch_session(buffer: Buffer, header: RequestHeader) -> tuple[int, int] | None:
    """Return the id and epoch of a request's fetch session, or None if more bytes are needed.

    Raises:
        ProtocolError: The request ends before the session.
    """
    # Older requests have no session and name all their partitions, as one with the final epoch does (KIP-227).
    if header.api_version < SESSIONS_SINCE:
        return NO_SESSION, FINAL_EPOCH
    offset = _min_bytes_offset(header) + 9  # after the limits and the isolation level
    if offset + 8 > header.frame_end:
        raise TruncatedError
    if offset + 8 > len(buffer):
        return None
    session_id, epoch = _TWO_INT32.unpack_from(buffer, offset)
    return session_id, epoch


def final_fetch(api_version: int, *, session_id: int, correlation_id: int, client_id: str) -> bytes:
    """Return the request of a consumer that ends a fetch session and asks for no data.

    A broker drops the session of a request with the final epoch, and answers at once where that names no partition.
    **Source:** KIP-227; `FetchManager.newContext` (4.3.1).
    """
    form = API_TABLE[ApiKey.FETCH].encoding(api_version)
    pieces = [form.no_tags]
    # Later a consumer leaves the tagged replica state out (KIP-903).
    if api_version < REPLICA_TAGGED_SINCE:
        pieces.append(_INT32.pack(NO_REPLICA))
    pieces.append(_FINAL.pack(0, 0, 0, 0, session_id, FINAL_EPOCH))
    pieces += [form.encoded_count(0)] * 2  # topics, forgotten topics
    if api_version >= RACK_SINCE:
        pieces.append(form.encoded_text(""))
    pieces.append(form.no_tags)
    # The client-id has the classic encoding in every version of the header (KIP-482).
    head = _HEAD.pack(ApiKey.FETCH, api_version, correlation_id) + CLASSIC.encoded_text(client_id)
    return framed(head + b"".join(pieces))


def replica_id(buffer: Buffer, header: RequestHeader) -> int | None:
    """Return the id of the fetching broker, `NO_REPLICA` for a consumer, or None if more bytes are needed.

    From version 15 on the request is read once all of it has come. Any client can claim an id.

    Raises:
        ProtocolError: The request ends before the field.
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


def _min_bytes_offset(header: RequestHeader) -> int:
    """Return the offset of `min_bytes`, before `max_bytes`.

    It is after the replica id (until version 14) and the waiting time.
    """
    return header.end + (8 if header.api_version < REPLICA_TAGGED_SINCE else 4)


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
