"""Throttle times by their bytes, in the responses where the place is peculiar."""

import pytest
from tests.support.frames.api_places import has_throttle
from tests.support.frames.framing import hex_frame

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.proxying.throttle_time import (
    MAX_THROTTLE_MS,
    NEED_MORE,
    patch_throttle,
    read_throttle_ms,
    throttle_needs_whole,
    throttle_offset,
)

TOKEN = "00000007 0000 0004 55736572 0001 61" + "0000000000000001" * 3 + "0002 6964 00000002 beef"
# Each case: API key, version, the response's bytes with the throttle time between bars.
GOLDEN = [
    pytest.param(38, 0, TOKEN + " |00000064|", id="CreateDelegationToken 0: behind three strings and the secret"),
    pytest.param(0, 1, "00000007 ffffffff |00000064|", id="Produce 1: no list at all"),
    pytest.param(
        0,
        9,
        "00000007 00 02 02 74 02 00000000 0057 0000000000000001 ffffffffffffffff 0000000000000000"
        "03 00000000 00 00 00000001 03 6f68 00  04 6e6f21 01 63 02 aabb  00 |00000064| 00",
        id="Produce 9: errors by record, a message, unknown tags",
    ),
]


@pytest.mark.parametrize(("api_key", "version", "text"), GOLDEN)
def test_the_field_is_where_the_bars_are(api_key: int, version: int, text: str):
    before, field, after = text.split("|")
    frame = bytearray(hex_frame(before + field + after))
    assert throttle_offset(api_key, version, frame) == 4 + len(bytes.fromhex(before))
    assert patch_throttle(frame, api_key, version, 1_000) == 100
    assert frame == hex_frame(before + "000003e8" + after)


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(0, 0), (1, 0), (2, 1), (17, 1), (36, 2), (55, 2), (4, 7), (7, 0), (1, 19), (1, -1), (10_001, 0), (0, 99)],
)
def test_responses_without_the_field_or_unknown_ones_are_left_alone(api_key: int, version: int):
    frame = bytearray(hex_frame("00000007 00000000 00000000 00000000"))
    assert not has_throttle(api_key, version)
    assert not throttle_needs_whole(api_key, version)
    assert patch_throttle(frame, api_key, version, 1_000) is None
    assert frame == hex_frame("00000007 00000000 00000000 00000000")


def test_an_unsupported_version_answer_has_the_form_of_version_0_and_so_no_field():
    assert throttle_offset(18, 3, hex_frame("00000007 0023 00000001 0012 0000 0003")) is None
    assert throttle_offset(18, 3, hex_frame("00000007 0023 00000001 0012 0000 0003")[:9]) == NEED_MORE


@pytest.mark.parametrize(
    ("field", "ours_ms", "theirs_ms", "told_ms"),
    [
        ("000003e8", 999, 1000, 1000),
        ("000003e8", 1001, 1000, 1001),
        ("ffffffff", 0, 0, 0),
        ("00000000", 2**40, 0, MAX_THROTTLE_MS),
    ],
)
def test_the_larger_throttle_time_is_told_none_below_0_and_none_beyond_the_field(
    field: str, ours_ms: int, theirs_ms: int, told_ms: int
):
    frame = bytearray(hex_frame(f"00000007 {field} 0000"))
    assert patch_throttle(frame, 1, 4, ours_ms) == theirs_ms
    assert read_throttle_ms(frame, 8) == told_ms
    assert MAX_THROTTLE_MS == 2**31 - 1


def test_the_beginning_of_a_response_of_two_gigabytes_is_enough():
    head = bytearray(bytes.fromhex("7fffffff 00000007 00 00000000 0000"))
    assert patch_throttle(head, 1, 12, 250) == 0
    assert head == bytes.fromhex("7fffffff 00000007 00 000000fa 0000")
    assert not throttle_needs_whole(1, 12)
    assert throttle_needs_whole(0, 12)


@pytest.mark.parametrize("length", range(13))
def test_more_bytes_are_asked_for_without_a_change(length: int):
    head = bytearray(bytes.fromhex("7fffffff 00000007 00 00000000 0000"))[:length]
    before = bytes(head)
    assert patch_throttle(head, 1, 12, 250) == NEED_MORE
    assert head == before


@pytest.mark.parametrize(
    ("api_key", "version", "text"),
    [
        (1, 4, "00000007 000000"),
        (1, 12, "00000007 00 000000"),
        (1, 12, "00000007 01 00 7f"),
        (0, 9, "00000007 00 ff ff ff ff 7f"),
        (0, 9, "00000007 00 02 ff ff ff 7f 00"),
        (0, 1, "00000007 fffffffe 00000000"),
        (18, 1, "00000007 0000 7fffffff 00000000"),
    ],
)
def test_a_response_that_can_not_be_is_refused(api_key: int, version: int, text: str):
    with pytest.raises(ProtocolError):
        throttle_offset(api_key, version, hex_frame(text) + bytes(30))
