"""The ApiVersions exchange, in which client and broker agree on versions, and the proxy's limits.

The proxy lowers every maximum in a response to what it can patch. So no client ever uses a version in which it would
get a broker's own address or in which the throttle time would be out of reach. APIs that the proxy doesn't know stay
as they are and are relayed unchanged.

**Source:** KIP-35, KIP-511; `ApiVersionsResponse`, `RequestContext.buildResponseSend`, Kafka 4.1.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import framed
from kafka_quotas.wire.codec.skip import (
    Buffer,
    TruncatedError,
    array_count,
    compact_array_count,
    encode_unsigned_varint,
    read_int16,
    tags,
)
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.error_code import ErrorCode
from kafka_quotas.wire.protocol.header import whole_response_body

_API: Final = API_TABLE[ApiKey.API_VERSIONS]

_RANGE: Final = Struct(">hhh")

Serves: TypeAlias = Callable[[int], bool]
"""Whether requests of an API, by its key, may pass."""


class _Entry(NamedTuple):
    """One API of a response and the place of its bytes.

    It is a tuple because a response has some 80 of them.
    """

    api_key: int
    min_version: int
    max_version: int
    start: int
    end: int


def is_unsupported_version_answer(buffer: Buffer, body: int, end: int) -> bool:
    """Return whether the response body at `body` is UNSUPPORTED_VERSION, which has the form of version 0.

    Raises:
        TruncatedError: The error code is not within `end`.
    """
    return read_int16(buffer, body, end) == ErrorCode.UNSUPPORTED_VERSION


def clamp(frame: Buffer, api_version: int, *, serves: Serves | None = None) -> bytes:
    """Return the whole response with each API's highest version lowered to the proxy's.

    An API is left out if `serves` is False for it, or if the broker serves only versions above the proxy's. A response
    with an error may have the form of version 0 instead of the request's `api_version`.

    Raises:
        ProtocolError: The frame is no ApiVersions response.
    """
    body = whole_response_body(ApiKey.API_VERSIONS, api_version, frame)
    entries = _entries(frame, api_version, body)
    pieces = [piece for entry in entries if (piece := _clamped(frame, entry, serves)) is not None]
    # The throttle time and the broker's features follow the APIs, and stay as they are.
    if _is_flexible(frame, api_version, body):
        count = encode_unsigned_varint(len(pieces) + 1)
        array_end = entries[-1].end if entries else compact_array_count(frame, body + 2, len(frame))[1]
    else:
        count = len(pieces).to_bytes(4, "big")
        array_end = entries[-1].end if entries else body + 6
    return framed(b"".join((bytes(frame[4 : body + 2]), count, *pieces, bytes(frame[array_end:]))))


def unsupported_version_answer(correlation_id: int) -> bytes:
    """Return the response to an ApiVersions request of a version above the proxy's.

    It names the versions of ApiVersions itself, one of which the client uses for its next attempt (KIP-511).
    """
    # A client can read version 0 of the response whichever version it asked in.
    served = _RANGE.pack(_API.key, _API.min_version, _API.max_version)
    return framed(
        correlation_id.to_bytes(4, "big", signed=True)
        + ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
        + (1).to_bytes(4, "big")
        + served
    )


def _is_flexible(frame: Buffer, api_version: int, body: int) -> bool:
    return _API.is_flexible(api_version) and not is_unsupported_version_answer(frame, body, len(frame))


def _entries(frame: Buffer, api_version: int, body: int) -> list[_Entry]:
    """Return the APIs of a response.

    Raises:
        ProtocolError: The entries end after the frame.
    """
    is_flexible = _is_flexible(frame, api_version, body)
    end = len(frame)
    count, offset = (compact_array_count if is_flexible else array_count)(frame, body + 2, end)
    entries: list[_Entry] = []
    for _ in range(count):
        start, offset = offset, offset + _RANGE.size
        if offset > end:
            raise TruncatedError
        key, lowest, highest = _RANGE.unpack_from(frame, start)
        # Each API has a tag section of its own in flexible versions (KIP-482).
        if is_flexible:
            offset = tags(frame, offset, end)
        entries.append(_Entry(key, lowest, highest, start, offset))
    return entries


def _clamped(frame: Buffer, entry: _Entry, serves: Serves | None) -> Buffer | None:
    """Return an entry's bytes with its maximum lowered, or None if nothing of the API remains."""
    key, lowest, highest, start, end = entry
    if serves is not None and not serves(key):
        return None
    api = API_TABLE.get(key)
    # Unknown APIs are relayed unchanged.
    if api is None:
        return frame[start:end]
    # There is no version that both the broker and the proxy handle, so a client had better not see the API.
    if api.is_internal or lowest > api.max_version:
        return None
    if highest <= api.max_version:
        return frame[start:end]
    return _RANGE.pack(key, lowest, api.max_version) + bytes(frame[start + _RANGE.size : end])
