"""The `throttle_time_ms` of a response, found without decoding the response, and raised in place.

It is the first field of the body for nearly all APIs, so the first bytes of any response are enough. In Produce,
ApiVersions and the delegation token responses it comes later and may need the whole frame: see `throttle_needs_whole`.

**Source:** the message definitions, see `api_table`; `AbstractResponse.maybeSetThrottleTimeMs`, Kafka 4.1. A broker
that forwarded a request answers with the larger of two throttle times (`KafkaApis`, KIP-590), and so does the proxy.
"""

from collections.abc import Generator
from struct import Struct
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES
from kafka_quotas.wire.codec.skip import Buffer, Layout, TruncatedError, read_int32, skip, skipping
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import (
    RESPONSE_HEAD_BYTES,
    has_header_tags,
    response_body_offset,
    whole_response_body,
)
from kafka_quotas.wire.proxying.api_versions import is_unsupported_version_answer

NEED_MORE: Final = -1
"""The result if the bytes at hand do not reach the field."""
MAX_THROTTLE_MS: Final = 2**31 - 1
"""The most the field can hold: 24.8 days."""

_API_VERSIONS: Final = ApiKey.API_VERSIONS.value
_INT32: Final = Struct(">i")
_LAYOUTS: Final[dict[tuple[int, int], Layout]] = {
    (key, version): layout.before
    for key, api in API_TABLE.items()
    for version in range(api.min_version, api.max_version + 1)
    if (layout := api.throttle_layout(version)) is not None
}
_FIXED: Final[dict[tuple[int, int], tuple[int, bool]]] = {
    place: (
        RESPONSE_HEAD_BYTES + has_header_tags(*place) + sum(step for step in layout if isinstance(step, int)),
        has_header_tags(*place),
    )
    for place, layout in _LAYOUTS.items()
    if all(isinstance(step, int) for step in layout)
}
"""Where the field is if the header holds no tags, as is usual, and whether it may hold some."""


def throttle_needs_whole(api_key: int, api_version: int) -> bool:
    """Return whether finding the field takes the whole response, not only its first bytes."""
    place = (api_key, api_version)
    return place in _LAYOUTS and place not in _FIXED


def throttle_offset(api_key: int, api_version: int, frame: Buffer, start: int = 0) -> int | None:
    """Return the offset of the throttle time in the response that begins at `start`.

    None if this version carries none or is unknown to us, `NEED_MORE` if the field isn't wholly within the bytes at
    hand.
    """
    place = (api_key, api_version)
    fixed = _FIXED.get(place)
    if fixed is not None and len(frame) - start >= fixed[0] + 4:
        offset, may_have_tags = fixed
        # Without header tags the field has a fixed place. No Kafka release has such tags, but KIP-482 allows them.
        if not may_have_tags or not frame[start + RESPONSE_HEAD_BYTES]:
            if _INT32.unpack_from(frame, start)[0] < offset:
                raise ProtocolError("a response is too short for its throttle time")
            return start + offset
    layout = _LAYOUTS.get(place)
    return None if layout is None else _search(api_key, api_version, layout, frame, start)


def _search(api_key: int, api_version: int, layout: Layout, frame: Buffer, start: int) -> int | None:
    """Return the offset by walking from the body's start, or None if this response has no field."""
    # The byte after the head counts the header's tags, of which there usually are none.
    body = start + RESPONSE_HEAD_BYTES + 1
    if len(frame) < body or frame[body - 1] or not has_header_tags(api_key, api_version):
        found = response_body_offset(api_key, api_version, frame, start)
        if found is None:
            return NEED_MORE
        body = found
    frame_end = start + FRAME_LENGTH_BYTES + _INT32.unpack_from(frame, start)[0]
    end = min(len(frame), frame_end)
    try:
        # This error has the form of version 0, which has no throttle time (KIP-511).
        if api_key == _API_VERSIONS and is_unsupported_version_answer(frame, body, end):
            return None
        offset = skip(layout, frame, body, end)
        read_int32(frame, offset, end)
    except TruncatedError:
        # The bytes at hand end here, not the response.
        if end < frame_end:
            return NEED_MORE
        raise
    return offset


def read_throttle_ms(frame: Buffer, offset: int) -> int:
    """Return the throttle time in milliseconds at an offset that `throttle_offset` found."""
    value: int = _INT32.unpack_from(frame, offset)[0]
    return value


def patch_throttle(
    frame: bytearray | memoryview, api_key: int, api_version: int, throttle_ms: int, start: int = 0
) -> int | None:
    """Raise the throttle time of a response to `throttle_ms`, and return its time before in ms.

    None if the response has no such field, `NEED_MORE` if more of it is needed.
    """
    offset = throttle_offset(api_key, api_version, frame, start)
    return offset if offset is None or offset == NEED_MORE else _raised(frame, offset, throttle_ms)


def patching_throttle(
    frame: bytearray | memoryview, api_key: int, api_version: int, throttle_ms: int
) -> Generator[None, None, int | None]:
    """Do what `patch_throttle` does with a whole response, some elements before the field at a time."""
    layout = _LAYOUTS.get((api_key, api_version))
    if layout is None or api_key == _API_VERSIONS or (api_key, api_version) in _FIXED:
        return patch_throttle(frame, api_key, api_version, throttle_ms)
    body, end = whole_response_body(api_key, api_version, frame), len(frame)
    offset = yield from skipping(layout, frame, body, end)
    read_int32(frame, offset, end)
    return _raised(frame, offset, throttle_ms)


def _raised(frame: bytearray | memoryview, offset: int, throttle_ms: int) -> int:
    upstream_ms = read_throttle_ms(frame, offset)
    # The client waits for the longer of the two, as for a request that a broker forwarded (KIP-590).
    if throttle_ms > upstream_ms:
        _INT32.pack_into(frame, offset, min(throttle_ms, MAX_THROTTLE_MS))
    return max(upstream_ms, 0)
