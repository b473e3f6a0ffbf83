"""The fields of Kafka messages: a reader, a writer, and tables of fields that both follow.

    fields_of("_:int32 code:int16 topics[name:text leaders:[int32] _:text?@5+]")

A table names each field with its type, `text?` for a text that may be null, `[int32]` for an array of plain values, and
brackets for an array of structures. `@5+` and `@4-8` are the versions that have a field. A field whose name is `_` is
written as zero, false or null, and read without being returned.

Invariant: a false length or count ends in `TruncatedError` before an allocation of that size.

**Source:** KIP-482; `org.apache.kafka.common.protocol.types.Type`, Kafka 4.1.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class
from typing import Any, Final, TypeAlias

from kafka_quotas.core.errors import ProtocolError, UsageError
from kafka_quotas.wire.codec.encoding import CLASSIC, COMPACT
from kafka_quotas.wire.codec.skip import MAX_STRING_BYTES, TruncatedError, encode_unsigned_varint, tags

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
_FIXED: Final[Mapping[str, Struct]] = {
    "bool": Struct(">?"),
    "int8": Struct(">b"),
    "int16": INT16,
    "int32": INT32,
    "int64": Struct(">q"),
    "float64": Struct(">d"),
}
"""The types of a fixed size."""


class FieldReader:
    """A reader of consecutive fields, with strings, bytes and arrays compact if `flexible`.

    Every call raises `TruncatedError` at the end of the message inside a field, `ProtocolError` for invalid bytes.
    """

    __slots__ = ("_buffer", "_encoding", "_end", "_offset")

    def __init__(self, buffer: bytes, *, offset: int, flexible: bool) -> None:
        self._buffer = buffer
        self._offset = offset
        self._end = len(buffer)
        self._encoding = COMPACT if flexible else CLASSIC

    @property
    def left(self) -> int:
        """The number of unread bytes."""
        return self._end - self._offset

    def fixed(self, form: Struct) -> Any:
        """Return a field of fixed size, whose form has one value."""
        try:
            (value,) = form.unpack_from(self._buffer, self._offset)
        except StructError as error:
            raise TruncatedError from error
        self._offset += form.size
        return value

    def string(self) -> str | None:
        """Return a string, None for null."""
        start, end = self._encoding.string_span(self._buffer, self._offset, self._end)
        if end < start:
            self._offset = start
            return None
        self._offset = end
        try:
            return self._buffer[start:end].decode()
        except UnicodeDecodeError as error:
            raise ProtocolError("a string is not UTF-8") from error

    def text(self) -> str:
        """Return a string that may not be null."""
        value = self.string()
        if value is None:
            raise ProtocolError("a string is missing")
        return value

    def byte_string(self) -> bytes:
        """Read bytes, where null is empty."""
        start, end = self._encoding.bytes_span(self._buffer, self._offset, self._end)
        self._offset = max(start, end)
        return self._buffer[start : self._offset]

    def count(self) -> int:
        """Read the number of elements of an array, 0 for null."""
        count, self._offset = self._encoding.array_count(self._buffer, self._offset, self._end)
        if count > self.left:  # an element takes a byte at least
            raise TruncatedError
        return count

    def skip(self, size: int) -> None:
        """Skip `size` bytes."""
        if not 0 <= size <= self.left:
            raise TruncatedError
        self._offset += size

    def skip_int32s(self) -> None:
        """Skip an array of 32-bit integers."""
        size = 4 * self.count()
        if size > self.left:
            raise TruncatedError
        self._offset += size

    def tags(self) -> None:
        """Skip the tagged fields at the end of a structure, if the version has them."""
        if self._encoding.is_compact:
            self._offset = tags(self._buffer, self._offset, self._end)


class FieldWriter:
    """A writer of consecutive fields, with strings, bytes and arrays compact if `flexible`."""

    __slots__ = ("_bytes", "_flexible")

    def __init__(self, *, flexible: bool) -> None:
        self._bytes = bytearray()
        self._flexible = flexible

    def content(self) -> bytes:
        """Return all written bytes."""
        return bytes(self._bytes)

    def string(self, value: str | None) -> None:
        """Append a string, None for null."""
        if value is None:
            self._bytes += b"\0" if self._flexible else b"\xff\xff"
            return
        try:
            encoded = value.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"not a text that Kafka can hold: {value!r}", hint="names are UTF-8") from error
        if len(encoded) > MAX_STRING_BYTES:
            raise UsageError(
                f"longer than {MAX_STRING_BYTES} bytes: {value[:20]}...", hint="Kafka takes no longer name"
            )
        self._bytes += encode_unsigned_varint(len(encoded) + 1) if self._flexible else INT16.pack(len(encoded))
        self._bytes += encoded

    def byte_string(self, value: bytes) -> None:
        """Append bytes with their length."""
        self._bytes += encode_unsigned_varint(len(value) + 1) if self._flexible else INT32.pack(len(value))
        self._bytes += value

    def count(self, elements: int | None) -> None:
        """Append the element count of an array, None for null."""
        if self._flexible:
            self._bytes += encode_unsigned_varint(0 if elements is None else elements + 1)
        else:
            self._bytes += INT32.pack(-1 if elements is None else elements)

    def raw(self, content: bytes) -> None:
        """Append fields that were written elsewhere."""
        self._bytes += content

    def tags(self) -> None:
        """Append the end of a structure: an empty tag section, or nothing in versions without one."""
        if self._flexible:
            self._bytes.append(0)


def _take_fixed(form: Struct, reader: FieldReader) -> Any:
    return reader.fixed(form)


def _put_fixed(form: Struct, writer: FieldWriter, value: Any) -> None:
    writer.raw(form.pack(value or 0))


NEWEST: Final = 0x7FFF
_TOKEN: Final = re.compile(r"(\])|(\w+)(?::(\[\w+\??\]|\w+\??)|\[)|@(\d+)(\+|-\d+)")
_TAKE: Final[Mapping[str, Callable[[FieldReader], Any]]] = {
    **{kind: partial(_take_fixed, form) for kind, form in _FIXED.items()},
    "text": FieldReader.text,
    "text?": FieldReader.string,
    "bytes": FieldReader.byte_string,
    "int32s": FieldReader.skip_int32s,
}
"""The types of a plain field, `int32s` for an array that nobody needs."""
_PUT: Final[Mapping[str, Callable[[FieldWriter, Any], None]]] = {
    **{kind: partial(_put_fixed, form) for kind, form in _FIXED.items()},
    "text": FieldWriter.string,
    "text?": FieldWriter.string,
    "bytes": FieldWriter.byte_string,
    "uuid": FieldWriter.raw,
}


@dataclass(slots=True, eq=False)
class Field:
    """One field of a table."""

    name: str
    kind: str
    """The type; empty for structures."""
    is_array: bool = False
    parts: "tuple[Field, ...]" = ()
    """The fields of a structure."""
    since: int = 0
    until: int = NEWEST


def fields_of(table: str) -> tuple[Field, ...]:
    """Return the fields of a table."""
    levels: list[list[Field]] = [[]]
    for end, name, kind, since, until in _TOKEN.findall(table):
        if end:
            parts = levels.pop()
            levels[-1][-1].parts = tuple(parts)
        elif since:
            last = levels[-1][-1]
            last.since, last.until = int(since), NEWEST if until == "+" else int(until[1:])
        elif kind:
            levels[-1].append(Field(name, kind.strip("[]"), is_array=kind[0] == "["))
        else:
            levels[-1].append(Field(name, "", is_array=True))
            levels.append([])
    return tuple(levels[0])


def write_fields(fields: Sequence[Field], values: Iterable[Any], writer: FieldWriter, version: int) -> None:
    """Append a structure with one value for each field that has a name."""
    given = iter(values)
    for field in fields:
        value: Any = None if field.name == "_" else next(given)
        if not field.since <= version <= field.until:
            continue
        if not field.is_array:
            _PUT[field.kind](writer, value)
            continue
        writer.count(None if value is None else len(value))
        for each in value or ():
            if field.kind:
                _PUT[field.kind](writer, each)
            else:
                write_fields(field.parts, each, writer, version)
    writer.tags()


_Take: TypeAlias = Callable[[FieldReader], Any]


def read_fields(fields: tuple[Field, ...], reader: FieldReader, version: int) -> tuple[Any, ...]:
    """Return the values of a structure, None for fields that the version lacks, arrays as lists."""
    return _read(_plan(fields, version), reader)


@cache
def _plan(fields: tuple[Field, ...], version: int) -> list[tuple[bool, _Take]]:
    """Return whether each field is named, and how it is read: a response may have a million."""
    taking = [
        (field.name != "_", _taker(field, version) if field.since <= version <= field.until else _missing)
        for field in fields
    ]
    return [each for each in taking if each[0] or each[1] is not _missing]


def _missing(_: FieldReader) -> None:
    return None


def _taker(field: Field, version: int) -> _Take:
    if not field.is_array:
        return _TAKE[field.kind]
    if field.kind:
        take = _TAKE[field.kind]
        return lambda reader: [take(reader) for _ in range(reader.count())]
    plan = _plan(field.parts, version)
    return lambda reader: [_read(plan, reader) for _ in range(reader.count())]


def _read(plan: list[tuple[bool, _Take]], reader: FieldReader) -> tuple[Any, ...]:
    values: list[Any] = []
    for is_named, take in plan:
        value = take(reader)
        if is_named:
            values.append(value)
    reader.tags()
    return tuple(values)
