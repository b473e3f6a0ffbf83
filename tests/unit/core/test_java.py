"""Doubles, hashes, addresses and names as Java has them, beyond what the conformance lines pin.

The expected texts were printed by JDK 17.
"""

import io
import json
import math
from pathlib import Path

import pytest

from kafka_quotas.core.changes.validation import as_hash_map, hash_code
from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.java import decode_utf8, double_text, parse_double, well_formed
from kafka_quotas.core.model.entity import desanitize, ipv4_literal, ipv6_literal, is_address_or_host, sanitize
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.decisions import (
    DecisionError,
    DecisionRequest,
    Operation,
    decision_from_json,
    request_from_json,
    request_to_json,
)
from kafka_quotas.enforcement.sharing.state import VERSION, read_state
from kafka_quotas.wire.protocol.header import parse_request_header
from kafka_quotas.wire.proxying.sasl import oauthbearer_subject


@pytest.mark.parametrize(
    ("value", "expect"),
    [
        (5e-324, "4.9E-324"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (2.0**-44, "5.6843418860808015E-14"),
        (2e23, "1.9999999999999998E23"),
        (2.6048573519508963e25, "2.6048573519508962E25"),
        (2.0**63, "9.223372036854776E18"),
        (2.0**62, "4.6116860184273879E18"),
        (-0.0, "-0.0"),
        (-1e-3, "-0.001"),
        (9999999.999999998, "9999999.999999998"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_digits_of_java_17(value: float, expect: str) -> None:
    assert double_text(value) == expect


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        ("0x1p3", 8.0),
        ("-0X.8P1f", -1.0),
        ("0x1p99999", math.inf),
        ("-0x1p99999", -math.inf),
        ("0x1p-99999", 0.0),
        ("1e400", math.inf),
        ("\x00 1D\t", 1.0),
        ("-Infinity", -math.inf),
        ("+3", 3.0),
    ],
)
def test_texts_java_reads(text: str, expect: float) -> None:
    assert parse_double(text) == expect


def test_java_reads_nan_with_a_sign() -> None:
    assert math.isnan(parse_double("-NaN"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "1e",
        "e5",
        "nan",
        "inf",
        "infinity",
        "1_0",
        "0x10",
        "0xp1",
        "1L",
        "1dd",
        "NaNf",
        "1,5",
        "\uff11",
        "1\u00a0",
    ],
)
def test_texts_java_refuses(text: str) -> None:
    with pytest.raises(InvalidQuotaError, match="not a number"):
        parse_double(text)


def test_hashes_and_their_order() -> None:
    assert hash_code("producer_byte_rate") == 3462464842
    assert hash_code("é😀") == 1996812
    assert hash_code(None) == hash_code("") == 0
    keys = ("controller_mutation_rate", "request_percentage", "consumer_byte_rate", "producer_byte_rate")
    assert list(as_hash_map([(key, 1) for key in keys], 4)) == [keys[3], keys[2], keys[0], keys[1]]
    assert list(as_hash_map([(key, 1) for key in keys], 16)) == [keys[1], keys[3], keys[2], keys[0]]
    assert list(as_hash_map([("c", 1), ("b", 2), ("a", 3), ("b", 4)], 4).items()) == [("a", 3), ("b", 4), ("c", 1)]


@pytest.mark.parametrize(
    ("text", "expect"),
    [("1.2.3.4", "1.2.3.4"), ("127.1", "127.0.0.1"), ("1.65535", "1.0.255.255"), ("4294967295", "255.255.255.255")],
)
def test_ipv4_of_fewer_parts(text: str, expect: str) -> None:
    assert ipv4_literal(text) == bytes(map(int, expect.split(".")))


@pytest.mark.parametrize(
    "text", ["", "1.", ".1", "1..2", "256.1.1.1", "1.2.3.256", "4294967296", "0x7f.1", "1.2.3.4.5", "٣"]
)
def test_no_ipv4(text: str) -> None:
    assert ipv4_literal(text) is None


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        ("::", bytes(16)),
        ("::1", bytes(15) + b"\x01"),
        ("2001:db8::1", bytes.fromhex("20010db8000000000000000000000001")),
        ("1:2:3:4:5:6:7:8", bytes.fromhex("00010002000300040005000600070008")),
        ("::ffff:1.2.3.4", bytes(10) + b"\xff\xff\x01\x02\x03\x04"),
        ("00001::", b"\x00\x01" + bytes(14)),
    ],
)
def test_ipv6(text: str, expect: bytes) -> None:
    assert ipv6_literal(text) == expect


@pytest.mark.parametrize(
    "text", ["", ":", ":1", "1:", "1::2::3", ":::", "1:2:3:4:5:6:7:8::", "::12345", "::1.2.3", "::g"]
)
def test_no_ipv6(text: str) -> None:
    assert ipv6_literal(text) is None


