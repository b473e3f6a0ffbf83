"""The name in a certificate as Kafka's authorizers and quotas see it.

The order is the reverse of the certificate's, so that the common name usually comes first. Nine attribute types have
a keyword, all others are numbers with their value in hexadecimal.

**Source:** RFC 2253 as `javax.security.auth.x500.X500Principal.getName()` of Java 17 writes it, which
`DefaultKafkaPrincipalBuilder` (Kafka 4.1) uses; X.690 for the encoding.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.java import decode_utf8

_SEQUENCE, _SET, _OBJECT_IDENTIFIER = 0x30, 0x31, 0x06
_VERSION_TAG: Final = 0xA0
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_STRING_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""UTF8, Printable, T61, IA5, General, Universal and BMP strings: Java reads the bytes of all of them as UTF-8."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_PADDING: Final = " \r"


class _Element(NamedTuple):
    tag: int
    start: int
    content: int
    end: int


def subject_name(certificate: bytes) -> str:
    """Return the subject of a DER certificate in the form `CN=alice,OU=payments,O=Example`.

    Raises:
        ProtocolError: The bytes are no certificate.
    """
    outer = _element(certificate, 0, len(certificate), _SEQUENCE)
    signed = _element(certificate, outer.content, outer.end, _SEQUENCE)
    fields = list(_elements(certificate, signed.content, signed.end))
    if fields and fields[0].tag == _VERSION_TAG:
        fields.pop(0)
    if len(fields) < 5 or fields[4].tag != _SEQUENCE:  # serial, algorithm, issuer, validity, subject
        raise ProtocolError("a certificate has no subject")
    subject = fields[4]
    names = [_relative_name(certificate, name) for name in _elements(certificate, subject.content, subject.end)]
    return ",".join(reversed(names))


def _relative_name(data: bytes, name: _Element) -> str:
    if name.tag != _SET:
        raise ProtocolError("a part of a certificate's name is no set")
    return "+".join(_attribute(data, pair) for pair in _elements(data, name.content, name.end))


def _attribute(data: bytes, pair: _Element) -> str:
    parts = list(_elements(data, pair.content, pair.end))
    if pair.tag != _SEQUENCE or len(parts) != 2 or parts[0].tag != _OBJECT_IDENTIFIER:
        raise ProtocolError("an attribute of a certificate's name is no pair of type and value")
    identifier = _identifier(data[parts[0].content : parts[0].end])
    keyword = _KEYWORDS.get(identifier)
    value = parts[1]
    if keyword is None or value.tag not in _STRING_TAGS:
        return f"{keyword or identifier}=#{data[value.start : value.end].hex()}"
    return f"{keyword}={_escaped(decode_utf8(data[value.content : value.end]))}"


def _escaped(text: str) -> str:
    marks = [f"\\{mark}" if mark in _ESCAPED else "\\00" if mark == "\0" else mark for mark in text]
    lead = len(text) - len(text.lstrip(_PADDING))
    trail = len(text.rstrip(_PADDING))
    return "".join(f"\\{mark}" if index < lead or index >= trail else mark for index, mark in enumerate(marks))


def _identifier(content: bytes) -> str:
    numbers: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise ProtocolError("an object identifier of a certificate is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _elements(data: bytes, start: int, end: int) -> Iterator[_Element]:
    while start < end:
        element = _element(data, start, end)
        yield element
        start = element.end


def _element(data: bytes, start: int, end: int, tag: int | None = None) -> _Element:
    if start + 2 > end:
        raise ProtocolError("a certificate ends inside an element")
    length, content = data[start + 1], start + 2
    if length >= 0x80:
        size = length & 0x7F
        length = int.from_bytes(data[content : content + size], "big")
        content += size
    if content + length > end:
        raise ProtocolError("a certificate ends inside an element")
    if tag is not None and data[start] != tag:
        raise ProtocolError("this is no certificate")
    return _Element(data[start], start, content, content + length)
