"""The encoding of texts, arrays and tagged fields in a version of a message: classic or compact.

Every message has one of the two encodings throughout its body, so one description of a message serves all versions.
Positions are offsets into the frame, and `end` is the end of the frame: no function reads at or after it. A topic id is
16 bytes that identify a topic besides its name (KIP-516).

**Source:** KIP-482.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.java.strings import decode_utf8
from kafka_quotas.wire.codec.frame import FRAME_LENGTH_BYTES, framed
from kafka_quotas.wire.codec.skip import (
    Buffer,
    Layout,
    Skip,
    TruncatedError,
    array,
    array_count,
    bytes_field,
    bytes_span,
    compact_array,
    compact_array_count,
    compact_bytes,
    compact_span,
    compact_string,
    encode_unsigned_varint,
    skip,
    string,
    string_span,
    tags,
)

MAX_ELEMENTS: Final = 10_000
"""The maximum number of topics, or partitions of all topics, in a request that is read whole.

Each takes 2 to 4 us, which delays all other clients. The advised limit for a broker is 4,000 partitions.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """The steps over fields in one encoding, and the bytes of some."""

    is_compact: bool
    string: Skip
    bytes_field: Skip
    array: Callable[..., Skip]
    """Makes the step over an array of plain values, from their layout."""
    tags: Layout
    """The end of each structure: a tag section, or no step."""
    no_tags: bytes
    array_count: Callable[[Buffer, int, int], tuple[int, int]]
    string_span: Callable[[Buffer, int, int], tuple[int, int]]
    bytes_span: Callable[[Buffer, int, int], tuple[int, int]]

    def structs(self, *element: int | Skip) -> Skip:
        """Return the step over an array of structures with these fields."""
        return self.array(*element, *self.tags)

    def text(self, frame: Buffer, offset: int, end: int) -> tuple[str | None, int]:
        """Return the text of a string, None for null, and the offset after it."""
        start, after = self.string_span(frame, offset, end)
        if after < start:
            return None, start
        return decode_utf8(bytes(frame[start:after])), after

    def encoded_text(self, text: str | None) -> bytes:
        """Return a string of at most 32,767 bytes, None for null."""
        content = b"" if text is None else text.encode()
        if self.is_compact:
            return encode_unsigned_varint(0 if text is None else len(content) + 1) + content
        return (-1 if text is None else len(content)).to_bytes(2, "big", signed=True) + content

    def encoded_count(self, count: int) -> bytes:
        """Return the encoded element count of an array."""
        return encode_unsigned_varint(count + 1) if self.is_compact else count.to_bytes(4, "big")


CLASSIC: Final = Encoding(
    is_compact=False,
    string=string,
    bytes_field=bytes_field,
    array=array,
    tags=(),
    no_tags=b"",
    array_count=array_count,
    string_span=string_span,
    bytes_span=bytes_span,
)
COMPACT: Final = Encoding(
    is_compact=True,
    string=compact_string,
    bytes_field=compact_bytes,
    array=compact_array,
    tags=(tags,),
    no_tags=b"\0",
    array_count=compact_array_count,
    string_span=compact_span,
    bytes_span=compact_span,
)


_TOO_MANY: Final = f"requests that have to be read as a whole may name {MAX_ELEMENTS} topics or partitions"


class ElementList(NamedTuple):
    """An array in a frame."""

    start: int
    """The offset of its count."""
    spans: tuple[tuple[int, int], ...]
    """The start and end of each element."""
    end: int
    """The offset after the last element."""


def element_list(
    form: Encoding, element: Layout, frame: Buffer, offset: int, end: int, *, at_most: int | None = None
) -> ElementList:
    """Return the spans of the elements of layout `element` in the array at `offset`, none for null.

    Raises:
        ProtocolError: More than `at_most` elements, or bytes that can't be such an array.
    """
    count, position = form.array_count(frame, offset, end)
    if at_most is not None and count > at_most:
        raise ProtocolError(f"an array has {count} elements where {at_most} may be", hint=_TOO_MANY)
    spans: list[tuple[int, int]] = []
    for _ in range(count):
        after = skip(element, frame, position, end)
        if after == position:
            raise ProtocolError("an array has elements of no bytes")
        spans.append((position, after))
        position = after
    if position > end:
        raise TruncatedError
    return ElementList(offset, tuple(spans), position)


def with_elements(form: Encoding, frame: Buffer, listed: ElementList, elements: Sequence[Buffer]) -> bytes:
    """Return the frame with these elements in place of those listed, and with its new length."""
    before = frame[FRAME_LENGTH_BYTES : listed.start]
    return framed(b"".join((before, form.encoded_count(len(elements)), *elements, frame[listed.end :])))


TopicId: TypeAlias = bytes

TOPIC_ID_BYTES: Final = 16
NO_TOPIC_ID: Final[TopicId] = bytes(TOPIC_ID_BYTES)
"""The id that means no topic."""
