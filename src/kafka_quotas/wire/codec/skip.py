"""Functions that skip fields of the Kafka protocol without decoding them.

A *layout* is a tuple of steps: an int is a number of bytes of fixed size, a function skips one field of variable size.
Every step takes `(buffer, offset, end)` and returns the offset after its field. `end` is the end of the message and
never beyond the buffer. No step reads a byte at or after it: it raises `TruncatedError`, and `ProtocolError` if the
bytes can't be its field. Fixed sizes are added without a check, so `skip` checks its result, and a caller can safely
read at that offset.

**Source:** KIP-482 (compact types, tagged fields); `org.apache.kafka.common.protocol.types.Type`, Kafka 4.1.
"""

from collections.abc import Callable, Generator
from functools import cache
from struct import Struct
from typing import Final, TypeAlias, TypeVar

from kafka_quotas.core.errors import ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview
Skip: TypeAlias = Callable[[Buffer, int, int], int]
Layout: TypeAlias = tuple[int | Skip, ...]

T = TypeVar("T")

SLICE: Final = 100
"""Elements of a long array that are read at once: a third of a millisecond, while no client is served."""
MAX_TAGS: Final = 8
"""Most tagged fields of a structure that is read. Kafka defines four at most, and each costs as much as an element."""
MAX_VARINT_BYTES: Final = 5
"""An unsigned varint of the protocol holds 32 bits, seven to a byte."""
MAX_STRING_BYTES: Final = 2**15 - 1
"""Longest string in either form. It keeps a false length from making anyone wait for a whole frame."""

_INT32: Final = Struct(">i")


class TruncatedError(ProtocolError):
    """The end of the bytes inside a field: more are needed, or the message is broken."""

    def __init__(self, message: str = "the message ends inside a field") -> None:
        super().__init__(message)


