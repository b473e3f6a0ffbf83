"""The limits in a ShareFetch request, lowered in place.

**Source:** KIP-932; `ShareFetchRequest.json`, Kafka 4.3.
"""

from struct import Struct
from typing import Final

from kafka_quotas.wire.codec.skip import MAX_STRING_BYTES, Layout, TruncatedError, compact_string, walk
from kafka_quotas.wire.protocol.request_header import RequestHeader

LONGEST_UP_TO_LIMITS: Final = 2 * (MAX_STRING_BYTES + 3) + 16
"""How many bytes of the body the limits are within: two strings and four numbers."""
_TWO_INT32: Final = Struct(">ii")
_UP_TO_LIMITS: Final[Layout] = (compact_string, compact_string, 16)
"""Group, member, epoch of the share session, waiting time, `min_bytes` and `max_bytes`."""


def cap_share_fetch(buffer: bytearray | memoryview, header: RequestHeader, max_bytes: int) -> int | None:
    """Lower the limits in the request to `max_bytes` (0 or more), and return the offset after them.

    Returns:
        The offset; None if more bytes are needed, which changes nothing.

    Raises:
        ProtocolError: The request ends before its limits.
    """
    end = min(len(buffer), header.frame_end)
    try:
        after = walk(_UP_TO_LIMITS, buffer, header.end, end)
    except TruncatedError:
        if end < header.frame_end:
            return None
        raise
    limits = after - _TWO_INT32.size
    least, most = _TWO_INT32.unpack_from(buffer, limits)
    _TWO_INT32.pack_into(buffer, limits, min(least, max_bytes), min(most, max_bytes))
    return after
