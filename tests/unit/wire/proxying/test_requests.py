"""Produce and Fetch requests by their bytes."""

import pytest
from tests.support.frames.lowered_fetch import limits_of, lower_fetch

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.protocol.header import parse_request_header
from kafka_quotas.wire.proxying.fetch_request import NO_REPLICA, replica_id
from kafka_quotas.wire.proxying.produce import acks


def request(api_key: int, version: int, body: str) -> bytearray:
    flexible = "00" if (api_key, version) >= (0, 9) and version >= {0: 9, 1: 12}[api_key] else ""
    head = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes.fromhex("00000007 0001 61" + flexible)
    content = head + bytes.fromhex(body)
    return bytearray(len(content).to_bytes(4, "big") + content)


@pytest.mark.parametrize(("version", "body", "expected"), [(0, "0000 000005dc", 0), (2, "ffff 000005dc", -1)])
def test_acks_come_first_before_there_were_transactions(version: int, body: str, expected: int):
    frame = request(0, version, body)
    header = parse_request_header(frame)
    assert acks(frame, header) == expected
    needed = len(frame) - 4
    assert [acks(frame[:length], header) for length in range(header.end, needed)] == [None] * (needed - header.end)
    assert acks(frame[:needed], header) == expected


@pytest.mark.parametrize(
    ("version", "body"), [(0, ""), (0, "00"), (3, "0004 7478 ffff"), (9, "06 7478 ffff"), (3, "fffe ffff")]
)
def test_a_produce_request_that_ends_before_its_acks_is_refused(version: int, body: str):
    frame = request(0, version, body)
    with pytest.raises(ProtocolError):
        acks(frame + bytes(40), parse_request_header(frame))


def test_nobody_waits_for_a_transactional_id_of_megabytes():
    frame = request(0, 9, "80 80 80 08")
    frame[:4] = (50_000_000).to_bytes(4, "big")
    with pytest.raises(ProtocolError):
        acks(frame, parse_request_header(frame))


@pytest.mark.parametrize("version", [0, 2])
def test_old_fetches_have_only_their_minimum_capped(version: int):
    frame = request(1, version, "ffffffff 000001f4 00001000 00000000")
    header = parse_request_header(frame)
    assert lower_fetch(frame, header, 2_048) == (4_096, None)
    assert frame == request(1, version, "ffffffff 000001f4 00000800 00000000")


@pytest.mark.parametrize(
    ("cap", "after"),
    [
        (10_000, "00001000 00002000"),
        (8_192, "00001000 00002000"),
        (8_191, "00001000 00001fff"),
        (100, "00000064 00000064"),
        (0, "00000000 00000000"),
    ],
)
@pytest.mark.parametrize("version", [3, 11, 12, 14, 15, 18])
def test_limits_are_lowered_as_the_broker_lowers_them(version: int, cap: int, after: str):
    replica = "ffffffff" if version < 15 else ""
    text = replica + "000001f4 {} 00 00000000 ffffffff"
    frame = request(1, version, text.format("00001000 00002000"))
    header = parse_request_header(frame)
    assert lower_fetch(frame, header, cap) == (4_096, 8_192)
    assert frame == request(1, version, text.format(after))


def test_the_minimum_is_capped_by_the_requests_own_maximum_as_well():
    frame = request(1, 4, "ffffffff 000001f4 00002000 00001000")
    lower_fetch(frame, parse_request_header(frame), 1_000_000)
    assert limits_of(frame, parse_request_header(frame)) == (4_096, 4_096)


def test_limits_that_are_not_there_yet_are_waited_for_and_missing_ones_refused():
    whole = request(1, 12, "ffffffff 000001f4 00001000 00002000")
    header = parse_request_header(whole)
    for length in range(header.end, len(whole)):
        head = whole[:length]
        assert lower_fetch(head, header, 1) is None
        assert head == whole[:length]
    short = request(1, 12, "ffffffff 000001f4 00001000 0000")
    with pytest.raises(ProtocolError):
        lower_fetch(short + bytes(9), parse_request_header(short), 1)


V15 = "000001f4 00000001 00000001 00 00000000 ffffffff 01 01 01"


@pytest.mark.parametrize(
    ("version", "body", "expected"),
    [
        (15, V15 + "00", NO_REPLICA),
        (15, V15 + "01 01 0d 00000003 ffffffffffffffff 00", 3),
        (16, V15 + "02 00 03 02 6964 01 0d 00000000 ffffffffffffffff 00", 0),
        (15, V15 + "01 07 02 cafe", NO_REPLICA),
    ],
)
def test_a_follower_is_told_from_a_consumer(version: int, body: str, expected: int):
    frame = request(1, version, body)
    assert replica_id(frame, parse_request_header(frame)) == expected


def test_a_replica_behind_all_else_is_waited_for():
    frame = request(1, 15, V15 + "01 01 0d 00000003 ffffffffffffffff 00")
    header = parse_request_header(frame)
    assert {replica_id(frame[:length], header) for length in range(header.end, len(frame) - 9)} == {None}
    broken = request(1, 15, V15 + "01 01 02 0000")
    with pytest.raises(ProtocolError):
        replica_id(broken + bytes(9), parse_request_header(broken))
