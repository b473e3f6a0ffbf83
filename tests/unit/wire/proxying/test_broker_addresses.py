"""Broker addresses by their bytes: what is replaced, what is not touched."""

import pytest
from tests.support.frames.api_places import NamedBroker, broker_addresses, carries_addresses
from tests.support.frames.framing import hex_frame

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.proxying.broker_addresses import rewrite_addresses


def to_local(node_id: int, _host: str, _port: int) -> tuple[str, int]:
    return "127.0.0.1", 20_000 + node_id


LOCAL, COMPACT_LOCAL = "0009" + b"127.0.0.1".hex(), "0a" + b"127.0.0.1".hex()
PRODUCE_10 = "00000007 00 01 00000000 {0}"


def test_a_coordinator_that_is_none_stays_none():
    none = hex_frame("00000007 000f ffffffff 0000 ffffffff")
    assert rewrite_addresses(10, 0, none, to_local) == none
    assert broker_addresses(10, 0, none) == ()
    some = hex_frame("00000007 0000 00000005 0001 61 00002384")
    assert rewrite_addresses(10, 0, some, to_local) == hex_frame(f"00000007 0000 00000005 {LOCAL} 00004e25")


@pytest.mark.parametrize("port", ["ffffffff", "00000000", "00010000"])
def test_what_nobody_can_connect_to_stays(port: str):
    frame = hex_frame(f"00000007 00000001 00000001 0001 61 {port} 00000000")
    assert rewrite_addresses(3, 0, frame, to_local) == frame


def test_the_endpoints_of_new_leaders_grow_together_with_their_size():
    # One endpoint with the tags of a later version, and a second tagged field that we know nothing about.
    text = PRODUCE_10.format("02 00 {0} 02 00000001 {1} 00 01 07 01 ff 09 01 ee")
    frame = hex_frame(text.format("10", "02 61 00002384"))
    assert broker_addresses(0, 10, frame) == (NamedBroker(node_id=1, host="a", port=9092),)
    assert rewrite_addresses(0, 10, frame, to_local) == hex_frame(text.format("18", f"{COMPACT_LOCAL} 00004e21"))


def test_a_size_that_needs_a_second_byte_gets_it():
    text = PRODUCE_10.format("01 00 {0} 02 00000001 {1} 00 00")
    frame = hex_frame(text.format("0d", "02 61 00002384"))
    host = "h" * 200
    rewritten = rewrite_addresses(0, 10, frame, lambda *_: (host, 20_000))
    assert rewritten == hex_frame(text.format("d5 01", f"c9 01 {host.encode().hex()} 00004e20"))


@pytest.mark.parametrize("tail", ["00", "01 05 02 cafe", "01 00 01 00", "01 00 01 01"])
def test_a_produce_response_without_endpoints_stays(tail: str):
    frame = hex_frame(PRODUCE_10.format(tail))
    assert rewrite_addresses(0, 10, frame, to_local) == frame
    assert broker_addresses(0, 10, frame) == ()


def test_a_host_that_is_not_ascii_is_counted_in_bytes():
    frame = hex_frame("00000007 00000001 00000001 0001 61 00002384 00000000")
    rewritten = rewrite_addresses(3, 0, frame, lambda *_: ("ü", 1))
    assert rewritten == hex_frame("00000007 00000001 00000001 0002 c3bc 00000001 00000000")


@pytest.mark.parametrize(
    ("api_key", "version"), [(0, 9), (1, 15), (1, 19), (52, 1), (55, 1), (10_001, 0), (3, 99), (78, 0)]
)
def test_other_responses_are_not_looked_into(api_key: int, version: int):
    assert not carries_addresses(api_key, version)
    assert rewrite_addresses(api_key, version, b"anything", to_local) == b"anything"
    assert broker_addresses(api_key, version, b"anything") == ()


@pytest.mark.parametrize(
    ("api_key", "version", "text"),
    [
        (3, 0, "00000007 7fffffff 00000001"),
        (3, 0, "00000007 00000001 00000001 7fff 61 00002384"),
        (3, 0, "00000007 00000001 00000001 fffe 61 00002384"),
        (3, 9, "00000007 00 00000000 02 00000001 ff 61 00002384"),
        (3, 9, "00000007 00 00000000 02 00000001 02 61 0000"),
        (3, 9, "00000007 80"),
        (0, 10, "00000007 00 01 00000000 01 00 40 02 00000001 02 61 00002384 00 00"),
        (0, 10, "00000007 00 01 00000000"),
    ],
)
def test_a_response_that_can_not_be_is_refused(api_key: int, version: int, text: str):
    with pytest.raises(ProtocolError):
        rewrite_addresses(api_key, version, hex_frame(text), to_local)


@pytest.mark.parametrize(
    "frame",
    [b"", b"\0\0\0", hex_frame("00000007 00000000 00000000") + b"\0", hex_frame("00000007 00000000 00000000")[:-1]],
)
def test_what_is_not_exactly_one_frame_is_refused(frame: bytes):
    with pytest.raises(ProtocolError):
        broker_addresses(3, 0, frame)
