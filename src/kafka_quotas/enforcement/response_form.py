"""Which form a response is passed on in: as it comes, gathered, or but for its end; and what is told in it."""

from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.exchange import ADDRESSES, FETCH, PRODUCE, STREAM, TAIL, Exchange
from kafka_quotas.enforcement.fetch_form import FETCH_FORMS
from kafka_quotas.enforcement.frame_stream import Decision, Frame, Patch
from kafka_quotas.wire.api import NEVER
from kafka_quotas.wire.api_table import API_TABLE
from kafka_quotas.wire.api_versions import (
    API_VERSIONS,
    Serves,
    clamp,
    is_unsupported_version_answer,
    unsupported_version_answer,
)
from kafka_quotas.wire.frame import FRAME_LENGTH_BYTES, MAX_GATHERED_BYTES
from kafka_quotas.wire.response_header import RESPONSE_HEAD_BYTES
from kafka_quotas.wire.share_fetch_request import SHARE_FETCH
from kafka_quotas.wire.walk import Buffer

CLIENT_WAITS_SINCE: Final = {
    PRODUCE: 6,
    FETCH: 8,
    2: 3,
    3: 6,
    8: 4,
    9: 4,
    10: 2,
    11: 3,
    12: 2,
    13: 2,
    14: 2,
    15: 2,
    16: 2,
    API_VERSIONS: 2,
    19: 3,
    20: 2,
    32: 2,
    SHARE_FETCH: NEVER,
}
"""First versions in which a client waits the throttle time out by itself; of APIs that are not here, the first one that
tells it. **Source:** KIP-219; `AbstractResponse.shouldClientThrottle` of each API (4.1)."""

PRODUCE_FLEXIBLE_SINCE: Final = 9
_FOUR_ZEROS: Final = bytes(4)
_FIVE_ZEROS: Final = bytes(5)


def told_throttle_ms(exchange: Exchange) -> int:
    """The throttle time to write into a response; 0 where the client would wait it out a second time."""
    waits_itself = exchange.delayed and exchange.api_version >= CLIENT_WAITS_SINCE.get(exchange.api_key, 0)
    return 0 if waits_itself else exchange.throttle_ms


def clamped_versions(exchange: Exchange, frame: bytearray, *, serves: Serves) -> Buffer:
    """Return the ApiVersions response with our maximum versions; who asks in a version beyond ours is told so.

    A broker that is older than the version asked for says only that, and the client asks again.
    """
    if exchange.api_version > API_TABLE[API_VERSIONS].max_version:
        return unsupported_version_answer(exchange.correlation_id)
    if is_unsupported_version_answer(frame, RESPONSE_HEAD_BYTES, len(frame)):
        return frame
    return clamp(frame, exchange.api_version, serves=serves)


def bare_produce_response(exchange: Exchange, chunk: memoryview, end: int) -> bool:
    """Whether a Produce response is whole, up to `end`, and surely has a throttle time of 0 and no addresses."""
    bare = bare_end(exchange.api_version)
    return bool(bare) and chunk[end - len(bare) : end] == bare


def bare_end(api_version: int) -> bytes:
    """What a Produce response ends with only if its throttle time is 0 and no addresses are behind it; b"" for nothing.

    The throttle time is the last field there is; from the first flexible version on an empty tag section follows. Were
    that not empty, its last entry would end with a broker's port, its rack and its tags: five zeros could not be.
    """
    if api_version >= PRODUCE_FLEXIBLE_SINCE:
        return _FIVE_ZEROS
    return _FOUR_ZEROS if api_version > 0 else b""


def look_at_tail(exchange: Exchange, chunk: memoryview, offset: int, length: int) -> None:
    """Treat a response with records that is at hand as a whole as what it turns out to be."""
    end = offset + FRAME_LENGTH_BYTES + length
    if len(chunk) >= end:
        has_none = FETCH_FORMS[exchange.api_key].names_no_brokers(chunk, offset, end)
        exchange.treatment = STREAM if has_none else ADDRESSES


def passing(exchange: Exchange, length: int, *, gather: bool, patch: Patch | None = None) -> Decision:
    """How to pass on a response; raises `ProtocolError` if it is to be gathered and too long for that."""
    if exchange.treatment is TAIL and not gather:
        return Frame(
            length + FRAME_LENGTH_BYTES, patch=patch, find_tail=FETCH_FORMS[exchange.api_key].find_tail(length)
        )
    if not gather and patch is None:
        return length + FRAME_LENGTH_BYTES
    if gather and length > MAX_GATHERED_BYTES:
        raise ProtocolError(f"a response announces {length} bytes and would have to be changed as a whole")
    return Frame(length + FRAME_LENGTH_BYTES, gather, patch)
