"""Request headers by their bytes: the three versions, the exceptions, the refusals."""

import pytest
from tests.support.frames.framing import framed

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.codec.skip import MAX_TAGS
from kafka_quotas.wire.protocol.header import (
    MAX_HEADER_TAG_BYTES,
    RequestHeader,
    parse_request_header,
)

API_VERSIONS_V0 = bytes.fromhex("0000000d 0012 0000 00000005 0003 617070")
"""A request without a body: the frame ends with the client id."""


def test_a_flexible_header_ends_behind_its_tags():
    frame = framed(bytes.fromhex("0000 0009 ffffffff 0003 617070 00") + b"body")
    assert parse_request_header(frame) == RequestHeader(0, 9, -1, "app", 18, 0, 18)
    tagged = framed(bytes.fromhex("0000 0009 00000001 0003 617070 02 00 02 cafe 81 01 00") + b"body")
    header = parse_request_header(tagged)
    assert tagged[header.end : header.frame_end] == b"body"


def test_the_first_version_of_controlled_shutdown_has_no_client_id():
    frame = bytes.fromhex("0000000c 0007 0000 00000002 00000001")
    assert parse_request_header(frame) == RequestHeader(7, 0, 2, "", 12, 0, 12)
    for length in range(12):
        assert parse_request_header(frame[:length]) is None
    later = bytes.fromhex("0000000f 0007 0001 00000002 0001 61 00000001")
    assert parse_request_header(later) == RequestHeader(7, 1, 2, "a", 15, 0, 15)


def test_a_client_id_that_is_not_utf_8_is_read_as_the_broker_reads_it():
    assert parse_request_header(framed(bytes.fromhex("0012 0000 00000005 0003 61ff62"))).client_id == "a�b"


@pytest.mark.parametrize(("api_key", "version"), [(10_001, 0), (10_001, 12), (-1, 3), (18, -1)])
def test_what_is_not_in_the_table_is_read_up_to_the_client_id(api_key: int, version: int):
    head = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    header = parse_request_header(framed(head + bytes.fromhex("00000005 0001 61 00 ff")))
    assert header == RequestHeader(api_key, version, 5, "a", 15, 0, 13)


@pytest.mark.parametrize(
    ("length", "hint"),
    [
        ("7fffffff", None),
        ("80000000", None),
        ("ffffffff", None),
        ("06400001", None),
        ("16030102", "TLS"),
        ("47455420", "HTTP"),
    ],
)
def test_a_frame_of_absurd_length_is_refused_before_anything_of_it_is_kept(length: str, hint: str | None):
    with pytest.raises(ProtocolError) as error:
        parse_request_header(bytes.fromhex(length))
    assert hint in error.value.hint if hint else error.value.hint is None
    with pytest.raises(ProtocolError):
        parse_request_header(bytes.fromhex(length) + bytes(40))


def test_the_longest_request_a_broker_takes_is_taken():
    frame = (100 * 1024 * 1024).to_bytes(4, "big") + API_VERSIONS_V0[4:]
    assert parse_request_header(frame).client_id == "app"
    with pytest.raises(ProtocolError):
        parse_request_header(frame, max_frame_bytes=1_000_000)


@pytest.mark.parametrize("length", range(10))
def test_a_frame_that_is_too_short_for_a_header_is_refused(length: int):
    with pytest.raises(ProtocolError, match="too short"):
        parse_request_header(length.to_bytes(4, "big") + bytes.fromhex("0012 0000 00000005 0003 617070"))


WRONG_LENGTHS = ("0004", "7fff", "fffe", "8000")
WRONG_TAGS = ("80", "01", "01 00", "01 00 05 00", "ff ff ff ff 7f", "ff ff ff ff ff 01")


@pytest.mark.parametrize(
    "header",
    [
        *(f"0012 0000 00000005 {each} 617070" for each in WRONG_LENGTHS),
        *(f"0000 0009 00000001 0000 {each}" for each in WRONG_TAGS),
    ],
)
def test_a_client_id_or_tags_that_do_not_fit_are_refused(header: str):
    with pytest.raises(ProtocolError):
        parse_request_header(framed(bytes.fromhex(header)) + bytes(40))


def test_nobody_waits_for_a_header_of_a_hundred_megabytes():
    head = (90_000_000).to_bytes(4, "big") + bytes.fromhex("0000 0009 00000001 0000 01 00 80 a0 a5 2a")
    assert parse_request_header(head + bytes(1000)) is None
    with pytest.raises(ProtocolError, match="longer than 1024 bytes"):
        parse_request_header(head + bytes(MAX_HEADER_TAG_BYTES))


def test_more_tagged_fields_than_any_client_sends_are_refused_by_their_number():
    head = bytes.fromhex("0000 0009 00000001 0003 617070")
    few = framed(head + bytes((MAX_TAGS,)) + b"\x05\x01x" * MAX_TAGS + b"body")
    header = parse_request_header(few)
    assert header.client_id == "app"
    assert few[header.end :] == b"body"
    with pytest.raises(ProtocolError, match="has 9 tagged fields where 8 may be"):
        parse_request_header((90_000_000).to_bytes(4, "big") + head + bytes((MAX_TAGS + 1,)))
