"""Fetch and ShareFetch responses: the bytes to charge, empty and refused ones, and the brokers at their end.

A broker charges the size of the body plus four bytes, which is the frame's length without the header's tag section. A
throttled Fetch response names no topics. It names the session of an incremental fetch, and none for a fetch of all
partitions, so that the client repeats that in full. A throttled ShareFetch response keeps the results of the
acknowledgements in its request: `WithoutRecords` drops the records from the broker's, without buffering one.

A response can be 2 GB long, and the addresses of new leaders are at its end, after the records (KIP-951). So only that
end is buffered: `TailFinder` skips records and finds it, at any chunk boundaries, and `rewrite_tail` replaces the
addresses without changing the length, which the client has already received. If the new addresses are shorter, an
unknown tagged field fills the gap. If they are longer they are left out, and the client asks for Metadata as it does
with an older broker.

**Source:** `FetchResponse.sizeOf`, `KafkaApis.processResponseCallback`, `FetchContext.getThrottledResponse`,
`FetchResponse.json` (versions 16 to 18), Kafka 4.1; KIP-932, `ShareFetchResponse.json`,
`KafkaApis.processShareFetchResponse`, `ShareSessionContext.throttleResponse`, Kafka 4.3.1.
"""

from collections.abc import Generator
from struct import Struct
from typing import Final, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import fields_of, framed
from kafka_quotas.wire.codec.skip import MAX_VARINT_BYTES, Buffer, encode_unsigned_varint, read_unsigned_varint
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import RESPONSE_HEAD_BYTES, response_frame
from kafka_quotas.wire.proxying.broker_addresses import (
    Translate,
    lengthened_varint,
    padded_tags,
    replaced_list,
    tagged_list,
    untagged_list,
)
from kafka_quotas.wire.proxying.fetch_request import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SESSIONS_SINCE

THROTTLE_SINCE: Final = 1
MAX_TAIL_BYTES: Final = 1024 * 1024
"""Longest tail that is gathered: some ten thousand brokers."""
_FETCH: Final = ApiKey.FETCH.value
_FLEXIBLE_SINCE: Final = API_TABLE[_FETCH].flexible_since
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_SESSION: Final = Struct(">hi")
_SHORTEST: Final = 17
"""Frame length of a Fetch response without topics: correlation id, throttle time, error, session, and three zeros."""
_NO_BROKERS: Final = b"\1"
_NO_RECORDS: Final = b"\1\1"
"""No records and no acquired ranges."""


def charged_bytes(api_key: int, api_version: int, buffer: Buffer, start: int, frame_length: int) -> int | None:
    """Return the bytes that the response at `start` counts, None if more bytes are needed.

    Source:
        `KafkaApis.handleFetchRequest` charges every response, `processShareFetchResponse` those without an error as a
        whole (4.3.1).
    """
    if api_key != _FETCH:
        error = error_code(api_key, api_version, buffer, start)
        if error != 0:
            return error and 0
    # The charge excludes the header's tag section, which is one byte because no header tag exists. A broker excludes
    # the few bytes of new leaders' addresses as well.
    return frame_length - 1 if api_key != _FETCH or api_version >= _FLEXIBLE_SINCE else frame_length


def error_code(api_key: int, api_version: int, buffer: Buffer, start: int) -> int | None:
    """Return the error of the response at `start` as a whole (0: none), or None if more bytes are needed."""
    if api_key == _FETCH:
        result = fetch_result(api_version, buffer, start)
        return None if result is None else result[0]
    offset = start + RESPONSE_HEAD_BYTES + 1 + 4  # no header tags, the throttle time
    if len(buffer) < offset + _INT16.size:
        return None
    code: int = _INT16.unpack_from(buffer, offset)[0]
    return code


def fetch_result(api_version: int, buffer: Buffer, start: int) -> tuple[int, int] | None:
    """Return error code and session of the Fetch response at `start`, or None if more bytes are needed.

    Both are of the response as a whole. Versions before sessions give (0, `NO_SESSION`).
    """
    if api_version < SESSIONS_SINCE:
        return 0, NO_SESSION
    # Error code and session follow the throttle time of 4 bytes.
    offset = start + RESPONSE_HEAD_BYTES + (api_version >= _FLEXIBLE_SINCE) + 4
    if len(buffer) < offset + _SESSION.size:
        return None
    code, session_id = _SESSION.unpack_from(buffer, offset)
    return code, session_id


def answered_session(session_id: int, epoch: int) -> int:
    """Return the session that an empty response names, by the session and epoch of the request."""
    # A fetch of all partitions gets no session, so that the client repeats it in full (KIP-227).
    return NO_SESSION if epoch in (INITIAL_EPOCH, FINAL_EPOCH) else session_id


def empty_fetch_response(
    api_version: int, correlation_id: int, *, session_id: int, throttle_ms: int, error: int = 0
) -> bytes:
    """Return a Fetch response without data, with throttle time and error if the version has them."""
    # Before sessions no error is of the response as a whole, only of partitions.
    fields = fields_of(
        api_version, (THROTTLE_SINCE, _INT32.pack(throttle_ms)), (SESSIONS_SINCE, _SESSION.pack(error, session_id))
    )
    # No topics, and in flexible versions no tagged fields.
    after = b"\1\0" if api_version >= _FLEXIBLE_SINCE else bytes(4)
    return response_frame(_FETCH, api_version, correlation_id, *fields, after)


