"""The ApiVersions exchange, in which client and broker agree on versions, and the proxy's limits.

The proxy lowers every maximum in a response to what it can patch. So no client ever uses a version in which it would
get a broker's own address or in which the throttle time would be out of reach. APIs that the proxy doesn't know stay
as they are and are relayed unchanged.

**Source:** KIP-35, KIP-511; `ApiVersionsResponse`, `RequestContext.buildResponseSend`, Kafka 4.1.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES, framed
from kafka_quotas.wire.codec.skip import (
    Buffer,
    TruncatedError,
    array_count,
    compact_array_count,
    encode_unsigned_varint,
    read_int16,
    tags,
)
from kafka_quotas.wire.protocol.api_table import API_TABLE, ErrorCode
from kafka_quotas.wire.protocol.header import response_frame, whole_response_body

_API: Final = API_TABLE[ApiKey.API_VERSIONS]

_RANGE: Final = Struct(">hhh")

Serves: TypeAlias = Callable[[int], bool]
"""Whether requests of an API, by its key, may pass."""


def is_unsupported_version_answer(buffer: Buffer, body: int, end: int) -> bool:
    """Return whether the response body at `body` is UNSUPPORTED_VERSION, which has the form of version 0."""
    return read_int16(buffer, body, end) == ErrorCode.UNSUPPORTED_VERSION


def clamp(frame: Buffer, api_version: int, *, serves: Serves | None = None) -> bytes:
    """Return the whole response with each API's highest version lowered to the proxy's.

    An API is left out if `serves` is False for it, or if the broker serves only versions above the proxy's. A response
    with an error may have the form of version 0 instead of the request's `api_version`.
    """
    body, end = whole_response_body(ApiKey.API_VERSIONS, api_version, frame), len(frame)
    is_flexible = _API.is_flexible(api_version) and not is_unsupported_version_answer(frame, body, end)
    count, offset = (compact_array_count if is_flexible else array_count)(frame, body + 2, end)
    pieces: list[Buffer] = []
    for _ in range(count):
        start, offset = offset, offset + _RANGE.size
        if offset > end:
            raise TruncatedError
        key, lowest, highest = _RANGE.unpack_from(frame, start)
        # Each API has a tag section of its own in flexible versions (KIP-482).
        if is_flexible:
            offset = tags(frame, offset, end)
        if serves is not None and not serves(key):
            continue
        api = API_TABLE.get(key)
        # Unknown APIs are relayed unchanged.
        if api is None or (not api.is_internal and highest <= api.max_version):
            pieces.append(frame[start:offset])
        # If no version is left that both the broker and the proxy handle, a client had better not see the API.
        elif not api.is_internal and lowest <= api.max_version:
            pieces.append(_RANGE.pack(key, lowest, api.max_version) + bytes(frame[start + _RANGE.size : offset]))
    left = encode_unsigned_varint(len(pieces) + 1) if is_flexible else len(pieces).to_bytes(4, "big")
    # The throttle time and the broker's features follow the APIs, and stay as they are.
    return framed(b"".join((frame[FRAME_LENGTH_BYTES : body + 2], left, *pieces, frame[offset:])))


def unsupported_version_answer(correlation_id: int) -> bytes:
    """Return the response to an ApiVersions request of a version above the proxy's.

    It names the versions of ApiVersions itself, one of which the client uses for its next attempt (KIP-511).
    """
    # A client can read version 0 of the response whichever version it asked in.
    served = _RANGE.pack(_API.key, _API.min_version, _API.max_version)
    error = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    return response_frame(_API.key, 0, correlation_id, error, (1).to_bytes(4, "big"), served)
