"""The first bytes of a connection: a load balancer's PROXY header, and a TLS client's hello.

The PROXY header names the original client. It comes once, before everything else: a signature of 12 bytes, version and
command, family, the length of the rest, then the addresses, then fields that the parser skips. The hello has the host
name that a client requests, read before any response.

**Source:** HAProxy's `proxy-protocol.txt`, section 2.2; RFC 8446, sections 4.1.2 and 5.1; RFC 6066, section 3.
"""

import socket
from struct import Struct
from typing import Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.codec.skip import Buffer

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
HEAD_BYTES: Final = 16
"""Signature, version with command, family with transport, and the length of the rest."""
MAX_REST_BYTES: Final = 4096
"""Longest rest that is read: addresses take 216 bytes at most, and balancers add a few hundred of other fields."""

_HEAD: Final = Struct(">12sBBH")
_VERSION: Final = 2
_LOCAL, _PROXIED = 0, 1
_TCP4, _TCP6 = 0x11, 0x21
_ADDRESSES: Final = {_TCP4: (socket.AF_INET, 4), _TCP6: (socket.AF_INET6, 16)}


class ProxyHead(NamedTuple):
    """The first 16 bytes: the meaning and length of the rest."""

    command: int
    family: int
    rest_bytes: int


class ProxySource(NamedTuple):
    """The address of the original client."""

    ip: str
    port: int


def parse_proxy_head(head: bytes) -> ProxyHead:
    """Return the parsed first `HEAD_BYTES`.

    Raises:
        ProtocolError: The bytes are no such header.
    """
    signature, version_command, family, rest_bytes = _HEAD.unpack(head)
    if signature != SIGNATURE:
        raise ProtocolError(
            "the connection doesn't start with a PROXY protocol header of version 2",
            hint="clients that come without a load balancer need a listener without proxy.protocol",
        )
    version, command = version_command >> 4, version_command & 0x0F
    if version != _VERSION or command not in (_LOCAL, _PROXIED):
        raise ProtocolError(f"a PROXY protocol header has version {version} and command {command}")
    if rest_bytes > MAX_REST_BYTES:
        raise ProtocolError(f"a PROXY protocol header announces {rest_bytes} bytes")
    return ProxyHead(command, family, rest_bytes)


def proxied_source(head: ProxyHead, rest: bytes) -> ProxySource | None:
    """Return the original client's address, or None for the balancer's own connection and other families.

    Raises:
        ProtocolError: The rest is too short for its family.
    """
    if head.command == _LOCAL or head.family not in _ADDRESSES:
        return None
    family, size = _ADDRESSES[head.family]
    if len(rest) < 2 * size + 4:
        raise ProtocolError(f"a PROXY protocol header has {len(rest)} bytes of addresses")
    ip = socket.inet_ntop(family, rest[:size])
    return ProxySource(ip, int.from_bytes(rest[2 * size : 2 * size + 2], "big"))


MAX_HELLO_BYTES: Final = 16 * 1024
"""The limit on the first message; with post-quantum keys it takes some 2 KiB."""
MAX_HELLO_RECORDS: Final = 64
"""Most records that it may be split into: all of them are walked again for each one that comes."""
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0
_RECORD_HEAD: Final = 5
_HELLO_HEAD: Final = 4
_VERSION_AND_RANDOM: Final = 34


class _Reader:
    """A reader of a whole message, whose end raises `ProtocolError`."""

    def __init__(self, data: bytes, offset: int, end: int) -> None:
        self._data, self._offset, self._end = data, offset, end

    @property
    def is_done(self) -> bool:
        return self._offset >= self._end

    def number(self, size: int) -> int:
        return int.from_bytes(self.bytes(size), "big")

    def rest(self) -> bytes:
        return self.bytes(self._end - self._offset)

    def bytes(self, size: int) -> bytes:
        start = self._offset
        if start + size > self._end:
            raise ProtocolError("a TLS client's first message ends too early")
        self._offset = start + size
        return self._data[start : start + size]

    def part(self, length_size: int) -> "_Reader":
        data = self.bytes(self.number(length_size))
        return _Reader(data, 0, len(data))


def wanted_bytes(buffer: Buffer) -> int:
    """Return the length of the client's first message as far as these first bytes show, at least 5.

    Raises:
        ProtocolError: The bytes are no TLS, or the message is longer than `MAX_HELLO_BYTES`.
    """
    if buffer[:1] and buffer[0] != _HANDSHAKE:
        raise ProtocolError("the client doesn't speak TLS")
    offset, missing = 0, _RECORD_HEAD + _HELLO_HEAD
    message_left, records = _HELLO_HEAD, 0
    while message_left > 0:
        records += 1
        if len(buffer) < offset + _RECORD_HEAD:
            return offset + _RECORD_HEAD
        if buffer[offset] != _HANDSHAKE:
            raise ProtocolError("a TLS client's first message is interrupted")
        length = int.from_bytes(buffer[offset + 3 : offset + 5], "big")
        if offset == 0:
            if length < _HELLO_HEAD:
                raise ProtocolError("a TLS client's first record is too short")
            if len(buffer) < missing:
                return missing
            message_left = _HELLO_HEAD + int.from_bytes(buffer[6:9], "big")
        message_left -= length
        offset += _RECORD_HEAD + length
        if offset > MAX_HELLO_BYTES or not length or records > MAX_HELLO_RECORDS:
            raise ProtocolError("a TLS client's first message is too long")
    return offset


def requested_host(records: bytes) -> str | None:
    """Return the host name in a client's whole first message, None if it has none.

    Raises:
        ProtocolError: The bytes are no such message.
    """
    message = _joined(records)
    if not message or message[0] != _CLIENT_HELLO:
        raise ProtocolError("a TLS connection doesn't start with a client's hello")
    hello = _Reader(message, _HELLO_HEAD, len(message))
    hello.bytes(_VERSION_AND_RANDOM)
    for length_size in (1, 2, 1):  # session, ciphers, compressions
        hello.part(length_size)
    if hello.is_done:
        return None
    extensions = hello.part(2)
    while not extensions.is_done:
        kind, content = extensions.number(2), extensions.part(2)
        if kind == _SERVER_NAME and not content.is_done:
            return _host(content.part(2))
    return None


def _host(names: _Reader) -> str | None:
    while not names.is_done:
        kind, name = names.number(1), names.part(2)
        if kind == _HOST_NAME:
            return name.rest().decode("ascii", "replace").lower()
    return None


def _joined(records: bytes) -> bytes:
    reader = _Reader(records, 0, len(records))
    pieces = []
    while not reader.is_done:
        reader.bytes(3)
        pieces.append(reader.part(2).rest())
    return b"".join(pieces)
