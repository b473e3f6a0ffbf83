"""A ShareFetch response: the bytes to charge, the brokers at its end, and the rest of a throttled one.

The response can be 2 GB long and the addresses of new leaders are at its end, after the records. So only that end is
buffered and rewritten at its length, as with Fetch (`fetch_response`).

A broker that throttles a share fetch has acquired its records already: the response has no records and no acquired
ranges, only the results of the acknowledgements in the request. `WithoutRecords` makes the same response from the
broker's, without buffering a record.

**Source:** KIP-932; `ShareFetchResponse.json`, `ShareFetchResponse.sizeOf`, `KafkaApis.processShareFetchResponse`,
`ShareSessionContext.throttleResponse`, Kafka 4.3.1.
"""

from collections.abc import Generator
from struct import Struct
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import framed
from kafka_quotas.wire.codec.skip import Buffer, encode_unsigned_varint, read_unsigned_varint
from kafka_quotas.wire.passing.broker_addresses import (
    Translate,
    lengthened_varint,
    padded_tags,
    replaced_list,
    untagged_list,
)
from kafka_quotas.wire.protocol.header import RESPONSE_HEAD_BYTES

MAX_TAIL_BYTES: Final = 1024 * 1024
"""Longest tail that is gathered: some ten thousand brokers."""

_BODY_START: Final = RESPONSE_HEAD_BYTES + 1
"""Where the body starts: no version of the header has a tagged field."""
_INT16: Final = Struct(">h")
_NO_BROKERS: Final = b"\1"
_EMPTY: Final = b"\1\1"
"""No records and no acquired ranges."""
_MAX_SHIFT: Final = 28
_VARINT, _TAIL, _RECORDS_FOLLOW, _RECORDS_END = -1, -2, -3, -4
"""What a step of `_fields` is, if it is no number of bytes to step over."""

_StepGenerator = Generator[int, int, None]


def charged_bytes(frame_length: int) -> int:
    """Return the bytes that a response without an error counts, by the value of its length field."""
    # The size of the body and four bytes more, as in `ShareFetchResponse.sizeOf`. A broker excludes the few bytes of
    # new leaders' addresses as well.
    return frame_length - 1


def error_code(buffer: Buffer, start: int) -> int | None:
    """Return the error code of the response at `start` (0: none), or None if more bytes are needed."""
    offset = start + _BODY_START + 4
    if len(buffer) < offset + 2:
        return None
    code: int = _INT16.unpack_from(buffer, offset)[0]
    return code


def refused_share_fetch(correlation_id: int, *, throttle_ms: int, error: int) -> bytes:
    """Return the frame of a response that refuses the request with an error code."""
    head = correlation_id.to_bytes(4, "big") + b"\0" + throttle_ms.to_bytes(4, "big")
    # After the error: no message, no lock duration, no topics, no brokers, no tagged fields.
    return framed(head + _INT16.pack(error) + b"\0" + bytes(4) + b"\1\1\0")


def names_no_brokers(buffer: Buffer, end: int) -> bool:
    """Return whether the whole response up to `end` certainly names no brokers, as most do.

    Such a response ends with an empty list and an empty tag section. With brokers it would end with two tag sections.
    """
    return buffer[end - 2 : end] == b"\1\0"


class _Steps:
    """The steps over a response's fields at any chunk boundaries, fed the frame from its length field on."""

    __slots__ = ("_fields", "_left", "_shift", "_skip", "_step", "_value")

    def __init__(self, frame_length: int) -> None:
        self._left = frame_length + 4
        self._fields = _fields()
        self._value = self._shift = 0
        self._step = next(self._fields)
        self._skip = max(self._step, 0)

    def _next(self, value: int = 0) -> None:
        self._step = self._fields.send(value)
        self._skip = max(self._step, 0)

    def _advance(self, chunk: memoryview, position: int, end: int) -> int:
        """Return the offset that the current step reaches, and start the next step if this one is complete."""
        if self._step >= 0:
            passed = min(self._skip, end - position)
            self._skip -= passed
            if not self._skip:
                self._next()
            return position + passed
        # A varint of several bytes may be split between two chunks.
        byte = chunk[position]
        self._value |= (byte & 0x7F) << self._shift
        self._shift += 7
        if byte < 0x80:
            value, self._value, self._shift = self._value, 0, 0
            self._next(value)
        elif self._shift > _MAX_SHIFT:
            raise ProtocolError("a variable-length integer holds more than 32 bits")
        return position + 1


