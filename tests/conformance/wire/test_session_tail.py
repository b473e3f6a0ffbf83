"""Fetch responses with addresses behind their records, through a whole session."""

import dataclasses
import struct

import pytest
from tests.support.frames import kio_samples
from tests.support.frames.api_places import broker_addresses
from tests.support.frames.cut_frames import tail_of
from tests.support.frames.enforcement import CLIENT_ID, WINDOW, Pair, request

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.quotas.fetch_queue import LONGEST_MS
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import EnforcementRules

VERSION = 17
GIB = 1 << 30


def ask(pair: Pair, correlation_id: int = 77) -> None:
    message = dataclasses.replace(kio_samples.filled_request(ApiKey.FETCH, VERSION), max_bytes=2**31 - 1, min_bytes=1)
    frame = bytearray(kio_samples.request_frame(message, client_id=CLIENT_ID))
    frame[8:12] = correlation_id.to_bytes(4, "big")
    pair.send(bytes(frame))


def answer_with_endpoints(host: str = "a-broker-of-the-cluster.example") -> bytes:
    message = kio_samples.filled_response(ApiKey.FETCH, VERSION)
    (endpoint, *_) = message.node_endpoints
    brokers = tuple(dataclasses.replace(endpoint, node_id=n, host=host, port=9092) for n in (1, 2))
    return kio_samples.response_frame(dataclasses.replace(message, node_endpoints=brokers))


@pytest.mark.parametrize("quota", [{}, {QuotaType.FETCH: 100.0}], ids=["no quota", "over quota"])
def test_addresses_are_ours_wherever_the_response_is_cut(quota: dict[QuotaType, float]) -> None:
    frame = answer_with_endpoints()
    tail = len(frame) - len(tail_of(ApiKey.FETCH, frame))
    throttle_ms = LONGEST_MS if quota else struct.unpack_from(">i", frame, 9)[0]
    assert len(frame) > quota.get(QuotaType.FETCH, 0.0) * LONGEST_MS / 1000, "or it would not take that long"
    # Everywhere in the head and about the tail; records are passed on alike wherever they are cut.
    for cut in (*range(1, 120), *range(120, tail - 60, 11), *range(tail - 60, len(frame))):
        pair = Pair(quotas=quota, rules=EnforcementRules(window=WINDOW))
        ask(pair)
        got = pair.answer(frame[:cut]) + pair.answer(frame[cut:])
        named = [(broker.node_id, broker.host, broker.port) for broker in broker_addresses(ApiKey.FETCH, VERSION, got)]
        assert named == [(1, "127.0.0.1", 20_001), (2, "127.0.0.1", 20_002)]
        assert len(got) == struct.unpack_from(">i", got)[0] + 4
        assert len(got) == len(frame) or cut < 16, "where the head comes with the rest all is at hand, and exact"
        assert struct.unpack_from(">i", got, 9)[0] == throttle_ms
        assert got[13:tail] == frame[13:tail]
        assert len(pair.session.state.in_flight) == 0


def test_a_response_at_hand_as_a_whole_is_rewritten_exactly() -> None:
    frame = answer_with_endpoints()
    pair = Pair()
    ask(pair)
    got = pair.answer(frame)
    expected = kio_samples.with_addresses(
        kio_samples.decoded_response(frame, ApiKey.FETCH, VERSION),
        lambda node, _host, _port: ("127.0.0.1", 20_000 + node),
    )
    assert kio_samples.decoded_response(got, ApiKey.FETCH, VERSION) == expected


def test_two_gigabytes_pass_as_views_and_their_addresses_are_ours() -> None:
    """The largest response that the protocol knows.

    Nothing but its end is ever copied.
    """
    frame = answer_with_endpoints()
    tail = tail_of(ApiKey.FETCH, frame)
    records = 2**31 - 1000 - len(tail)
    pair = Pair()
    ask(pair)
    passed = 0
    received: list[bytes] = []

    def feed(piece: bytes) -> None:
        nonlocal passed
        pair.session.receive_from_broker(piece, pair.now_ms, 0)
        passed += sum(map(len, pair.session.state.to_client))
        received.append(bytes(pair.session.state.to_client[-1][-400:]) if pair.session.state.to_client else b"")
        pair.session.state.to_client.clear()

    partition = struct.pack(">ihqqq", 0, 0, 0, 0, 0) + b"\1" + struct.pack(">i", -1)
    body_start = frame[8:9] + frame[9:19] + b"\2" + bytes(16) + b"\2" + partition
    size = encoded(records + 1)
    behind = b"\0\0" + tail
    length = 4 + len(body_start) + len(size) + records + len(behind)
    assert GIB < length < 2 * GIB
    feed(struct.pack(">ii", length, 77) + body_start + size)
    chunk = bytes(1 << 20)
    for _ in range(records >> 20):
        feed(chunk)
    feed(chunk[: records & (1 << 20) - 1] + behind[:40])
    feed(behind[40:])
    assert passed == length + 4
    assert len(pair.session.state.in_flight) == 0
    assert pair.brokers_named == [
        (1, "a-broker-of-the-cluster.example", 9092),
        (2, "a-broker-of-the-cluster.example", 9092),
    ]
    assert b"127.0.0.1" in received[-1]
    assert b"a-broker-of-the-cluster" not in b"".join(received[-2:])


def encoded(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def test_the_next_response_begins_where_this_one_ends() -> None:
    frames = []
    for correlation_id in (1, 2):
        frame = bytearray(answer_with_endpoints())
        frame[4:8] = correlation_id.to_bytes(4, "big")
        frames.append(bytes(frame))
    ping = struct.pack(">ii", 4, 3)
    data = b"".join(frames) + ping
    for size in (7, 100, len(frames[0]) - 1, len(frames[0]) + 1, len(data)):
        other = Pair()
        for correlation_id in (1, 2):
            ask(other, correlation_id)
        other.send(request(12, 1, 3, b"ping"))
        got = b"".join(other.answer(data[start : start + size]) for start in range(0, len(data), size))
        assert got.endswith(ping)
        assert len(other.session.state.in_flight) == 0
        assert got.count(b"127.0.0.1") == 4
