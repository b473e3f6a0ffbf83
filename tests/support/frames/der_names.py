"""Certificates that are nothing but their subject, byte by byte: what no tool would put into a real one."""

from collections.abc import Sequence
from typing import NamedTuple

UTF8, PRINTABLE, T61, IA5, BMP, BIT_STRING = 0x0C, 0x13, 0x14, 0x16, 0x1E, 0x03


class Attribute(NamedTuple):
    """One attribute of a name: its type as a dotted number, the tag of its value, and the value's bytes."""

    type: str
    tag: int
    value: bytes


def der(tag: int, content: bytes) -> bytes:
    """One element."""
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    encoded = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(encoded))) + encoded + content


def der_name(parts: Sequence[Sequence[Attribute]]) -> bytes:
    """A name of these parts, each of one or more attributes, in the certificate's order."""
    return der(
        0x30,
        b"".join(
            der(0x31, b"".join(der(0x30, _identifier(a.type) + der(a.tag, a.value)) for a in part)) for part in parts
        ),
    )


def certificate_of(name: bytes, *, with_version: bool = True) -> bytes:
    """As much of a certificate as it takes to find its subject."""
    version = der(0xA0, der(0x02, b"\2")) if with_version else b""
    before = version + der(0x02, b"\1") + der(0x30, b"") + der(0x30, b"") + der(0x30, b"")
    return der(0x30, der(0x30, before + name))


def _identifier(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    return der(0x06, b"".join(map(_base128, (40 * first + second, *rest))))


def _base128(value: int) -> bytes:
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F | 0x80)
    return bytes(reversed(groups))
