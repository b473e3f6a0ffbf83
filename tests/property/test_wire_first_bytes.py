"""What comes first on a connection, or in a certificate, may be anything: it is understood or refused, nothing else."""

import ssl
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.frames.der_names import UTF8, Attribute, certificate_of, der_name

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.connection.distinguished_name import subject_name
from kafka_quotas.wire.connection.preamble import (
    HEAD_BYTES,
    MAX_HELLO_BYTES,
    SIGNATURE,
    parse_proxy_head,
    proxied_source,
    requested_host,
    wanted_bytes,
)
from kafka_quotas.wire.proxying.fetch_response import TailFinder, rewrite_tail


def hello() -> bytes:
    context = ssl.create_default_context()
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="broker-1.kafka.example")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("nobody answered")


HELLO = hello()
ROOMY = settings(max_examples=150, deadline=None)
CERTIFICATE = certificate_of(der_name([[Attribute("2.5.4.10", UTF8, b"Example")], [Attribute("2.5.4.3", UTF8, b"x")]]))


def damaged(sample: bytes) -> st.SearchStrategy[bytes]:
    """The sample with some bytes changed, cut off or put in."""
    places = st.lists(st.tuples(st.integers(0, len(sample) - 1), st.integers(0, 255)), max_size=6)

    def apply(changes: list[tuple[int, int]], cut: int) -> bytes:
        data = bytearray(sample)
        for place, value in changes:
            data[place] = value
        return bytes(data[:cut])

    return st.builds(apply, places, st.integers(0, len(sample)))


@ROOMY
@given(st.one_of(st.binary(max_size=400), damaged(HELLO)))
def test_a_first_message_of_tls(data: bytes) -> None:
    have = b""
    try:
        while (wanted := wanted_bytes(have)) > len(have):
            assert wanted <= MAX_HELLO_BYTES + 5
            if wanted > len(data):
                return
            have = data[:wanted]
        host = requested_host(have)
        assert host is None or isinstance(host, str)
    except ProtocolError:
        pass


@ROOMY
@given(st.one_of(st.binary(max_size=200), damaged(CERTIFICATE)))
def test_a_certificate(data: bytes) -> None:
    with suppress(ProtocolError):
        assert isinstance(subject_name(data), str)


@ROOMY
@given(st.binary(min_size=HEAD_BYTES, max_size=HEAD_BYTES), st.booleans(), st.binary(max_size=300))
def test_a_header_of_the_proxy_protocol(head: bytes, is_signed: bool, rest: bytes) -> None:
    if is_signed:
        head = SIGNATURE + head[len(SIGNATURE) :]
    try:
        source = proxied_source(parse_proxy_head(head), rest)
    except ProtocolError:
        return
    assert source is None or (source.ip and 0 <= source.port <= 65535)


@ROOMY
@given(st.binary(max_size=300), st.integers(1, 50))
def test_a_fetch_response(data: bytes, size: int) -> None:
    frame = len(data).to_bytes(4, "big") + data
    finder = TailFinder(1, len(data))
    try:
        for start in range(0, len(frame), size):
            end = min(start + size, len(frame))
            found = finder.find(memoryview(frame), start, end)
            if found is not None:
                assert start <= found <= end
                break
    except ProtocolError:
        pass


@ROOMY
@given(st.one_of(st.binary(min_size=1, max_size=100), damaged(b"\1\0\x0f\2\0\0\0\1\5host\0\0\x23\x84\0\0")))
def test_a_tail(data: bytes) -> None:
    if not data:
        return
    with suppress(ProtocolError):
        assert len(rewrite_tail(1, 17, data, lambda node, _host, port: (f"proxy-{node}", port))) == len(data)
