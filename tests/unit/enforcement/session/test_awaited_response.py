"""Only the response to the request that is awaited lets the next one begin, whatever else is answered before it."""

import pytest
from tests.support.frames.enforcement import (
    CLIENT_ID,
    Pair,
    fetch,
    fetch_response,
    produce,
    produce_response,
    request,
    response,
    set_limit,
    throttle_of,
)
from tests.support.frames.sasl_frames import authenticate, authenticate_answer, handshake, handshake_answer
from tests.support.frames.whole_requests import FilterAll, RecordingFilter

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import ThrottleStyle
from kafka_quotas.enforcement.session.filters import Verdict
from kafka_quotas.enforcement.session.in_flight import PRODUCE
from kafka_quotas.enforcement.session.state import AWAITING_RESPONSE, READING, THROTTLED

CREATE_TOPICS = ApiKey.CREATE_TOPICS
LIMIT = {QuotaType.PRODUCE: 1000.0}


def test_the_response_to_a_fetch_does_not_free_the_client_of_its_throttle_time() -> None:
    pair = Pair(quotas=LIMIT)
    over, behind = produce(2, size=5004), produce(3, size=300)
    assert pair.send(fetch(1) + over + behind) == fetch(1) + over
    pair.answer(fetch_response(1))
    assert pair.upstream == fetch(1) + over
    assert pair.session.state.phase is AWAITING_RESPONSE
    assert throttle_of(pair.answer(produce_response(2)), -4) == 3000
    assert pair.session.state.phase is THROTTLED
    assert pair.advance(2999) == b""
    assert pair.advance(1) == behind
    assert pair.session.state.phase is READING


def test_the_response_to_a_fetch_does_not_free_the_client_of_a_permissive_mutation() -> None:
    recording = RecordingFilter(throttle_at_response_ms=1500)
    pair = Pair(factories={CREATE_TOPICS: FilterAll(recording)})
    create = request(CREATE_TOPICS, 3, 2, b"topics")
    assert pair.send(fetch(1) + create + produce(3)) == fetch(1) + create
    pair.answer(fetch_response(1))
    assert pair.upstream == fetch(1) + create
    assert throttle_of(pair.answer(response(2, bytes(4) + b"result"))[0:]) == 1500
    assert pair.advance(1499) == b""
    assert pair.advance(1) == produce(3)


def test_a_request_that_asks_first_is_not_written_into_the_one_behind_it() -> None:
    asked = request(3, 1, 2, bytes(4))
    create = request(CREATE_TOPICS, 3, 2, b"topics")
    recording = RecordingFilter(verdicts=[Verdict(asked, is_own=True), Verdict(create)])
    pair = Pair(factories={CREATE_TOPICS: FilterAll(recording)})
    behind = produce(3, size=5000)
    pair.exchange(fetch(1) + create + behind[:2000], fetch_response(1))
    assert pair.upstream == fetch(1) + asked
    pair.answer(response(2, b"told"))
    assert pair.upstream == fetch(1) + asked + create
    pair.exchange(behind[2000:], response(2, bytes(4) + b"result"))
    assert pair.upstream == fetch(1) + asked + create + behind


def test_nobody_becomes_another_user_by_authenticating_behind_fetches() -> None:
    pair = Pair()
    first = fetch(1) + fetch(2) + handshake("PLAIN", correlation_id=3)
    mallory = authenticate(b"\x00mallory\x00secret", correlation_id=4)
    again = handshake("PLAIN", correlation_id=5)
    alice = authenticate(b"\x00alice\x00wrong", correlation_id=6)
    assert pair.send(first + mallory + again + alice) == first
    pair.answer(fetch_response(1) + fetch_response(2))
    assert pair.upstream == first
    pair.answer(handshake_answer(correlation_id=3))
    assert pair.upstream == first + mallory
    pair.answer(authenticate_answer(correlation_id=4))
    assert pair.session.tracker.principal == "mallory"
    assert pair.upstream == first + mallory + again
    pair.answer(handshake_answer(correlation_id=5))
    assert pair.upstream == first + mallory + again + alice
    pair.answer(authenticate_answer(error=58, correlation_id=6))
    assert pair.session.tracker.principal == "mallory"


@pytest.mark.parametrize("style", list(ThrottleStyle))
def test_a_limit_set_while_a_fetch_is_under_way_holds_what_comes_behind_it(style: ThrottleStyle) -> None:
    pair = Pair(throttle_style=style)
    pair.send(fetch(1))
    set_limit(pair.broker, QuotaType.FETCH, Entity.of(client_id=CLIENT_ID), 1000.0)
    pair.answer(fetch_response(1, size=5004))
    assert pair.send(produce(2)) == b""
    assert pair.advance(2999) == b""
    assert pair.advance(1) == produce(2)
    assert pair.client == fetch_response(1, size=5004, throttle_ms=3000 if style is ThrottleStyle.MUTE else 0)


def test_a_mute_from_an_earlier_response_outlives_the_awaited_one() -> None:
    pair = Pair(factories={CREATE_TOPICS: FilterAll(RecordingFilter())})
    create = request(CREATE_TOPICS, 3, 2, b"topics")
    pair.send(fetch(1) + create)
    set_limit(pair.broker, QuotaType.FETCH, Entity.of(client_id=CLIENT_ID), 1000.0)
    pair.answer(fetch_response(1, size=5004))
    assert pair.session.state.phase is AWAITING_RESPONSE
    pair.answer(response(2, bytes(4) + b"result"))
    assert pair.session.state.phase is THROTTLED
    assert pair.send(produce(3)) == b""
    assert pair.advance(3000) == produce(3)


def test_an_answer_made_here_does_not_overtake_the_response_that_let_its_request_begin() -> None:
    here = produce_response(2)
    pair = Pair(
        factories={
            CREATE_TOPICS: FilterAll(RecordingFilter()),
            PRODUCE: FilterAll(RecordingFilter(verdicts=[Verdict(None, here)])),
        }
    )
    create, theirs = request(CREATE_TOPICS, 3, 1, b"topics"), response(1, bytes(4) + b"result")
    assert pair.send(create + produce(2)) == create
    assert pair.answer(theirs) == theirs + here


def test_answers_made_here_one_after_the_other_keep_their_order() -> None:
    answers = [response(number, bytes(4) + b"result") for number in (1, 2, 3)]
    recording = RecordingFilter(verdicts=[Verdict(None, answer) for answer in answers])
    pair = Pair(factories={CREATE_TOPICS: FilterAll(recording)})
    requests = [request(CREATE_TOPICS, 3, number, b"topics") for number in (1, 2, 3)]
    assert pair.exchange(fetch(0) + b"".join(requests), fetch_response(0)) == fetch_response(0) + b"".join(answers)
