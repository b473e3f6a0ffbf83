"""Frames: four bytes of length and that many bytes of content.

The limits here bound memory against peers that send garbage: a length field outside them is refused before any byte of
the frame is stored.
"""

from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.codec.skip import Buffer

FRAME_LENGTH_BYTES: Final = 4
MAX_REQUEST_BYTES: Final = 100 * 1024 * 1024
"""The broker's default limit (`socket.request.max.bytes`), beyond which it closes the connection."""
MAX_RESPONSE_BYTES: Final = 2**31 - 1
"""Longest response that the length field can announce. Responses are relayed piece by piece, so it needs no memory."""
MAX_GATHERED_BYTES: Final = 64 * 1024 * 1024
"""Longest response that is worth gathering to be patched as a whole: Metadata of a million partitions is 40 MB."""
MAX_UNAUTHENTICATED_BYTES: Final = 512 * 1024
"""Longest request that a broker takes before authentication (`sasl.server.max.receive.size`)."""


def checked_frame_length(buffer: Buffer, offset: int, *, limit: int) -> int | None:
    """Return the number of bytes that follow the length field at `offset`, or None if it isn't all there.

    Raises:
        ProtocolError: The length is negative or above `limit`.
    """
    field = buffer[offset : offset + FRAME_LENGTH_BYTES]
    if len(field) < FRAME_LENGTH_BYTES:
        return None
    length = int.from_bytes(field, "big", signed=True)
    if not 0 <= length <= limit:
        raise ProtocolError(f"a frame announces {length} bytes, {limit} are the limit", hint=_hint(bytes(field)))
    return length


def _hint(field: bytes) -> str | None:
    """Return the likely protocol of an absurd length, which usually comes from another one."""
    if field[:2] == b"\x16\x03":
        return "this looks like a TLS handshake on a plaintext port"
    if field in (b"GET ", b"POST", b"HEAD", b"HTTP"):
        return "this looks like HTTP"
    return None


def framed(content: bytes) -> bytes:
    """Return the frame of this content: its length in four bytes, then the content."""
    return len(content).to_bytes(FRAME_LENGTH_BYTES, "big") + content
