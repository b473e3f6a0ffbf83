"""Frames, and the encoding of texts, arrays and tagged fields in a version of a message: classic or compact.

A frame is four bytes of length and that many bytes of content. The limits here bound memory against peers that send
garbage: a length field outside them is refused before any byte of the frame is stored.

Every message has one of the two encodings throughout its body, so one description of a message serves all versions.
Positions are offsets into the frame, and `end` is the end of the frame: no function reads at or after it. A topic id is
16 bytes that identify a topic besides its name (KIP-516).

**Source:** KIP-482.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.java import decode_utf8
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

FRAME_LENGTH_BYTES: Final = 4
MAX_REQUEST_BYTES: Final = 100 * 1024 * 1024
"""The broker's default limit (`socket.request.max.bytes`), beyond which it closes the connection."""
MAX_RESPONSE_BYTES: Final = 2**31 - 1
"""Longest response that the length field can announce. Responses are relayed piece by piece, so it needs no memory."""
MAX_GATHERED_BYTES: Final = 64 * 1024 * 1024
"""Longest response that is worth gathering to be patched as a whole: Metadata of a million partitions is 40 MB."""
MAX_UNAUTHENTICATED_BYTES: Final = 512 * 1024
"""Longest request that a broker takes before authentication (`sasl.server.max.receive.size`)."""


def checked_frame_length(buffer: Buffer, offset: int, *, limit: int) -> int | None:
    """Return the number of bytes that follow the length field at `offset`, or None if it isn't all there.

    Raises:
        ProtocolError: The length is negative or above `limit`.
    """
    field = buffer[offset : offset + FRAME_LENGTH_BYTES]
    if len(field) < FRAME_LENGTH_BYTES:
        return None
    length = int.from_bytes(field, "big", signed=True)
    if not 0 <= length <= limit:
        raise ProtocolError(
            f"a frame announces {length} bytes, {limit} are the limit", hint=_likely_protocol(bytes(field))
        )
    return length


def _likely_protocol(field: bytes) -> str | None:
    """Return the likely protocol of an absurd length, which usually comes from another one."""
    if field[:2] == b"\x16\x03":
        return "this looks like a TLS handshake on a plaintext port"
    if field in (b"GET ", b"POST", b"HEAD", b"HTTP"):
        return "this looks like HTTP"
    return None


def framed(content: bytes) -> bytes:
    """Return the frame of this content: its length in four bytes, then the content."""
    return len(content).to_bytes(FRAME_LENGTH_BYTES, "big") + content


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


_T = TypeVar("_T")


def fields_of(version: int, *fields: tuple[int, _T]) -> tuple[_T, ...]:
    """Return the steps or the bytes of the fields that a version has, each given with its first version."""
    return tuple(field for since, field in fields if version >= since)


_TOO_MANY: Final = f"requests that have to be read as a whole may name {MAX_ELEMENTS} topics or partitions"


class ElementList(NamedTuple):
    """An array in a frame."""

    start: int
    spans: tuple[tuple[int, int], ...]
    """The start and end of each element."""
    end: int


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


def in_order(order: Iterable[_T], ours: Mapping[_T, Buffer], theirs: Mapping[_T, Buffer]) -> list[Buffer]:
    """Return the elements of these keys in their order and each once, ours rather than theirs."""
    found = (ours.get(key, theirs.get(key)) for key in dict.fromkeys(order))
    return [element for element in found if element is not None]


TopicId: TypeAlias = bytes

TOPIC_ID_BYTES: Final = 16
NO_TOPIC_ID: Final[TopicId] = bytes(TOPIC_ID_BYTES)
"""The id that means no topic."""
