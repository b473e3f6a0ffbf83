"""The headers of requests and responses, read from the first bytes of their frames.

Every request starts with API key, version, correlation id and, except in version 0 of ControlledShutdown, a client id
in the classic encoding of every header version. That is why these four can be read even of unknown APIs.

A response starts with the correlation id of its request and, in header version 1, tagged fields. It doesn't name its
API and version: responses come in the order of their requests, and the correlation id is a check of it. ApiVersions
always answers with header version 0, so that a client can read an error from a broker that is older than itself.

**Source:** KIP-482, KIP-511; `RequestHeader.parse`, `ApiKeys.requestHeaderVersion`, `responseHeaderVersion`, Kafka 4.1.
"""

from struct import Struct
from typing import Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.java import decode_utf8
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import (
    FRAME_LENGTH_BYTES,
    MAX_REQUEST_BYTES,
    MAX_RESPONSE_BYTES,
    checked_frame_length,
    framed,
)
from kafka_quotas.wire.codec.skip import Buffer, TruncatedError, tags
from kafka_quotas.wire.protocol.api import NEVER
from kafka_quotas.wire.protocol.api_table import API_TABLE

MIN_HEADER_BYTES: Final = 8
"""Key, version and correlation id: what even the shortest request holds."""
MAX_HEADER_TAG_BYTES: Final = 1024
"""Most bytes of tagged fields in a header. No client or broker sends any, and they are read again until all have come:
nobody can have a whole frame kept in memory before a single decision is taken."""

_CONTROLLED_SHUTDOWN: Final = ApiKey.CONTROLLED_SHUTDOWN.value
_FIXED: Final = Struct(">ihhih")
_new: Final = tuple.__new__
"""Makes a `RequestHeader` in half the time that its own constructor takes."""
_FLEXIBLE_SINCE: Final = {key: api.flexible_since for key, api in API_TABLE.items()}


class RequestHeader(NamedTuple):
    """A request's header and its place in the buffer.

    It is a tuple and not a dataclass because the daemon's hot path makes one per request.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    """The client id; a null one is empty, as it is for the broker."""
    end: int
    """The offset of the body's first byte, or of a tag section for APIs and versions unknown to `api_table`."""
    start: int
    """The offset of the frame's length field."""
    frame_length: int
    """The value of the length field: the number of bytes that follow it."""

    @property
    def frame_end(self) -> int:
        """Return the offset after the frame's last byte."""
        return self.start + FRAME_LENGTH_BYTES + self.frame_length


def parse_request_header(
    buffer: Buffer, offset: int = 0, *, max_frame_bytes: int = MAX_REQUEST_BYTES
) -> RequestHeader | None:
    """Return the header of the request whose frame starts at `offset`, or None if more bytes are needed.

    Raises:
        ProtocolError: The frame's length is negative, too short for a header or above `max_frame_bytes`, or the header
            doesn't fit its frame or has too many tagged fields.
    """
    if len(buffer) - offset < _FIXED.size:
        return _parse_short(buffer, offset, max_frame_bytes)
    length, key, version, correlation_id, id_length = _FIXED.unpack_from(buffer, offset)
    if not MIN_HEADER_BYTES + 2 <= length <= max_frame_bytes or (key == _CONTROLLED_SHUTDOWN and version == 0):
        return _parse_short(buffer, offset, max_frame_bytes)
    id_start = offset + _FIXED.size
    end = id_start
    if id_length > 0:
        end += id_length
        if end > offset + FRAME_LENGTH_BYTES + length:
            raise ProtocolError("a request's client id is longer than the request")
        if end > len(buffer):
            return None
    elif id_length < -1:
        raise ProtocolError(f"a request's client id has the length {id_length}")
    id_end = end
    if version < _FLEXIBLE_SINCE.get(key, NEVER):
        pass
    elif end < len(buffer) and end < offset + FRAME_LENGTH_BYTES + length and not buffer[end]:
        end += 1
    else:
        after = after_header_tags(buffer, end, offset + FRAME_LENGTH_BYTES + length)
        if after is None:
            return None
        end = after
    # Only now, because this is called again while bytes are missing.
    client_id = decode_utf8(bytes(buffer[id_start:id_end])) if id_length > 0 else ""
    return _new(RequestHeader, (key, version, correlation_id, client_id, end, offset, length))


