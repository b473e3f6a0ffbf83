"""Messages of every API and version with one array, string or tag section blown up, from kio's schemas."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, TypeAlias

from generators import kio_messages
from generators.message import FIXED_SIZES, Field, Message
from kio.static.constants import EntityType
from tests.support.frames.kio_samples import versions_of

from kafka_quotas.wire.codec.skip import encode_unsigned_varint

TAGS: Final = -1
"""The step of a path to the tag section of a structure, in place of a field's number."""
Path: TypeAlias = tuple[int, ...]
LONGEST_NAME: Final = 32_000
_MARK: Final = b"\xfe\xfdmark-it\xfc"
_DIGITS: Final = len(_MARK)


class Names(Enum):
    """What the texts of a blown-up array are."""

    MADE_UP = "made up"
    REPEATED = "repeated"
    EMPTY = "empty"
    LONG = "of 32 kB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blown:
    """One message, the place in it that is blown up, and how."""

    api_key: int
    version: int
    path: Path
    names: Names
    size: int
    most: int = 2**31
    """Most elements of the array."""


def places(message: Message) -> Iterator[Path]:
    """Yield the path to every array, string, bytes and tag section of a message."""
    yield from _places(message.untagged, is_flexible=message.is_flexible)


def _places(fields: tuple[Field, ...], *, is_flexible: bool) -> Iterator[Path]:
    for number, field in enumerate(fields):
        if field.is_array or field.kind not in (*FIXED_SIZES, "struct"):
            yield (number,)
        inner = tuple(each for each in field.fields if each.tag is None)
        for path in _places(inner, is_flexible=is_flexible) if field.kind == "struct" else ():
            yield (number, *path)
    if is_flexible:
        yield (TAGS,)


def arrays(message: Message) -> list[Path]:
    """Return the path to every array of a message."""
    return [path for path in places(message) if path[-1] != TAGS and _field_at(message.untagged, path).is_array]


def _field_at(fields: tuple[Field, ...], path: Path) -> Field:
    field = fields[path[0]]
    inner = tuple(each for each in field.fields if each.tag is None)
    return field if len(path) == 1 else _field_at(inner, path[1:])


@lru_cache(maxsize=1)
def requests() -> tuple[tuple[int, int, Path], ...]:
    """Return every place of every request that kio knows."""
    return tuple(
        (key, version, path)
        for key, version in versions_of(EntityType.request)
        for path in places(kio_messages.request(key, version))
    )


def drawn(source: random.Random, sizes: tuple[int, ...]) -> Blown:
    """Draw a request."""
    key, version, path = source.choice(requests())
    names = source.choice(list(Names))
    return Blown(api_key=key, version=version, path=path, names=names, size=source.choice(sizes))


def request_content(blown: Blown, *, correlation_id: int, client_id: bytes) -> bytes:
    """Return a request without its length field, whose client receives a response."""
    message = kio_messages.request(blown.api_key, blown.version)
    head = b"".join(number.to_bytes(2, "big") for number in (blown.api_key, blown.version))
    head += correlation_id.to_bytes(4, "big") + len(client_id).to_bytes(2, "big") + client_id
    head += b"\0" if kio_messages.request_is_flexible(blown.api_key, blown.version) else b""
    return head + _Encoder(message, blown, {"acks": 1}).message()


def response_content(blown: Blown, *, correlation_id: int, numbers: Mapping[str, int]) -> bytes:
    """Return a response without its length field, whose arrays have one element and these values."""
    message = kio_messages.response(blown.api_key, blown.version)
    is_flexible = kio_messages.request_is_flexible(blown.api_key, blown.version) and blown.api_key != 18
    head = correlation_id.to_bytes(4, "big") + (b"\0" if is_flexible else b"")
    return head + _Encoder(message, blown, numbers, elements=1).message()


class _Encoder:
    """The bytes of one message."""

    def __init__(self, message: Message, blown: Blown, numbers: Mapping[str, int], *, elements: int = 0) -> None:
        self._message = message
        self._blown = blown
        self._numbers = numbers
        self._elements = elements
        self._text = b"" if blown.names is Names.EMPTY else b"127.0.0.1"

    def message(self) -> bytes:
        return self._struct(self._message.untagged, self._blown.path)

    def _struct(self, fields: tuple[Field, ...], path: Path | None) -> bytes:
        pieces = []
        for number, field in enumerate(fields):
            pieces.append(self._field(field, path[1:] if path and path[0] == number else None))
        if self._message.is_flexible:
            pieces.append(self._tags() if path and path[0] == TAGS else b"\0")
        return b"".join(pieces)

    def _field(self, field: Field, path: Path | None) -> bytes:
        """Return a field, which is blown up if nothing is left of the path, or something in it is."""
        inner = tuple(each for each in field.fields if each.tag is None)
        if field.is_array:
            if path == ():
                return self._array(field, inner)
            count = 1 if path else self._elements
            return self._count(count, 4) + count * self._element(field, inner, path)
        if field.kind == "struct":
            return self._struct(inner, path)
        return self._value(field, self._long_text(field) if path == () else self._text)

    def _element(self, field: Field, inner: tuple[Field, ...], path: Path | None) -> bytes:
        return self._struct(inner, path) if field.kind == "struct" else self._value(field, self._text)

    def _value(self, field: Field, text: bytes) -> bytes:
        # A cluster has few brokers, whatever it is asked about.
        text = b"127.0.0.1" if field.name == "host" else text
        size = FIXED_SIZES.get(field.kind)
        if size == 16:
            return text.ljust(16, b"\0")[:16]
        if size is not None:
            return bytes(8) if field.kind == "float64" else self._numbers.get(field.name, 0).to_bytes(size, "big")
        return self._count(len(text), 2 if field.kind == "string" else 4) + text

    def _count(self, count: int, size: int) -> bytes:
        return encode_unsigned_varint(count + 1) if self._message.is_flexible else count.to_bytes(size, "big")

    def _long_text(self, field: Field) -> bytes:
        size = LONGEST_NAME if field.kind == "string" else self._blown.size
        return b"" if self._blown.names is Names.EMPTY else b"n" * size

    def _array(self, field: Field, inner: tuple[Field, ...]) -> bytes:
        """Return an array of as many elements as fit in the size."""
        is_long = self._blown.names is Names.LONG
        self._text = {Names.EMPTY: b"", Names.LONG: _MARK.ljust(LONGEST_NAME, b"l")}.get(self._blown.names, _MARK)
        template, self._text = self._element(field, inner, None), b""
        count = min(self._blown.most, max(1, self._blown.size // max(1, len(template))))
        parts = template.split(_MARK)
        if len(parts) == 1:
            elements = template * count
        elif self._blown.names is Names.MADE_UP or is_long:
            elements = b"".join((b"%0*d" % (_DIGITS, number)).join(parts) for number in range(count))
        else:
            elements = bytes(_DIGITS).join(parts) * count
        return self._count(count, 4) + elements

    def _tags(self) -> bytes:
        """Return a tag section of one long unknown field, or of many empty ones."""
        size = self._blown.size
        if self._blown.names in (Names.LONG, Names.REPEATED):
            return b"\1" + encode_unsigned_varint(9000) + encode_unsigned_varint(size) + bytes(size)
        count = size // 4
        fields = (encode_unsigned_varint(9000 + number) + b"\0" for number in range(count))
        return encode_unsigned_varint(count) + b"".join(fields)
