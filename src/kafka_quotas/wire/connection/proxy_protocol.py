"""The header in which a load balancer names the original client: PROXY protocol, version 2.

It comes once, before everything else: a signature of 12 bytes, version and command, family, the length of the rest,
then the addresses, then fields that the parser skips.

**Source:** HAProxy's `proxy-protocol.txt`, section 2.2.
"""

import socket
from struct import Struct
from typing import Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError

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
