"""What a Produce request says before its records: the acknowledgements it wants.

A request with `acks=0` gets no response at all, so whoever pairs responses with requests has to know.

**Source:** KIP-98 (transactional id from version 3), KIP-482 (compact from version 9); `ProduceRequest`, Kafka 4.1.
"""

from typing import Final

from kafka_quotas.wire.request_header import RequestHeader
from kafka_quotas.wire.walk import Buffer, TruncatedError, compact_string, read_int16, string

PRODUCE: Final = 0
TRANSACTIONAL_ID_SINCE: Final = 3
FLEXIBLE_SINCE: Final = 9


def acks(buffer: Buffer, header: RequestHeader) -> int | None:
    """Return the acknowledgements wanted (0 none, 1 the leader's, -1 all), or None if more bytes are needed to tell.

    `buffer` is the one that `header` was parsed from; what follows the header may be incomplete.
    *Raises* `ProtocolError` if the request ends before the field.
    """
    frame_end = header.frame_end
    end = min(len(buffer), frame_end)
    offset = header.end
    try:
        if header.api_version >= TRANSACTIONAL_ID_SINCE:
            skip = compact_string if header.api_version >= FLEXIBLE_SINCE else string
            offset = skip(buffer, offset, end)
        return read_int16(buffer, offset, end)
    except TruncatedError:
        if end < frame_end:
            return None
        raise
