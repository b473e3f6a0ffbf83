"""What a Fetch response is charged with, and the one that a refused fetch gets: without data.

**Source:** `FetchResponse.sizeOf`, `KafkaApis.processResponseCallback`, `FetchContext.getThrottledResponse`, Kafka 4.1.
What is charged is the size of the body plus four bytes, which is the frame's length but for the header's tag section
that came with version 12. A throttled answer names no topics; it names the session of an incremental fetch, and none
for one that named all its partitions, so that the client does so again.
"""

from struct import Struct
from typing import Final

from kafka_quotas.wire.fetch_request import (
    FETCH,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    SESSIONS_SINCE,
)
from kafka_quotas.wire.response_header import RESPONSE_HEAD_BYTES, has_header_tags
from kafka_quotas.wire.walk import Buffer
from kafka_quotas.wire.whole_frame import framed

THROTTLE_SINCE: Final = 1

_INT32: Final = Struct(">i")
_SESSION: Final = Struct(">hi")
"""Error code, session id."""


def charged_bytes(api_version: int, frame_length: int) -> int:
    """Return the bytes that a response counts for the fetch quota; `frame_length` is the value of its length field."""
    return frame_length - 1 if has_header_tags(FETCH, api_version) else frame_length


def answered_session(session_id: int, epoch: int) -> int:
    """Return the session that an empty answer names, by the session and epoch of the request."""
    return NO_SESSION if epoch in (INITIAL_EPOCH, FINAL_EPOCH) else session_id


def empty_fetch_response(
    api_version: int, correlation_id: int, *, session_id: int, throttle_ms: int, error_code: int = 0
) -> bytes:
    """Return the frame of a response without data, with throttle time and error where the version has them."""
    is_flexible = has_header_tags(FETCH, api_version)
    pieces = [_INT32.pack(correlation_id), b"\0" if is_flexible else b""]
    if api_version >= THROTTLE_SINCE:
        pieces.append(_INT32.pack(throttle_ms))
    if api_version >= SESSIONS_SINCE:
        pieces.append(_SESSION.pack(error_code, session_id))
    pieces.append(b"\1\0" if is_flexible else bytes(4))
    return framed(b"".join(pieces))


def fetch_result(api_version: int, buffer: Buffer, start: int) -> tuple[int, int] | None:
    """Return error code (0: none) and fetch session of the response at `start`, or None if more bytes are needed.

    They are of the response as a whole. Versions before 7 have neither, and get (0, `NO_SESSION`).
    """
    if api_version < SESSIONS_SINCE:
        return 0, NO_SESSION
    offset = start + RESPONSE_HEAD_BYTES + has_header_tags(FETCH, api_version) + 4
    if len(buffer) < offset + _SESSION.size:
        return None
    error_code, session_id = _SESSION.unpack_from(buffer, offset)
    return error_code, session_id
