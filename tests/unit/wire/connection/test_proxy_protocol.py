"""The header of the PROXY protocol, version 2."""

import pytest

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.connection.proxy_protocol import (
    HEAD_BYTES,
    MAX_REST_BYTES,
    SIGNATURE,
    ProxySource,
    parse_proxy_head,
    proxied_source,
)

IPV4 = bytes((192, 0, 2, 7)) + bytes((127, 0, 0, 1)) + (51234).to_bytes(2, "big") + (9092).to_bytes(2, "big")
IPV6 = bytes(15) + b"\1" + bytes(16) + (1).to_bytes(2, "big") + (2).to_bytes(2, "big")


def head(command: int, family: int, size: int) -> bytes:
    return SIGNATURE + bytes((command, family)) + size.to_bytes(2, "big")


@pytest.mark.parametrize(
    ("command", "family", "rest", "source"),
    [
        (0x21, 0x11, IPV4, ProxySource("192.0.2.7", 51234)),
        (0x21, 0x11, IPV4 + b"\3\0\4abcd", ProxySource("192.0.2.7", 51234)),
        (0x21, 0x21, IPV6, ProxySource("::1", 1)),
        (0x20, 0x00, b"", None),
        (0x20, 0x11, IPV4, None),
        (0x21, 0x31, bytes(216), None),
        (0x21, 0x00, b"", None),
    ],
    ids=["IPv4", "more fields", "IPv6", "local", "local with address", "Unix", "unspecified"],
)
def test_whose_connection_it_is(command: int, family: int, rest: bytes, source: ProxySource | None) -> None:
    first = head(command, family, len(rest))
    assert len(first) == HEAD_BYTES
    parsed = parse_proxy_head(first)
    assert parsed.rest_bytes == len(rest)
    assert proxied_source(parsed, rest) == source


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"PROXY TCP4 1.2.3", "PROXY protocol header of version 2"),
        (b"\0\0\0\x12\0\x12\0\0\0\0\0\1\0\0\0\0", "PROXY protocol header of version 2"),
        (head(0x11, 0x11, 12), "version 1"),
        (head(0x22, 0x11, 12), "command 2"),
        (head(0x21, 0x11, MAX_REST_BYTES + 1), "announces"),
    ],
)
def test_what_is_no_header_is_refused(first: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        parse_proxy_head(first)


def test_addresses_that_end_early_are_refused() -> None:
    with pytest.raises(ProtocolError, match="11 bytes"):
        proxied_source(parse_proxy_head(head(0x21, 0x11, 11)), IPV4[:11])