@pytest.mark.parametrize(
    ("name", "expect"),
    [
        ("", True),
        ("[::1]", True),
        ("[1.2.3.4]", False),
        ("[]", False),
        ("[::1", False),
        ("fe80::1%1", True),
        ("fe80::1%eth0", False),
        ("db.example", True),
        ("other.example", False),
        ("[db.example]", True),
        ("1.2.3.4:80", False),
    ],
)
def test_addresses_and_hosts(name: str, *, expect: bool) -> None:
    assert is_address_or_host(name, lambda host: host == "db.example") is expect


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        ("%+4", "\x04"),
        ("%-0", "\x00"),
        ("%\u06641", "A"),
        ("%\uff23\uff13%A9", "é"),
        ("%ED%A0%80", "\ufffd"),
        ("%ED%A0A", "\ufffdA"),
        ("%F0%9F%98%80", "😀"),
        ("%C3+%A9", "\ufffd \ufffd"),
        ("%F4%90%80%80", "\ufffd" * 4),
    ],
)
def test_escapes_are_read_as_java_reads_them(text: str, expect: str) -> None:
    assert desanitize(text) == expect


@pytest.mark.parametrize("text", ["%-4", "%%41", "%4", "%4😀", "a%", "% 4", "%++"])
def test_broken_escapes(text: str) -> None:
    with pytest.raises(InvalidQuotaError, match="percent escape"):
        desanitize(text)


def test_lone_surrogates_become_question_marks() -> None:
    assert sanitize("a\ud800b") == "a%3Fb"


NAMES = [
    (b"plain", "plain"),
    ("é😀".encode(), "é😀"),
    (b"a\xffb", "a\ufffdb"),
    (b"a\xed\xa0\x80b", "a\ufffdb"),
    (b"\xed\xa0\xbd\xed\xb8\x80", "\ufffd\ufffd"),
    (b"a\xe2\x82", "a\ufffd"),
    (b"\xf0\x9f\x98z", "\ufffdz"),
]
"""Bytes on the wire, and what Java makes of them (run on JDK 17)."""


def on_the_wire(name: bytes) -> str:
    body = b"\x00\x0c\x00\x01\x00\x00\x00\x01" + len(name).to_bytes(2, "big") + name
    header = parse_request_header(len(body).to_bytes(4, "big") + body)
    assert header is not None
    return header.client_id or ""


@pytest.mark.parametrize(("name", "text"), NAMES)
def test_bytes_are_read_alike_on_every_way_in(name: bytes, text: str) -> None:
    assert decode_utf8(name) == text
    assert on_the_wire(name) == text
    escaped = name.decode("utf-8", "surrogateescape")  # what Python has of them, for instance on a command line
    assert well_formed(escaped) == text
    request = DecisionRequest(Operation.CHECK, QuotaType.PRODUCE, 1.0, "u", escaped)
    assert request_from_json(json.loads(json.dumps(request_to_json(request)))).client_id == text


@pytest.mark.parametrize(("text", "read"), [("a\ud800b", "a\ufffdb"), ("\udfff\ud800", "\ufffd\ufffd"), ("é", "é")])
def test_a_lone_surrogate_is_replaced_on_every_way_in(text: str, read: str, tmp_path: Path) -> None:
    message = json.loads(json.dumps({"op": "record", "type": "produce", "amount": 1, "client_id": text, "user": text}))
    ask = request_from_json({**message, "ip": text, "topic": text})
    assert (ask.user, ask.client_id, ask.ip, ask.topic) == (read, read, read, read)
    snapshot = {"name": [text, text], "kind": "k", "recorded_ms": 1, "figures": [1.0]}
    bucket = {"broker": 1, "mode": "kafka", "quota_type": "produce", "snapshot": snapshot}
    state_text = {"v": VERSION, "settings": [], "buckets": [bucket], "saved_ms": 1}
    (tmp_path / "state").write_text(json.dumps(state_text))
    state = read_state(tmp_path / "state")
    assert state is not None
    assert state.buckets[0].snapshot.name == (read, read)


def test_a_claim_with_a_lone_surrogate_names_a_user_that_can_be_written() -> None:
    token = b"n,,\x01auth=Bearer e30.eyJzdWIiOiJhXHVkODAwYiJ9.x\x01\x01"  # {"sub":"a\ud800b"}
    assert oauthbearer_subject(token) == "a\ufffdb"


def test_what_is_told_about_such_names_can_be_written() -> None:
    request = DecisionRequest(Operation.CHECK, QuotaType.PRODUCE, 1.0)
    quota = {"key": "q", "entity": "client-id a\ud800", "limit": 1.0, "observed": 1.0}
    decision = decision_from_json({"ok": True, "delay_ms": 1, "quota": quota, "shadow": False}, request)
    error = decision_from_json({"ok": False, "error": "no a\ud800"}, request)
    assert isinstance(error, DecisionError)
    assert not isinstance(decision, DecisionError)
    assert decision.entity == "client-id a\ufffd"
    io.StringIO().write(error.message)
    assert error.message.encode()