def _parse_short(buffer: Buffer, offset: int, max_frame_bytes: int) -> RequestHeader | None:
    """Return the header of a frame that has too few bytes for the usual one, or a header of version 0."""
    length = checked_frame_length(buffer, offset, limit=max_frame_bytes)
    if length is None:
        return None
    if length < MIN_HEADER_BYTES:
        raise ProtocolError(f"a request of {length} bytes is too short for a header")
    end = offset + FRAME_LENGTH_BYTES + MIN_HEADER_BYTES
    if len(buffer) < end:
        return None
    key = int.from_bytes(buffer[offset + 4 : offset + 6], "big", signed=True)
    version = int.from_bytes(buffer[offset + 6 : offset + 8], "big", signed=True)
    correlation_id = int.from_bytes(buffer[offset + 8 : offset + 12], "big", signed=True)
    if key == _CONTROLLED_SHUTDOWN and version == 0:
        return RequestHeader(key, version, correlation_id, "", end, offset, length)
    if length < MIN_HEADER_BYTES + 2:
        raise ProtocolError(f"a request of {length} bytes is too short for a header")
    return None


def after_header_tags(buffer: Buffer, start: int, frame_end: int) -> int | None:
    """Return the offset after the tagged fields of a header, or None if more bytes are needed."""
    limit = min(frame_end, start + MAX_HEADER_TAG_BYTES)
    end = min(len(buffer), limit)
    try:
        return tags(buffer, start, end)
    except TruncatedError as error:
        if len(buffer) < limit:
            return None
        raise ProtocolError(
            f"the tagged fields of a header don't fit its frame or are longer than {MAX_HEADER_TAG_BYTES} bytes"
        ) from error


RESPONSE_HEAD_BYTES: Final = 8
"""Length field and correlation id: what every response starts with."""

RESPONSE_HEAD: Final = Struct(">ii")
# A client that offers a version above the broker's must be able to read its answer (KIP-511).
_V1_SINCE: Final = {key: api.flexible_since for key, api in API_TABLE.items() if api.key is not ApiKey.API_VERSIONS}


def parse_response_head(
    buffer: Buffer, offset: int = 0, *, max_frame_bytes: int = MAX_RESPONSE_BYTES
) -> tuple[int, int] | None:
    """Return (frame length, correlation id) of the response at `offset`, or None if more bytes are needed.

    The frame length doesn't count the four bytes of the length field itself.

    Raises:
        ProtocolError: The length is negative, too short for a response or above `max_frame_bytes`.
    """
    if len(buffer) - offset < RESPONSE_HEAD_BYTES:
        return None
    length, correlation_id = RESPONSE_HEAD.unpack_from(buffer, offset)
    if not RESPONSE_HEAD_BYTES - FRAME_LENGTH_BYTES <= length <= max_frame_bytes:
        raise ProtocolError(f"a response announces {length} bytes")
    return length, correlation_id


def has_header_tags(api_key: int, api_version: int) -> bool:
    """Return whether the response's header is of version 1, and False for unknown APIs."""
    return api_version >= _V1_SINCE.get(api_key, NEVER)


def response_frame(api_key: int, api_version: int, correlation_id: int, *body: Buffer) -> bytes:
    """Return a whole response of this body, whose header holds no tags."""
    header_tags = b"\0" if has_header_tags(api_key, api_version) else b""
    return framed(b"".join((correlation_id.to_bytes(4, "big", signed=True), header_tags, *body)))


def response_body_offset(api_key: int, api_version: int, buffer: Buffer, offset: int = 0) -> int | None:
    """Return the offset of the body of the response at `offset`, or None if more bytes are needed."""
    head = parse_response_head(buffer, offset)
    if head is None:
        return None
    start = offset + RESPONSE_HEAD_BYTES
    if not has_header_tags(api_key, api_version):
        return start
    return after_header_tags(buffer, start, offset + FRAME_LENGTH_BYTES + head[0])


def whole_response_body(api_key: int, api_version: int, frame: Buffer) -> int:
    """Return the offset of the body in a response frame, length field included."""
    head = parse_response_head(frame)
    if head is None or head[0] != len(frame) - FRAME_LENGTH_BYTES:
        raise ProtocolError(f"{len(frame)} bytes are not one whole response")
    body = response_body_offset(api_key, api_version, frame)
    if body is None:
        raise ProtocolError("a response ends inside its header")
    return body
