"""The end of a Fetch response, where from version 16 on the addresses of new leaders are, found while it passes.

A Fetch response can be 2 GB long and its addresses come last, behind the records. So nothing is gathered but that end:
`FetchTail` steps over records and finds it, however the response is cut, and `rewrite_tail` replaces the addresses
without changing the length, which has gone out already. Where ours are shorter an unknown tagged field fills the gap;
where they are longer the addresses are left out, and the client asks for Metadata as it does with an older broker.

**Source:** KIP-951; `FetchResponse.json` (versions 16 to 18), Kafka 4.1.
"""

from collections.abc import Generator
from typing import Final, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.addresses import Translate, replaced_list, tagged_list
from kafka_quotas.wire.fetch_request import FETCH
from kafka_quotas.wire.walk import Buffer, encode_unsigned_varint, read_unsigned_varint

NODE_ENDPOINTS_SINCE: Final = 16
MAX_TAIL_BYTES: Final = 1024 * 1024
"""Longest tail that is gathered: some ten thousand brokers."""
PADDING_TAG: Final = 9999
"""A tagged field that no message defines; readers pass over it."""

_SHORTEST: Final = 17
"""Frame length of a response without topics: correlation id, no tags, throttle time, error, session, none, no tags."""
_BODY_HEAD: Final = 10
_PARTITION_HEAD: Final = 30
_ABORTED: Final = 16
_TOPIC_ID: Final = 16
_REPLICA: Final = 4
_MAX_SHIFT: Final = 28

_Steps: TypeAlias = Generator[int, int, int]
"""Yields how many bytes come before the next varint and is sent that; returns how many come before the tail."""


def is_bare(buffer: Buffer, start: int, end: int) -> bool:
    """Return whether the whole response from `start` to `end` surely names no brokers; most do not.

    It ends with the empty tag sections of partition, topic and body then: three zeros. With brokers it would end with
    a port, a rack without zeros and a tag section: three zeros then only behind the two upper ones of the port.
    """
    if end - start == _SHORTEST + 4:
        return True
    return buffer[end - 3 : end] == b"\0\0\0" and buffer[end - 6 : end - 4] != b"\0\0"


class FetchTail:
    """Finds where the tag section of a response's body starts; is fed the frame from its length field on."""

    __slots__ = ("_is_ending", "_left", "_shift", "_skip", "_steps", "_value")

    def __init__(self, frame_length: int) -> None:
        self._left = frame_length + 4
        self._steps = _response()
        self._skip = next(self._steps)
        self._value = self._shift = 0
        self._is_ending = False

    def find(self, piece: memoryview) -> int | None:
        """Return the offset in this piece, or just behind it, where the tail starts; None if it is in a later one.

        *Raises* `ProtocolError` if this is no Fetch response, or its tail is longer than `MAX_TAIL_BYTES`.
        """
        position, end = 0, len(piece)
        while True:
            step = min(self._skip, end - position)
            position += step
            self._skip -= step
            if self._skip:
                break
            if self._is_ending:
                return self._found(position)
            if position == end:
                break
            byte = piece[position]
            position += 1
            self._value |= (byte & 0x7F) << self._shift
            if byte >= 0x80:
                self._shift += 7
                if self._shift > _MAX_SHIFT:
                    raise ProtocolError("a variable-length integer holds more than 32 bits")
                continue
            self._step()
        self._left -= end
        return None

    def _step(self) -> None:
        """Nothing; the varint that was read is taken, and it is known how far the next one is."""
        value, self._value, self._shift = self._value, 0, 0
        try:
            self._skip = self._steps.send(value)
        except StopIteration as ending:
            self._is_ending = True
            self._skip = ending.value

    def _found(self, position: int) -> int:
        if self._left - position > MAX_TAIL_BYTES:
            raise ProtocolError(f"a Fetch response ends with {self._left - position} bytes of tagged fields")
        return position


def rewrite_tail(api_version: int, tail: Buffer, translate: Translate) -> bytes:
    """Return the tag section of a response's body with the brokers' addresses translated, as long as it was.

    *Raises* `ProtocolError` if it is none.
    """
    found = tagged_list(FETCH, api_version, tail, 0)
    if found is None or not found.places:
        return bytes(tail)
    content = replaced_list(tail, found, translate, is_compact=True)
    count, _ = read_unsigned_varint(tail, 0, len(tail))
    others = bytes(tail[found.content_end :])
    field = b"\0" + encode_unsigned_varint(len(content)) + content
    gap = len(tail) - len(encode_unsigned_varint(count)) - len(field) - len(others)
    if gap < 0:
        return _padded(count - 1, b"", others, len(tail))
    if gap <= 2:  # too short for a field: the size can be written with more bytes than it needs
        size = _lengthened(len(content), len(encode_unsigned_varint(len(content))) + gap)
        return encode_unsigned_varint(count) + b"\0" + size + content + others
    return _padded(count, field, others, len(tail))


def _padded(count: int, field: bytes, others: bytes, length: int) -> bytes:
    """Return a tag section of this length: `count` fields, which are `field` and `others`, and one that fills it."""
    head = encode_unsigned_varint(count + 1) + field + others
    tag = encode_unsigned_varint(max(PADDING_TAG, _last_tag(others) + 1))
    gap = length - len(head) - len(tag)
    size_bytes = len(encode_unsigned_varint(max(gap - 1, 0)))
    if gap < size_bytes:
        raise ProtocolError("the addresses in a Fetch response can't be replaced")
    return head + tag + _lengthened(gap - size_bytes, size_bytes) + bytes(gap - size_bytes)


def _last_tag(fields: bytes) -> int:
    """Return the highest tag of some tagged fields, -1 if there is none."""
    tag, offset = -1, 0
    while offset < len(fields):
        tag, offset = read_unsigned_varint(fields, offset, len(fields))
        size, offset = read_unsigned_varint(fields, offset, len(fields))
        offset += size
    return tag


def _lengthened(value: int, size: int) -> bytes:
    """Return a varint of `size` bytes, at least as many as the value needs."""
    groups = [value >> 7 * index & 0x7F | 0x80 for index in range(size)]
    groups[-1] &= 0x7F
    return bytes(groups)


def _response() -> _Steps:
    pending = yield from _tags(8)
    topics = yield pending + _BODY_HEAD
    pending = 0
    for _ in range(topics - 1):
        partitions = yield pending + _TOPIC_ID
        pending = 0
        for _ in range(partitions - 1):
            pending = yield from _partition(pending)
        pending = yield from _tags(pending)
    return pending


def _partition(pending: int) -> _Steps:
    aborted = yield pending + _PARTITION_HEAD
    pending = 0
    for _ in range(aborted - 1):
        pending = yield from _tags(pending + _ABORTED)
    records = yield pending + _REPLICA
    return (yield from _tags(max(records - 1, 0)))


def _tags(pending: int) -> _Steps:
    count = yield pending
    pending = 0
    for _ in range(count):
        yield pending
        pending = yield 0
    return pending
