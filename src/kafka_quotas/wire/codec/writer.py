"""A writer of the fields of a Kafka message, in the classic and in the compact encoding.

**Source:** KIP-482; `org.apache.kafka.common.protocol.types.Type`, Kafka 4.1.
"""

from struct import Struct
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.wire.codec.skip import MAX_STRING_BYTES, encode_unsigned_varint

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_FLOAT64: Final = Struct(">d")


class FieldWriter:
    """A writer of consecutive fields, with strings, bytes and arrays compact if `flexible`."""

    __slots__ = ("_bytes", "_flexible")

    def __init__(self, *, flexible: bool) -> None:
        self._bytes = bytearray()
        self._flexible = flexible

    def content(self) -> bytes:
        """Return all written bytes."""
        return bytes(self._bytes)

    def int8(self, value: int) -> None:
        """Append an 8-bit integer."""
        self._bytes += _INT8.pack(value)

    def int16(self, value: int) -> None:
        """Append a 16-bit integer."""
        self._bytes += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """Append a 32-bit integer."""
        self._bytes += _INT32.pack(value)

    def float64(self, value: float) -> None:
        """Append a double."""
        self._bytes += _FLOAT64.pack(value)

    def boolean(self, *, value: bool) -> None:
        """Append a boolean."""
        self._bytes.append(value)

    def string(self, value: str | None) -> None:
        """Append a string, None for null.

        Raises:
            UsageError: Kafka has no such string.
        """
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
        self._bytes += encode_unsigned_varint(len(encoded) + 1) if self._flexible else _INT16.pack(len(encoded))
        self._bytes += encoded

    def byte_string(self, value: bytes) -> None:
        """Append bytes with their length."""
        self._bytes += encode_unsigned_varint(len(value) + 1) if self._flexible else _INT32.pack(len(value))
        self._bytes += value

    def count(self, elements: int | None) -> None:
        """Append the element count of an array, None for null."""
        if self._flexible:
            self._bytes += encode_unsigned_varint(0 if elements is None else elements + 1)
        else:
            self._bytes += _INT32.pack(-1 if elements is None else elements)

    def raw(self, content: bytes) -> None:
        """Append fields that were written elsewhere."""
        self._bytes += content

    def tags(self) -> None:
        """Append the end of a structure: an empty tag section, or nothing in versions without one."""
        if self._flexible:
            self._bytes.append(0)