class ShareFetchTail(_Steps):
    """A streaming search for the list of brokers, which the body's tag section follows."""

    __slots__ = ()

    def find(self, chunk: memoryview, start: int, end: int) -> int | None:
        """Return the offset in the next piece, `chunk[start:end]`, or just after it, where the tail starts.

        None if that is in a later piece.

        Raises:
            ProtocolError: This is no ShareFetch response, or its tail is longer than `MAX_TAIL_BYTES`.
        """
        position = start
        while True:
            # The list of brokers is the last field before the tags (KIP-951), so the rest of the frame is the tail.
            if self._step == _TAIL:
                tail_bytes = self._left - (position - start)
                if not 0 < tail_bytes <= MAX_TAIL_BYTES:
                    raise ProtocolError(f"a ShareFetch response ends with {tail_bytes} bytes of brokers")
                return position
            if self._step in (_RECORDS_FOLLOW, _RECORDS_END):
                self._next()
            elif position == end:
                break
            else:
                position = self._advance(chunk, position, end)
        self._left -= end - start
        return None


class WithoutRecords(_Steps):
    """A streaming filter that drops the records of a response and the ranges acquired with them."""

    __slots__ = ("_keeps",)

    def __init__(self, frame_length: int) -> None:
        super().__init__(frame_length)
        self._keeps = True

    def keep(self, chunk: memoryview, start: int, end: int) -> bytes:
        """Return the kept parts of the next piece, `chunk[start:end]`.

        Raises:
            ProtocolError: The frame is no ShareFetch response.
        """
        kept: list[Buffer] = []
        position = start
        while True:
            if self._step == _RECORDS_FOLLOW:
                self._keeps = False
                # A throttled response has the partition's acknowledgement results only.
                kept.append(_EMPTY)
                self._next()
            elif self._step == _RECORDS_END:
                self._keeps = True
                self._next()
            elif position == end:
                return b"".join(kept)
            # Only records and their ranges are dropped: brokers and tags pass.
            elif self._step == _TAIL:
                kept.append(chunk[position:end])
                position = end
            else:
                before, position = position, self._advance(chunk, position, end)
                if self._keeps:
                    kept.append(chunk[before:position])


def shortened(frame: Buffer) -> bytearray:
    """Return a frame that was kept in part, with its new length."""
    return bytearray(framed(bytes(frame[4:])))


def rewrite_share_tail(api_version: int, tail: Buffer, translate: Translate) -> bytes:
    """Return the list of brokers and the tag section after it at their length, with translated addresses.

    If the new addresses are longer the brokers are left out, and the client asks for Metadata.

    Raises:
        ProtocolError: The tail is no such list and section.
    """
    found = untagged_list(ApiKey.SHARE_FETCH, api_version, tail, 0)
    if not found.places:
        return bytes(tail)
    content = replaced_list(tail, found, translate)
    count_bytes = found.content_start
    tag_count, tags_start = read_unsigned_varint(tail, found.content_end, len(tail))
    tags, section = bytes(tail[tags_start:]), bytes(tail[found.content_end :])
    gap = len(tail) - count_bytes - len(content) - len(section)
    # The response's length has gone out: longer addresses don't fit, so padding replaces the brokers.
    if gap < 0:
        return _NO_BROKERS + padded_tags(tag_count, tags, len(tail) - len(_NO_BROKERS))
    # An array has no room for unknown bytes, so what is left over goes into the count or the tags after it.
    count, _ = read_unsigned_varint(tail, 0, len(tail))
    if gap <= 2:  # too short for a field: the count can be written with more bytes than it needs
        return lengthened_varint(count, count_bytes + gap) + content + section
    head = encode_unsigned_varint(count) + content
    return head + padded_tags(tag_count, tags, len(tail) - len(head))


def _fields() -> _StepGenerator:
    """Yield the steps to the list of brokers: a number of bytes to step over, or one of the codes above.

    After `_VARINT` the value is sent, after everything else 0.
    """
    yield RESPONSE_HEAD_BYTES
    yield from _tags()
    yield 6  # throttle time and error
    yield from _text()
    yield 4  # how long acquired records are locked
    topics = yield _VARINT
    for _ in range(topics - 1):
        yield 16  # the topic's id: no version names topics
        partitions = yield _VARINT
        for _ in range(partitions - 1):
            yield from _partition()
        yield from _tags()
    yield _TAIL


def _partition() -> _StepGenerator:
    yield 6  # index and error
    yield from _text()
    yield 2  # error of acknowledgements
    yield from _text()
    yield 8  # leader and its epoch
    yield from _tags()
    yield _RECORDS_FOLLOW
    yield from _text()
    ranges = yield _VARINT
    for _ in range(ranges - 1):
        yield 18  # first and last offset, count of deliveries
        yield from _tags()
    yield _RECORDS_END
    yield from _tags()


def _text() -> _StepGenerator:
    """Yield the steps over a string or bytes, which may be null."""
    size = yield _VARINT
    if size > 1:
        yield size - 1


def _tags() -> _StepGenerator:
    count = yield _VARINT
    for _ in range(count):
        yield _VARINT
        size = yield _VARINT
        if size:
            yield size
