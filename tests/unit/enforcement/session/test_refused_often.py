"""A client that gets errors instead of delays is muted like any other once it was refused ten times in a window."""

import pytest
from tests.support.frames.enforcement import (
    CLIENT_ID,
    WINDOW,
    Pair,
    fetch,
    fetch_response,
    produce,
    produce_response,
    request,
)

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import OnViolation
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.enforcement.session.state import MAX_REFUSED

LIMIT = 1000.0
SIZE = 5004
WINDOW_MS = WINDOW.samples * WINDOW.window_ms


def over(on_violation: OnViolation = OnViolation.ERROR) -> Pair:
    longest_ms = 1 if on_violation is OnViolation.DELAY_THEN_ERROR else None
    pair = Pair(
        quotas={QuotaType.PRODUCE: LIMIT, QuotaType.FETCH: LIMIT}, on_violation=on_violation, max_throttle_ms=longest_ms
    )
    pair.exchange(data(0), produce_response(0))
    pair.advance(1)
    return pair


def data(number: int) -> bytes:
    """A Produce without topics, which a filter can read."""
    tail = (-1).to_bytes(2, "big", signed=True) + (1).to_bytes(2, "big") + bytes(4) + bytes(4)
    return produce(number, size=SIZE) if number == 0 else request(0, 7, number, tail)


@pytest.mark.parametrize("on_violation", [OnViolation.ERROR, OnViolation.DELAY_THEN_ERROR])
def test_the_tenth_refusal_mutes(on_violation: OnViolation) -> None:
    pair = over(on_violation)
    for number in range(1, MAX_REFUSED):
        pair.send(data(number))
        assert pair.counters.refused_requests == number
        assert pair.session.state.mute is None
    pair.send(data(MAX_REFUSED) + data(MAX_REFUSED + 1))
    assert pair.counters.refused_requests == MAX_REFUSED
    assert pair.session.state.mute is not None
    assert pair.session.state.waiting_request_bytes == len(data(MAX_REFUSED + 1))


def test_a_client_takes_what_its_quota_allows_and_ten_requests_and_no_more() -> None:
    pair = over()
    taken, number, until_ms = SIZE, 0, pair.now_ms + 20_000
    while pair.now_ms < until_ms:
        while pair.session.state.mute is None:  # afterwards it is left unread
            number += 1
            pair.send(produce(number, size=500))
            taken += 500
            if pair.session.state.in_flight:
                pair.answer(produce_response(number))
        pair.advance(100)
    assert pair.counters.refused_requests == MAX_REFUSED
    # A request is charged whole, so the one that takes a client over passes, as at a broker.
    assert taken <= LIMIT * (20 + WINDOW_MS / 1000) + (MAX_REFUSED + 1) * 500


def test_refusals_that_are_rarer_mute_nobody() -> None:
    pair = over()
    for number in range(1, 3 * MAX_REFUSED):
        pair.send(data(number))
        assert pair.session.state.mute is None
        pair.advance(WINDOW_MS // MAX_REFUSED + 40)


def test_fetches_are_refused_and_counted_too() -> None:
    pair = Pair(quotas={QuotaType.FETCH: LIMIT}, on_violation=OnViolation.ERROR)
    pair.exchange(fetch(0), fetch_response(0, size=9004))
    for number in range(1, MAX_REFUSED + 1):
        assert pair.send(fetch(number)) == b""
    assert pair.session.state.mute is not None
    assert pair.send(fetch(11)) == b""
    assert pair.counters.refused_requests == MAX_REFUSED


@pytest.mark.parametrize(
    ("quota_type", "api_key", "version"),
    [(QuotaType.REQUEST, 12, 2), (QuotaType.REQUEST_RATE, 12, 2)],
)
def test_requests_on_new_connections_are_charged_but_each_connection_has_one(
    quota_type: QuotaType, api_key: int, version: int
) -> None:
    """As at a broker, whose mute is of a connection: `connection_creation_rate` is what bounds them."""
    limit = 0.1 if quota_type is QuotaType.REQUEST else 1.0
    broker = QuotaRegistry(WINDOW).broker(None)
    asked = request(api_key, version, 1, bytes(20), client_id=CLIENT_ID)
    passed = [Pair(quotas={quota_type: limit}, broker=broker).send(asked + asked) for _ in range(20)]
    assert passed[10:] == 10 * [asked], "what is sent ahead waits"
