"""Requests that somebody deals with as a whole: changed, answered here, or preceded by a question to the broker."""

import struct

import pytest
from tests.support.frames.enforcement import Pair, produce, produce_response, request, response, throttle_of
from tests.support.frames.whole_requests import FilterAll, RecordingFilter

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.session.filters import RequestFilter, Verdict

CREATE_TOPICS = ApiKey.CREATE_TOPICS
VERSION = 3
ASKED_FOR = request(CREATE_TOPICS, VERSION, 7, b"three topics")
THEIRS = response(7, struct.pack(">i", 0) + b"result")


def pair_with(recording: RequestFilter, *, api_key: int = CREATE_TOPICS) -> Pair:
    return Pair(factories={api_key: FilterAll(recording)})


def test_a_claimed_request_is_seen_whole_and_its_response_is_changed() -> None:
    merged = response(7, struct.pack(">i", 0) + b"result and more")
    recording = RecordingFilter(verdicts=[Verdict(b"changed")], answer=merged)
    pair = pair_with(recording)
    assert pair.send(ASKED_FOR[:20]) == b""
    assert pair.send(ASKED_FOR[20:]) == b"changed"
    assert pair.answer(THEIRS[:9]) == b""
    assert pair.answer(THEIRS[9:]) == merged
    assert recording.shown == [("request", ASKED_FOR), ("response", THEIRS)]


@pytest.mark.parametrize("is_active", [True, False])
def test_what_nobody_claims_streams(is_active: bool) -> None:
    pair = Pair(factories={CREATE_TOPICS: FilterAll(None, is_active=is_active)})
    assert pair.send(ASKED_FOR[:20]) == ASKED_FOR[:20]
    assert pair.send(ASKED_FOR[20:] + ASKED_FOR) == ASKED_FOR[20:] + ASKED_FOR


@pytest.mark.parametrize(
    "recording", [RecordingFilter(throttle_ms=1500), RecordingFilter(throttle_at_response_ms=1500)]
)
def test_its_throttle_time_is_written_and_waited(recording: RecordingFilter) -> None:
    pair = pair_with(recording)
    assert throttle_of(pair.exchange(ASKED_FOR + produce(8), THEIRS)) == 1500
    assert pair.advance(1499) == b""
    assert pair.session.state.mute is not None
    assert pair.session.state.mute.limiter.quota_type is QuotaType.CONTROLLER_MUTATION
    assert pair.advance(1) == produce(8)


def test_its_throttle_time_is_cut_where_throttle_times_are_and_none_for_shadows() -> None:
    for rules, told in ((EnforcementRules(max_throttle_ms=200), 200), (EnforcementRules(mode=Mode.SHADOW), 0)):
        pair = Pair(rules=rules, factories={CREATE_TOPICS: FilterAll(RecordingFilter(throttle_at_response_ms=1500))})
        assert throttle_of(pair.exchange(ASKED_FOR, THEIRS)) == told


def test_a_request_answered_here_never_reaches_the_broker_and_is_answered_at_once() -> None:
    pair = pair_with(RecordingFilter(verdicts=[Verdict(None, THEIRS)], throttle_ms=300))
    assert pair.send(ASKED_FOR + produce(8)) == b""
    assert pair.client == response(7, struct.pack(">i", 300) + b"result")
    assert pair.advance(300) == produce(8)
    assert pair.answer(produce_response(8)) == produce_response(8)


def test_an_answer_made_here_waits_for_those_asked_for_before_it() -> None:
    pair = pair_with(RecordingFilter(verdicts=[Verdict(None, THEIRS)]))
    first, second = produce_response(1, version=7), produce_response(2, version=7)
    assert pair.exchange(produce(1) + produce(2) + ASKED_FOR + produce(8), first) == first
    assert pair.client == first
    assert pair.answer(second[:10]) == second[:10]
    assert pair.answer(second[10:]) == second[10:] + THEIRS
    assert pair.upstream == produce(1) + produce(2) + produce(8)


def test_a_request_without_a_response_is_dropped_in_silence() -> None:
    recording = RecordingFilter(verdicts=[Verdict(None, None)])
    pair = pair_with(recording, api_key=0)
    assert pair.send(produce(1, acks=0)) == b""
    assert pair.session.state.is_drained
    assert pair.send(produce(2, acks=0)) == produce(2, acks=0)


def test_a_question_goes_first_and_its_answer_is_not_for_the_client() -> None:
    question, told = request(3, 1, 7, b"\x00\x00\x00\x00"), response(7, b"their topics")
    recording = RecordingFilter(verdicts=[Verdict(question, is_own=True), Verdict(ASKED_FOR)])
    pair = pair_with(recording)
    pair.send(produce(1))
    assert pair.send(ASKED_FOR + produce(8)) == question
    pair.answer(produce_response(1))
    assert pair.answer(told[:6]) == b""
    assert pair.answer(told[6:]) == b""
    assert pair.upstream == produce(1) + question + ASKED_FOR
    assert pair.answer(THEIRS) == THEIRS
    assert pair.upstream == produce(1) + question + ASKED_FOR + produce(8)
    assert [kind for kind, _ in recording.shown] == ["request", "told", "request", "response"]


def test_a_question_may_decide_that_the_broker_is_not_asked() -> None:
    question, told = request(3, 1, 7, b"\x00\x00\x00\x00"), response(7, b"their topics")
    pair = pair_with(RecordingFilter(verdicts=[Verdict(question, is_own=True), Verdict(None, THEIRS)]))
    assert pair.send(ASKED_FOR + produce(8)) == question
    assert pair.answer(told) == THEIRS
    assert pair.upstream == question + produce(8)


def test_a_claimed_produce_counts_with_its_bytes_as_any_other() -> None:
    quotas, rules = {QuotaType.PRODUCE: 10.0}, EnforcementRules()
    pair = Pair(quotas=quotas, rules=rules, factories={0: FilterAll(RecordingFilter())})
    assert pair.send(produce(1, size=5004) + produce(2)) == produce(1, size=5004)
    assert throttle_of(pair.answer(produce_response(1)), -4) > 0
    assert pair.session.state.mute is not None
    assert pair.session.state.mute.limiter.quota_type is QuotaType.PRODUCE
