"""The header of a response: the correlation id of its request and, in version 1, tagged fields.

A response doesn't name its API and version: responses come in the order of their requests, and the correlation id is a
check of it. ApiVersions always answers with header version 0, so that a client can read an error from a broker that is
older than itself. Some fields need the response as a whole, not only its first bytes.

**Source:** KIP-482, KIP-511; `ApiKeys.responseHeaderVersion`, Kafka 4.1.
"""

from struct import Struct
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.frame import FRAME_LENGTH_BYTES, MAX_RESPONSE_BYTES
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.api import NEVER
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.request_header import after_header_tags

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


def response_body_offset(api_key: int, api_version: int, buffer: Buffer, offset: int = 0) -> int | None:
    """Return the offset of the body of the response at `offset`, or None if more bytes are needed.

    Raises:
        ProtocolError: The header doesn't fit the frame.
    """
    head = parse_response_head(buffer, offset)
    if head is None:
        return None
    start = offset + RESPONSE_HEAD_BYTES
    if not has_header_tags(api_key, api_version):
        return start
    return after_header_tags(buffer, start, offset + FRAME_LENGTH_BYTES + head[0])


def whole_response_body(api_key: int, api_version: int, frame: Buffer) -> int:
    """Return the offset of the body in a response frame, length field included.

    Raises:
        ProtocolError: `frame` is not exactly one frame or its header doesn't fit.
    """
    head = parse_response_head(frame)
    if head is None or head[0] != len(frame) - FRAME_LENGTH_BYTES:
        raise ProtocolError(f"{len(frame)} bytes are not one whole response")
    body = response_body_offset(api_key, api_version, frame)
    if body is None:
        raise ProtocolError("a response ends inside its header")
    return body
