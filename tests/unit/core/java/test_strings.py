"""Names that are not valid UTF-8 are the same names wherever they come in."""

import io
import json
from pathlib import Path

import pytest

from kafka_quotas.core.java.strings import decode_utf8, well_formed
from kafka_quotas.core.quotas.quota_manager import BucketSnapshot, QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.decisions import (
    DecisionError,
    DecisionRequest,
    Operation,
    decision_from_json,
    request_from_json,
    request_to_json,
)
from kafka_quotas.enforcement.state.state_file import SavedBucket, read_state, state_file, state_text
from kafka_quotas.wire.passing.sasl import oauthbearer_subject
from kafka_quotas.wire.protocol.request_header import parse_request_header

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
    snapshot = BucketSnapshot(name=(text, text), kind="k", recorded_ms=1, figures=(1.0,))
    bucket = SavedBucket(broker=1, mode=Mode.KAFKA, quota_type=QuotaType.PRODUCE, snapshot=snapshot)
    with state_file(tmp_path / "state") as file:
        file.writelines(state_text((), [[bucket]], now_ms=lambda: 1))
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