def refused_share_fetch(correlation_id: int, *, throttle_ms: int, error: int) -> bytes:
    """Return the frame of a ShareFetch response that refuses the request with an error code."""
    # After the error: no message, no lock duration, no topics, no brokers, no tagged fields.
    body = _INT32.pack(throttle_ms) + _INT16.pack(error) + b"\0" + bytes(4) + b"\1\1\0"
    share = ApiKey.SHARE_FETCH
    return response_frame(share, API_TABLE[share].flexible_since, correlation_id, body)


def names_no_brokers(api_key: int, buffer: Buffer, start: int, end: int) -> bool:
    """Return whether the whole response from `start` to `end` certainly names no brokers, as most do."""
    # A ShareFetch without brokers ends with an empty list and an empty tag section, with brokers with two tag sections.
    if api_key != _FETCH:
        return buffer[end - 2 : end] == b"\1\0"
    # A Fetch without brokers ends with the empty tag sections of partition, topic and body: three zeros. With brokers
    # it would end with a port, a rack without zeros and a tag section, so three zeros could only follow the two upper
    # bytes of the port.
    if end - start == _SHORTEST + 4:
        return True
    return buffer[end - 3 : end] == b"\0\0\0" and buffer[end - 6 : end - 4] != b"\0\0"


_Steps: TypeAlias = Generator[int, int, None]
"""Yields the number of bytes before the next varint, and is sent its value; at last `~` of those before the tail."""
_MARK: Final = 1 << 40
"""Added to the number of bytes before records, and before the tag section after them."""
_MAX_SHIFT: Final = 7 * (MAX_VARINT_BYTES - 1)


def _tagged(count: int) -> Generator[int, int, int]:
    """Yield the steps over the fields of a tag section, and return the bytes before what follows it."""
    left = 0
    for _ in range(count):
        yield left
        left = yield 0
    return left


def _fetch_steps() -> _Steps:
    left = yield from _tagged((yield RESPONSE_HEAD_BYTES))
    topics = yield left + 10  # throttle time, error and session
    left = 0
    for _ in range(topics - 1):
        partitions = yield left + 16  # the topic's id
        left = 0
        for _ in range(partitions - 1):
            # Transactions that were aborted, of clients that read committed records only (KIP-98).
            aborted = yield left + 30
            left = 0
            for _ in range(aborted - 1):
                left = yield from _tagged((yield left + 16))
            records = yield left + 4  # the preferred replica
            tags = yield records - 1 if records else 0
            # Most sections are empty, and this is done for every partition.
            left = (yield from _tagged(tags)) if tags else 0
        left = yield from _tagged((yield left))
    yield ~left


def _share_fetch_steps(mark: int = 0) -> _Steps:
    left = yield from _tagged((yield RESPONSE_HEAD_BYTES))
    left = max((yield left + 6) - 1, 0)  # throttle time and error, then a message
    topics = yield left + 4  # how long acquired records are locked
    left = 0
    for _ in range(topics - 1):
        partitions = yield left + 16  # the topic's id: no version names topics
        left = 0
        for _ in range(partitions - 1):
            left = max((yield left + 6) - 1, 0)  # index and error, then a message
            left = max((yield left + 2) - 1, 0)  # error of acknowledgements, then a message
            left = yield from _tagged((yield left + 8))  # leader and its epoch
            left = max((yield mark + left) - 1, 0)
            ranges = yield left
            left = 0
            for _ in range(ranges - 1):
                left = yield from _tagged((yield left + 18))  # first and last offset, count of deliveries
            left = yield from _tagged((yield mark + left))
        left = yield from _tagged((yield left))
    yield ~left


class _Walk:
    """A walk from one varint to the next, at any chunk boundaries, fed the frame from its length field on.

    All other fields have a fixed size, or the size in a varint.
    """

    __slots__ = ("_is_at_tail", "_send", "_shift", "_skip", "_value")

    def __init__(self, steps: _Steps) -> None:
        self._skip = next(steps)
        self._send = steps.send
        self._value = self._shift = 0
        self._is_at_tail = False

    def _continues(self, byte: int) -> bool:
        """Add a byte to a varint, which may be split between two chunks, and return whether more bytes follow."""
        self._value |= (byte & 0x7F) << self._shift
        if byte < 0x80:
            self._shift = 0
            return False
        self._shift += 7
        if self._shift > _MAX_SHIFT:
            raise ProtocolError("a variable-length integer holds more than 32 bits")
        return True


