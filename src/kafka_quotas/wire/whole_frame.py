"""A response that is at hand as a whole, for what can't be done on its first bytes."""

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.frame import FRAME_LENGTH_BYTES
from kafka_quotas.wire.response_header import parse_response_head, response_body_offset
from kafka_quotas.wire.walk import Buffer


def whole_response_body(api_key: int, api_version: int, frame: Buffer) -> int:
    """Return the offset of the body in a response frame, length field included.

    *Raises* `ProtocolError` if `frame` is not exactly one frame or its header doesn't fit.
    """
    head = parse_response_head(frame)
    if head is None or head[0] != len(frame) - FRAME_LENGTH_BYTES:
        raise ProtocolError(f"{len(frame)} bytes are not one whole response")
    body = response_body_offset(api_key, api_version, frame)
    if body is None:
        raise ProtocolError("a response ends inside its header")
    return body


def framed(content: bytes) -> bytes:
    """Return the frame of this content: its length in four bytes, then the content."""
    return len(content).to_bytes(FRAME_LENGTH_BYTES, "big") + content
