"""Requests over a quota that are refused with an error instead of being delayed."""

import struct

import pytest
from tests.support.frames.enforcement import (
    CLIENT_ID,
    START_MS,
    Pair,
    fetch,
    fetch_response,
    produce,
    produce_response,
    request,
    response,
    throttle_of,
)

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import OnViolation

FETCH_LIMIT = {QuotaType.FETCH: 1000.0}
ERROR = 89


@pytest.mark.parametrize("version", [3, 7, 9])
def test_a_client_that_gets_errors_is_not_delayed_but_refused_while_it_is_over(version: int) -> None:
    pair = Pair(quotas={QuotaType.PRODUCE: 1000.0}, on_violation=OnViolation.ERROR)
    first, second = (produced(number, version=version) for number in (1, 2))
    assert pair.exchange(first, produce_response(1, version=version)) == produce_response(1, version=version)
    assert pair.session.state.mute is None
    assert pair.send(second[:40]) == b""
    assert pair.send(second[40:]) == b""
    refused = pair.client[len(produce_response(1, version=version)) :]
    assert struct.pack(">ih", 0, ERROR) in refused  # partition 0
    assert (b"producer_byte_rate of client-id app is exceeded" in refused) is (version >= 8)
    throttle_ms = throttle_of(pair.client, -5 if version >= 9 else -4)
    assert 0 < throttle_ms < 4000
    assert pair.session.state.mute is None
    assert pair.counters.refused_requests == 1
    assert [kind for kind, _ in pair.throttle_stats.refused_here.by_bucket] == [QuotaType.PRODUCE]
    pair.advance(throttle_ms)
    assert pair.send(produced(3, version=version, size=100)) == produced(3, version=version, size=100)


def produced(correlation_id: int, *, version: int, size: int = 5000) -> bytes:
    """A Produce request of one partition with so many bytes of records, of versions from 3 on."""
    if version >= 9:
        length = (size + 1) & 0x7F | 0x80, (size + 1) >> 7
        topics = b"\x02\x02t\x02" + bytes(4) + bytes(length) + bytes(size) + b"\x00\x00\x00"
        return request(0, version, correlation_id, b"\x00\x00" + struct.pack(">hi", 1, 30000) + topics)
    topics = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iii", 1, 0, size) + bytes(size)
    return request(0, version, correlation_id, b"\xff\xff" + struct.pack(">hi", 1, 30000) + topics)


def test_refused_bytes_count_for_nothing() -> None:
    pair = Pair(quotas={QuotaType.PRODUCE: 1000.0}, on_violation=OnViolation.ERROR)
    pair.exchange(produced(1, version=7), produce_response(1))
    before = pair.broker.client("ANONYMOUS", CLIENT_ID).produce.peek(START_MS)
    for number in range(2, 12):
        pair.send(produced(number, version=7))
    assert pair.broker.client("ANONYMOUS", CLIENT_ID).produce.peek(START_MS) == before
    assert pair.counters.refused_requests == 10


def test_a_delay_that_was_cut_is_followed_by_errors() -> None:
    pair = Pair(quotas={QuotaType.PRODUCE: 1000.0}, on_violation=OnViolation.DELAY_THEN_ERROR, max_throttle_ms=200)
    assert throttle_of(pair.exchange(produced(1, version=7), produce_response(1)), -4) == 200
    assert pair.send(produced(2, version=7)) == b""
    assert pair.advance(200) == b""
    assert pair.counters.refused_requests == 1


@pytest.mark.parametrize(("version", "code"), [(11, ERROR), (5, None)])
def test_a_refused_fetch_is_answered_empty_with_the_error_where_there_is_room(version: int, code: int | None) -> None:
    pair = Pair(quotas=FETCH_LIMIT, on_violation=OnViolation.ERROR)
    pair.send(fetch(1, version=version))
    data = fetch_response(1, size=5004, version=version)
    assert pair.answer(data) == data
    assert pair.send(fetch(2, version=version)) == b""
    answer = pair.client[len(data) :]
    throttle_ms = throttle_of(answer)
    session = b"" if code is None else struct.pack(">hi", code, 0)
    assert answer == response(2, struct.pack(">i", throttle_ms) + session + bytes(4))
    assert throttle_ms > 0
    assert pair.session.state.mute is None


def test_produce_without_acknowledgement_can_be_told_no_error_and_is_delayed() -> None:
    pair = Pair(quotas={QuotaType.PRODUCE: 1000.0}, on_violation=OnViolation.ERROR)
    assert pair.send(produce(1, size=5004, acks=0) + produce(2, acks=0)) == produce(1, size=5004, acks=0)
    assert pair.advance(3000) == produce(2, acks=0)