class TailFinder(_Walk):
    """A streaming search for the end of a response that may name brokers.

    That is the tag section of a Fetch response's body, the list of brokers and what follows it in a ShareFetch.
    """

    __slots__ = ("_is_fetch", "_left")

    def __init__(self, api_key: int, frame_length: int) -> None:
        self._is_fetch = api_key == _FETCH
        super().__init__(_fetch_steps() if self._is_fetch else _share_fetch_steps())
        self._left = frame_length + 4

    def find(self, chunk: memoryview, start: int, end: int) -> int | None:
        """Return the offset in the next piece, `chunk[start:end]`, or just after it, where the tail starts.

        None if that is in a later piece, or the tail of a Fetch is one zero, as it is without any tagged field, and in
        this one.
        """
        position = start + self._skip
        while position < end and not self._is_at_tail:
            value = chunk[position]
            position += 1
            if value >= 0x80 or self._shift:
                if self._continues(value):
                    continue
                value, self._value = self._value, 0
            step = self._send(value)
            if step < 0:
                self._is_at_tail, step = True, ~step
            position += step
        # The tail may start where this piece ends: then it is all in the next one.
        if self._is_at_tail and position <= end:
            tail_bytes = self._left - (position - start)
            if self._is_fetch and tail_bytes == 1 and position < end and not chunk[position]:
                return None
            if not 0 < tail_bytes <= MAX_TAIL_BYTES:
                raise ProtocolError(f"a fetch response ends with {tail_bytes} bytes of brokers and tagged fields")
            return position
        self._skip = position - end
        self._left -= end - start
        return None


class WithoutRecords(_Walk):
    """A streaming filter that drops the records of a ShareFetch response and their acquired ranges."""

    __slots__ = ("_is_marked", "_keeps")

    def __init__(self) -> None:
        super().__init__(_share_fetch_steps(_MARK))
        self._keeps = True
        self._is_marked = False

    def keep(self, chunk: memoryview, start: int, end: int) -> bytes:
        """Return the kept parts of the next piece, `chunk[start:end]`."""
        kept: list[Buffer] = []
        kept_from, position = start, start + self._skip
        while not self._is_at_tail:
            if self._is_marked and position <= end:
                if self._keeps:
                    kept += (chunk[kept_from:position], _NO_RECORDS)
                kept_from = position
                self._keeps, self._is_marked = not self._keeps, False
            if position >= end:
                break
            value = chunk[position]
            position += 1
            if self._continues(value):
                continue
            value, self._value = self._value, 0
            step = self._send(value)
            self._is_at_tail, self._is_marked = step < 0, step >= _MARK
            position += step % _MARK
        if self._keeps:
            kept.append(chunk[kept_from:end])
        self._skip = position - end
        return b"".join(kept)


def shortened(frame: Buffer) -> bytearray:
    """Return a frame that was kept in part, with its new length."""
    return bytearray(framed(bytes(frame[4:])))


def rewrite_tail(api_key: int, api_version: int, tail: Buffer, translate: Translate) -> bytes:
    """Return the tail of a response at its length, with the brokers' addresses translated or left out."""
    rewrite = _rewrite_fetch_tail if api_key == _FETCH else _rewrite_share_fetch_tail
    return rewrite(api_version, tail, translate)


def _rewrite_fetch_tail(api_version: int, tail: Buffer, translate: Translate) -> bytes:
    found = tagged_list(ApiKey.FETCH, api_version, tail, 0)
    if found is None or not found.places:
        return bytes(tail)
    content = replaced_list(tail, found, translate)
    # Field 0 comes first in its section (KIP-482), so all others follow it.
    count, _ = read_unsigned_varint(tail, 0, len(tail))
    others = bytes(tail[found.content_end :])
    field = b"\0" + encode_unsigned_varint(len(content)) + content
    gap = len(tail) - len(encode_unsigned_varint(count)) - len(field) - len(others)
    # The response's length has gone out: longer addresses don't fit, so padding replaces the brokers.
    if gap < 0:
        return padded_tags(count - 1, others, len(tail))
    if gap <= 2:  # too short for a field: the size can be written with more bytes than it needs
        size = lengthened_varint(len(content), len(encode_unsigned_varint(len(content))) + gap)
        return encode_unsigned_varint(count) + b"\0" + size + content + others
    return padded_tags(count, field + others, len(tail))


def _rewrite_share_fetch_tail(api_version: int, tail: Buffer, translate: Translate) -> bytes:
    found = untagged_list(ApiKey.SHARE_FETCH, api_version, tail, 0)
    if not found.places:
        return bytes(tail)
    content = replaced_list(tail, found, translate)
    count_bytes = found.content_start
    tag_count, tags_start = read_unsigned_varint(tail, found.content_end, len(tail))
    tags, section = bytes(tail[tags_start:]), bytes(tail[found.content_end :])
    gap = len(tail) - count_bytes - len(content) - len(section)
    if gap < 0:  # as above
        return _NO_BROKERS + padded_tags(tag_count, tags, len(tail) - len(_NO_BROKERS))
    # An array has no room for unknown bytes, so what is left over goes into the count or the tags after it.
    count, _ = read_unsigned_varint(tail, 0, len(tail))
    if gap <= 2:
        return lengthened_varint(count, count_bytes + gap) + content + section
    head = encode_unsigned_varint(count) + content
    return head + padded_tags(tag_count, tags, len(tail) - len(head))