def read_unsigned_varint(buffer: Buffer, offset: int, end: int) -> tuple[int, int]:
    """Return the varint at `offset` and the offset after it."""
    if offset < end and (first := buffer[offset]) < 0x80:
        return first, offset + 1
    value = 0
    for index in range(MAX_VARINT_BYTES):
        if offset + index >= end:
            raise TruncatedError
        byte = buffer[offset + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                break
            return value, offset + index + 1
    raise ProtocolError("a variable-length integer holds more than 32 bits")


def encode_unsigned_varint(value: int) -> bytes:
    """Return a number of at most 32 bits as a varint."""
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_int16(buffer: Buffer, offset: int, end: int) -> int:
    """Return the signed 16-bit integer at `offset`."""
    if offset + 2 > end:
        raise TruncatedError
    value = buffer[offset] << 8 | buffer[offset + 1]
    return value - 0x1_0000 if value & 0x8000 else value


def read_int32(buffer: Buffer, offset: int, end: int) -> int:
    """Return the signed 32-bit integer at `offset`."""
    if offset + 4 > end:
        raise TruncatedError
    value: int = _INT32.unpack_from(buffer, offset)[0]
    return value


def _end_of(offset: int, length: int, end: int) -> int:
    if length < 0:
        if length != -1:
            raise ProtocolError(f"a field has the length {length}")
        return offset
    if offset + length > end:
        raise TruncatedError
    return offset + length


def string_span(buffer: Buffer, offset: int, end: int) -> tuple[int, int]:
    """Return start and end of the text of a string, with the end before the start for null."""
    length = read_int16(buffer, offset, end)
    after = _end_of(offset + 2, length, end)
    return offset + 2, after if length >= 0 else offset + 1


def compact_span(buffer: Buffer, offset: int, end: int) -> tuple[int, int]:
    """Return the span of the content of a compact string or bytes (null: the end is before the start)."""
    if offset < end and (length := buffer[offset]) < 0x80:
        start = offset + 1
    else:
        length, start = read_unsigned_varint(buffer, offset, end)
    after = start + length - 1
    if after > end:
        raise TruncatedError
    return start, after


def bytes_span(buffer: Buffer, offset: int, end: int) -> tuple[int, int]:
    """Return start and end of the content of bytes or records, with the end before the start for null."""
    length = read_int32(buffer, offset, end)
    after = _end_of(offset + 4, length, end)
    return offset + 4, after if length >= 0 else offset + 3


def string(buffer: Buffer, offset: int, end: int) -> int:
    """Return the offset after a string, nullable or not."""
    return _end_of(offset + 2, read_int16(buffer, offset, end), end)


def compact_string(buffer: Buffer, offset: int, end: int) -> int:
    """Return the offset after a compact string, nullable or not."""
    if offset < end and (length := buffer[offset]) < 0x80:
        # One byte holds length + 1, or 0 for null: the field takes that many bytes, and null takes one.
        offset += length or 1
        if offset > end:
            raise TruncatedError
        return offset
    length, start = read_unsigned_varint(buffer, offset, end)
    if length > MAX_STRING_BYTES + 1:
        raise ProtocolError(f"a string has the length {length - 1}")
    return _end_of(start, length - 1, end)


def compact_bytes(buffer: Buffer, offset: int, end: int) -> int:
    """Return the offset after compact bytes or records, nullable or not."""
    length, start = read_unsigned_varint(buffer, offset, end)
    return _end_of(start, length - 1, end)


def bytes_field(buffer: Buffer, offset: int, end: int) -> int:
    """Return the offset after bytes or records, nullable or not."""
    return _end_of(offset + 4, read_int32(buffer, offset, end), end)


def tags(buffer: Buffer, offset: int, end: int) -> int:
    """Return the offset after a section of at most `MAX_TAGS` tagged fields, known and unknown alike."""
    if offset < end and not buffer[offset]:
        return offset + 1
    count, offset = read_unsigned_varint(buffer, offset, end)
    if count > MAX_TAGS:
        raise ProtocolError(f"a structure has {count} tagged fields where {MAX_TAGS} may be")
    for _ in range(count):
        _, offset = read_unsigned_varint(buffer, offset, end)
        size, offset = read_unsigned_varint(buffer, offset, end)
        offset = _end_of(offset, size, end)
    return offset


def skip(layout: Layout, buffer: Buffer, offset: int, end: int) -> int:
    """Return the offset after all fields of a layout."""
    for step in layout:
        offset = offset + step if isinstance(step, int) else step(buffer, offset, end)
    if offset > end:
        raise TruncatedError
    return offset


CountOf: TypeAlias = Callable[[Buffer, int, int], tuple[int, int]]
"""Returns the number of elements of an array and the offset of the first."""

_ARRAYS: Final[dict[Skip, tuple[CountOf, Layout, bool]]] = {}
"""The arrays that `skipping` reads in slices, by the step over them: an element, and whether it has arrays itself."""


def skipping(layout: Layout, buffer: Buffer, offset: int, end: int) -> Generator[None, None, int]:
    """Do what `skip` does, `SLICE` elements at a time."""
    for step in layout:
        if isinstance(step, int):
            offset += step
        elif step not in _ARRAYS:
            offset = step(buffer, offset, end)
        else:
            count_of, element, has_arrays = _ARRAYS[step]
            count, offset = count_of(buffer, offset, end)
            for index in range(count):
                if has_arrays:
                    offset = yield from skipping(element, buffer, offset, end)
                else:
                    offset = skip(element, buffer, offset, end)
                if index % SLICE == SLICE - 1:
                    yield
    if offset > end:
        raise TruncatedError
    return offset


def finished(work: Generator[None, None, T]) -> T:
    """Do sliced work at once and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def array_count(buffer: Buffer, offset: int, end: int) -> tuple[int, int]:
    """Return the number of elements of an array (0 for null) and the offset of the first."""
    count = read_int32(buffer, offset, end)
    if count < -1:
        raise ProtocolError(f"an array has {count} elements")
    return max(count, 0), offset + 4


def compact_array_count(buffer: Buffer, offset: int, end: int) -> tuple[int, int]:
    """Return the number of elements of a compact array (0 for null) and the offset of the first."""
    count, offset = read_unsigned_varint(buffer, offset, end)
    return max(count - 1, 0), offset


def _elements(count_of: CountOf, element: Layout) -> Skip:
    is_compact = count_of is compact_array_count
    # Each step with the fixed size before it, and the fixed size after the last one: this suits a tight loop.
    steps, size = list[tuple[int, Skip]](), 0
    for each in element:
        if isinstance(each, int):
            size += each
        else:
            steps.append((size, each))
            size = 0
    if not steps:

        def skip_fixed(buffer: Buffer, offset: int, end: int) -> int:
            if is_compact and offset < end and 0 < (count := buffer[offset]) < 0x80:
                return _end_of(offset + 1, (count - 1) * size, end)
            count, offset = count_of(buffer, offset, end)
            return _end_of(offset, count * size, end)

        return skip_fixed
    pairs = tuple(steps)
    # A partition without an error has nothing but empty fields at its end: no errors, no message and no tags. One
    # comparison is several times faster than a step per field.
    plain_start, plain = 0, b""
    if not size and not any(fixed for fixed, _ in pairs[1:]) and all(step in _FINDS_NOTHING for _, step in pairs):
        plain_start, plain = pairs[0][0], b"".join(_FINDS_NOTHING[step] for _, step in pairs)
    plain_size = plain_start + len(plain)

    def skip_elements(buffer: Buffer, offset: int, end: int) -> int:
        # Short arrays of the compact form are the rule: their count is one byte, and 1 stands for none.
        if is_compact and offset < end and (count := buffer[offset]) < 0x80:
            count -= 1
            offset += 1
        else:
            count, offset = count_of(buffer, offset, end)
        # Every element has a step, which checks `end`: a false count of elements ends there.
        for _ in range(count):
            plain_end = offset + plain_size
            if plain and plain_end <= end and buffer[offset + plain_start : plain_end] == plain:
                offset = plain_end
                continue
            for fixed, step in pairs:
                offset = step(buffer, offset + fixed, end)
            offset += size
        return offset

    _ARRAYS[skip_elements] = (count_of, element, any(step in _ARRAYS for step in element))
    return skip_elements


# Kept, for messages are read by layouts that are put together for each of them: there are some hundred in all.
@cache
def array(*element: int | Skip) -> Skip:
    """Return the step over an array with elements of this layout, nullable or not."""
    return _elements(array_count, element)


@cache
def compact_array(*element: int | Skip) -> Skip:
    """Return the step over a compact array with elements of this layout, nullable or not."""
    skip = _elements(compact_array_count, element)
    _FINDS_NOTHING[skip] = b"\1"
    return skip


_FINDS_NOTHING: Final[dict[Skip, bytes]] = {compact_string: b"\0", compact_bytes: b"\0", tags: b"\0"}
"""The bytes of a field that is null or empty, for the steps over compact forms."""
