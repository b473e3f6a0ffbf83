"""What one connection may have under way: requests that wait for responses, room for gathered ones, and which APIs."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.frames.enforcement import (
    CLIENT_ID,
    START_MS,
    Pair,
    fetch,
    fetch_response,
    framed,
    produce,
    produce_response,
    request,
    response,
)
from tests.support.frames.whole_requests import FilterAll, RecordingFilter

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import (
    EnforcementRules,
    ThrottleStyle,
    UnknownApi,
    parse_apis,
    parse_denied_apis,
)
from kafka_quotas.enforcement.session.frames import SMALL_BYTES, GatherBudget

HEARTBEAT = 12
CREATE_TOPICS = ApiKey.CREATE_TOPICS


def heartbeat(correlation_id: int) -> bytes:
    return request(HEARTBEAT, 0, correlation_id, b"", client_id="")


def test_no_request_begins_while_as_many_as_may_wait_for_their_responses() -> None:
    pair = Pair(rules=EnforcementRules(max_in_flight=10))
    sent = [heartbeat(number) for number in range(100)]
    pair.send(b"".join(sent))
    assert pair.upstream == b"".join(sent[:10])
    assert len(pair.session.state.in_flight) == 10
    assert pair.session.state.waiting_request_bytes == 90 * len(sent[0]), "the client is left unread"
    for number in range(4):
        pair.answer(response(number, bytes(2)))
    assert pair.upstream == b"".join(sent[:10]), "they go on by halves"
    pair.answer(response(4, bytes(2)))
    assert pair.upstream == b"".join(sent[:15])
    for number in range(5, 100):
        pair.answer(response(number, bytes(2)))
    assert pair.upstream == b"".join(sent)
    assert len(pair.session.state.in_flight) == 0
    assert pair.session.state.waiting_request_bytes == 0


def test_requests_that_take_the_short_way_are_bounded_as_well() -> None:
    pair = Pair(rules=EnforcementRules(max_in_flight=50))
    pair.send(produce(0, size=80))
    pair.send(b"".join(produce(number, size=80) for number in range(1, 1000)))
    assert len(pair.session.state.in_flight) == 50
    for number in range(1000):
        pair.answer(produce_response(number))
    assert pair.upstream == b"".join(produce(number, size=80) for number in range(1000))


def test_requests_without_a_response_are_not_counted() -> None:
    pair = Pair(rules=EnforcementRules(max_in_flight=2))
    sent = b"".join(produce(number, size=80, acks=0) for number in range(100))
    assert pair.send(sent) == sent


def test_a_request_that_is_awaited_may_be_the_last_that_may_be_under_way() -> None:
    pair = Pair(max_in_flight=1, quotas={QuotaType.PRODUCE: 1000.0})
    pair.exchange(produce(1, size=9000) + heartbeat(2) + heartbeat(3), produce_response(1))
    assert pair.session.state.mute is not None
    pair.advance(60_000)
    assert pair.upstream == produce(1, size=9000) + heartbeat(2)
    pair.answer(response(2, bytes(2)))
    assert pair.upstream.endswith(heartbeat(3))


@given(st.integers(1, 5), st.integers(0, 2**32), st.booleans())
def test_whatever_is_asked_passes_in_order_and_no_more_is_under_way_than_may_be(
    most: int, seed: int, is_fast: bool
) -> None:
    choice = random.Random(seed)
    pair = Pair(rules=EnforcementRules(max_in_flight=most), is_fast=is_fast)
    makers = [heartbeat, lambda number: produce(number, size=60 + number % 7)]
    sent = [choice.choice(makers)(number) for number in range(40)]
    waiting, answered = b"".join(sent), 0
    for _ in range(2000):
        if waiting and not pair.session.state.waiting_request_bytes and choice.random() < 0.7:
            cut = choice.randint(1, 400)
            pair.send(waiting[:cut])
            waiting = waiting[cut:]
        elif len(pair.session.state.in_flight):
            is_produce = sent[answered][4:6] == bytes(2)
            pair.answer(produce_response(answered) if is_produce else response(answered, bytes(2)))
            answered += 1
        assert len(pair.session.state.in_flight) <= most
    assert answered == len(sent)
    assert pair.upstream == b"".join(sent)


def mutation(correlation_id: int, size: int) -> bytes:
    start = request(CREATE_TOPICS, 4, correlation_id, b"")
    return framed(start[4:] + bytes(size - len(start)))


def gathering(budget: GatherBudget, recording: RecordingFilter) -> Pair:
    factories = {CREATE_TOPICS: FilterAll(recording)}
    return Pair(factories=factories, gathering=budget, entity=Entity.of(client_id=CLIENT_ID))


def test_a_request_that_finds_no_room_to_be_gathered_waits_and_is_seen_once() -> None:
    budget = GatherBudget(300_000)
    first, second = RecordingFilter(), RecordingFilter()
    one, other = gathering(budget, first), gathering(budget, second)
    told: list[str] = []
    other.session.gathering.on_room = lambda: told.append("room")
    one.send(mutation(1, 200_000)[:150_000])
    other.send(mutation(2, 200_000)[:100_000])
    assert budget.used_bytes == 200_000 - 4
    assert other.session.state.waiting_request_bytes == 100_000, "it is left unread"
    one.send(mutation(1, 200_000)[150_000:])
    assert told == ["room"]
    assert one.upstream == mutation(1, 200_000)
    other.session.state.resume_gathering(other.now_ms)
    assert other.session.state.waiting_request_bytes == 0
    other.send(mutation(2, 200_000)[100_000:])
    assert other.upstream == mutation(2, 200_000)
    assert second.shown == [("request", mutation(2, 200_000))]
    assert budget.used_bytes == 0


def test_a_small_request_is_gathered_whatever_others_hold() -> None:
    budget = GatherBudget(300_000)
    one, other = gathering(budget, RecordingFilter()), gathering(budget, RecordingFilter())
    one.send(mutation(1, 900_000)[:1000])
    assert other.send(mutation(2, SMALL_BYTES)) == mutation(2, SMALL_BYTES)


def test_an_api_that_a_listener_does_not_serve_ends_the_connection() -> None:
    for rules in (
        EnforcementRules(denied_apis=parse_denied_apis("Produce, 12")),
        EnforcementRules(allowed_apis=parse_apis("metadata")),
    ):
        for frame in (heartbeat(1), produce(1, size=80)):
            pair = Pair(rules=rules)
            with pytest.raises(ProtocolError, match="is not served here"):
                pair.send(frame)
            assert pair.upstream == b""
        pair = Pair(rules=rules)
        metadata = request(3, 1, 1, bytes(4))
        assert pair.send(metadata) == metadata


def test_an_api_that_is_not_served_is_not_announced() -> None:
    pair = Pair(rules=EnforcementRules(denied_apis=parse_denied_apis("Heartbeat"), unknown_apis=UnknownApi.REFUSE))
    pair.send(request(18, 0, 1, b""))
    ranges = [(3, 0, 12), (HEARTBEAT, 0, 4), (18, 0, 4), (10_001, 0, 1)]
    told = b"".join(struct.pack(">hhh", *each) for each in ranges)
    seen = pair.answer(response(1, bytes(2) + struct.pack(">i", len(ranges)) + told))
    count = struct.unpack_from(">i", seen, 10)[0]
    assert [struct.unpack_from(">h", seen, 14 + 6 * number)[0] for number in range(count)] == [3, 18]


GARBAGE = framed(struct.pack(">hhih", HEARTBEAT, 0, 2, 1000))
"""A request whose client-id is longer than the request."""


def test_what_is_wrong_with_a_request_that_waited_is_the_clients_fault_though_the_broker_spoke_last() -> None:
    pair = Pair(quotas={QuotaType.FETCH: 1000.0})
    pair.send(fetch(1) + GARBAGE)
    with pytest.raises(ProtocolError, match="client id") as caught:
        pair.answer(fetch_response(1, size=100))
    assert caught.value.sender == "client"
    muted = Pair(quotas={QuotaType.PRODUCE: 1000.0})
    muted.send(produce(1, size=50_000) + GARBAGE)
    muted.answer(produce_response(1))
    with pytest.raises(ProtocolError, match="client id") as caught:
        muted.session.state.unmute(START_MS)
    assert caught.value.sender == "client"


def test_what_is_wrong_with_a_response_that_waited_is_the_upstreams_fault_though_the_timer_spoke_last() -> None:
    pair = Pair(quotas={QuotaType.PRODUCE: 1000.0}, throttle_style=ThrottleStyle.DELAY)
    assert pair.exchange(produce(1, size=50_000), produce_response(1) + response(9, b"")) == b""
    with pytest.raises(ProtocolError, match="nobody asked") as caught:
        pair.session.state.unmute(START_MS)
    assert caught.value.sender == "upstream"
