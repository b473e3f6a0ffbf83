"""The header of the PROXY protocol, version 2."""

import ssl

import pytest

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.connection.preamble import (
    HEAD_BYTES,
    MAX_HELLO_BYTES,
    MAX_HELLO_RECORDS,
    MAX_REST_BYTES,
    SIGNATURE,
    ProxySource,
    parse_proxy_head,
    proxied_source,
    requested_host,
    wanted_bytes,
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


def hello(host: str | None, *, protocols: list[str] | None = None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    if protocols:
        context.set_alpn_protocols(protocols)
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=host)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def fragmented(message: bytes, size: int) -> bytes:
    """The same message in records of at most `size` bytes."""
    content = message[5:]
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    return b"".join(message[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)


@pytest.mark.parametrize("host", ["broker-1.kafka.example", "x.y", None])
def test_the_name_is_read(host: str | None) -> None:
    for message in (hello(host), fragmented(hello(host), 60)):
        assert requested_host(message) == host


def test_case_does_not_matter() -> None:
    message = hello("broker-1.example")
    assert requested_host(message.replace(b"broker-1", b"BROKER-1")) == "broker-1.example"


def test_what_is_wanted_grows_until_the_message_is_whole() -> None:
    for message in (hello("broker-1.example"), fragmented(hello("broker-1.example"), 60)):
        have = b""
        steps = 0
        while (wanted := wanted_bytes(have)) > len(have):
            have = message[:wanted]
            steps += 1
        assert have == message
        # Newer versions of OpenSSL say hello with keys of over a kilobyte.
        assert 2 <= steps <= 4 + 2 * (len(message) // 60)
        for length in range(len(message)):
            assert length < wanted_bytes(message[:length]) <= len(message)


ENDLESS = b"\x16\3\1\x40\0\1\0\xff\xff" + bytes(MAX_HELLO_BYTES)
NO_TLS = (b"GET / HTTP/1.1\r\n", b"\0\0\0\x12\0\x12\0\0", b"\x16\3\1\0\0", b"\x16\3\1\0\2ab")


@pytest.mark.parametrize(("first", "said"), [*((each, None) for each in NO_TLS), (ENDLESS, "too long")])
def test_what_is_no_hello_is_refused(first: bytes, said: str | None) -> None:
    with pytest.raises(ProtocolError, match=said):
        wanted_bytes(first)


def test_a_message_cut_short_is_refused() -> None:
    message = hello("broker-1.example")
    for length in range(5, len(message) - 5, 7):
        with pytest.raises(ProtocolError):
            requested_host(message[:length])


def test_a_hello_in_crumbs_is_refused_before_each_is_walked_again_for_the_next() -> None:
    crumbs = fragmented(hello("broker-1.example"), 4)
    most = MAX_HELLO_RECORDS * 9
    assert wanted_bytes(crumbs[:most]) > most, "so many are taken"
    with pytest.raises(ProtocolError, match="too long"):
        wanted_bytes(crumbs[: most + 9])
