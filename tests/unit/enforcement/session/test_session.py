"""The session on a virtual clock: what is charged, who waits, and how long."""

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
    response,
    set_limit,
    throttle_of,
)

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.config.rules import EnforcementRules, ThrottleStyle, UnknownApi
from kafka_quotas.enforcement.session.state import AWAITING_RESPONSE, DRAINING, READING, THROTTLED

PRODUCE_LIMIT = {QuotaType.PRODUCE: 1000.0}
FETCH_LIMIT = {QuotaType.FETCH: 1000.0}
DELAY = EnforcementRules(window=WINDOW, throttle_style=ThrottleStyle.DELAY)


def expected_throttle_ms(pair: Pair, quota_type: QuotaType, amounts: list[int]) -> int:
    """What Kafka's own arithmetic makes of these amounts at once, by a manager of its own."""
    manager = ClientQuotaManager(quota_type, WINDOW)
    manager.limits.update(Entity.of(client_id=CLIENT_ID), 1000.0)
    return [manager.record_and_throttle_ms("ANONYMOUS", CLIENT_ID, amount, pair.now_ms) for amount in amounts][-1]


def test_unknown_apis_pass_untouched_unless_they_are_to_be_refused() -> None:
    unknown = request(10_001, 3, 5, b"anything")
    pair = Pair()
    assert pair.send(unknown) == unknown
    assert pair.answer(response(5, b"whatever")) == response(5, b"whatever")
    pair = Pair(unknown_apis=UnknownApi.REFUSE)
    with pytest.raises(ProtocolError, match="10001"):
        pair.send(unknown)


def test_a_produce_within_its_quota_passes_and_nothing_is_held() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    data = produce(1) + produce(2, size=500)
    assert pair.send(data) == data
    assert pair.session.state.phase is READING
    answers = produce_response(1) + produce_response(2)
    assert pair.answer(answers) == answers
    assert pair.session.state.mute is None


def test_the_frame_length_is_charged_and_the_throttle_time_is_kafkas() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    out = pair.exchange(produce(1, size=5004), produce_response(1))
    throttle_ms = expected_throttle_ms(pair, QuotaType.PRODUCE, [5000])
    assert throttle_ms == 3000  # 5000 bytes over 2 s against 1000 bytes/s
    assert throttle_of(out, -4) == throttle_ms
    assert pair.session.state.wake_at_ms == pair.now_ms + throttle_ms


def test_pipelined_requests_stop_at_the_offending_one() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    first, second, third = produce(1, size=9000), produce(2, size=300), produce(3, size=300)
    assert pair.send(first + second + third) == first
    assert pair.answer(produce_response(1))
    throttle_ms = pair.session.state.wake_at_ms - pair.now_ms
    assert pair.advance(throttle_ms - 1) == b""
    assert pair.advance(1) == second + third


def test_the_mute_starts_with_the_response_and_not_before() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    pair.send(produce(1, size=5004))
    assert pair.advance(10_000) == b""
    assert pair.session.state.wake_at_ms is None
    assert pair.session.state.phase is AWAITING_RESPONSE
    pair.answer(produce_response(1))
    assert pair.session.state.wake_at_ms == pair.now_ms + 3000


def test_what_arrives_during_a_mute_waits_and_comes_out_in_order() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    second = produce(2, size=300)
    pair.exchange(produce(1, size=5004), produce_response(1))
    assert pair.send(second[:100]) == b""
    assert pair.send(second[100:]) == b""
    assert pair.advance(3000) == second


def test_without_acknowledgement_there_is_no_response_to_wait_for_and_the_mute_starts_at_once() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    pair.send(produce(1, size=5004, acks=0) + produce(2, size=300, acks=0))
    assert len(pair.session.state.in_flight) == 0
    assert pair.session.state.wake_at_ms == pair.now_ms + 3000
    assert pair.advance(3000) == produce(2, size=300, acks=0)


@pytest.mark.parametrize("cut", [None, 20])
@pytest.mark.parametrize("version", range(13))
def test_the_throttle_time_is_written_in_every_version_that_has_the_field(version: int, cut: int | None) -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    pair.send(produce(1, size=5004, version=version))
    frame = produce_response(1, version=version)
    pair.answer(frame[:cut])
    if cut is not None:
        pair.answer(frame[cut:])
    assert pair.client == produce_response(1, version=version, throttle_ms=3000 if version else 0)
    assert pair.session.state.wake_at_ms == pair.now_ms + 3000


@pytest.mark.parametrize("version", range(1, 13))
def test_a_throttle_time_of_the_broker_alone_is_passed_on_and_said(version: int) -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    pair.send(produce(1, size=100, version=version))
    assert pair.answer(produce_response(1, version=version, throttle_ms=40)) == produce_response(
        1, version=version, throttle_ms=40
    )
    assert [count.total_ms for count in pair.throttle_stats.set_upstream.by_bucket.values()] == [40]
    assert pair.session.state.mute is None


def test_the_larger_of_the_brokers_throttle_time_and_ours_counts_and_the_brokers_is_said() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    assert throttle_of(pair.exchange(produce(1, size=5004), produce_response(1, throttle_ms=7000)), -4) == 7000
    assert pair.session.state.wake_at_ms == pair.now_ms + 7000
    (count,) = pair.throttle_stats.set_upstream.by_bucket.values()
    assert (count.times, count.total_ms) == (1, 7000)
    pair.advance(7000)
    pair.exchange(produce(2, size=100), produce_response(2, throttle_ms=40))
    assert count.times == 2
    assert len([notice for notice in pair.notices if "upstream throttles" in notice.event]) == 1


def test_back_pressure_that_ends_does_not_end_a_mute() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    second = produce(2, size=300)
    pair.send(produce(1, size=5004) + second)
    pair.session.state.pause_requests()
    pair.answer(produce_response(1))
    pair.session.state.resume_requests(pair.now_ms)
    assert pair.session.state.to_upstream == []
    assert pair.session.state.phase is THROTTLED
    assert pair.advance(3000) == second


def test_a_mute_that_ends_does_not_end_back_pressure() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    second = produce(2, size=300)
    pair.send(produce(1, size=5004) + second)
    pair.answer(produce_response(1))
    pair.session.state.pause_requests()
    assert pair.advance(3000) == b""
    pair.session.state.resume_requests(pair.now_ms)
    assert b"".join(map(bytes, pair.session.state.to_upstream)) == second


def test_nothing_is_forwarded_again_by_releasing_what_did_not_hold() -> None:
    pair = Pair()
    pair.send(produce(1))
    pair.session.state.resume_requests(pair.now_ms)
    assert pair.session.state.to_upstream == []


def test_a_wake_too_early_does_nothing() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    pair.exchange(produce(1, size=5004) + produce(2, size=300), produce_response(1))
    pair.session.state.wake(pair.now_ms + 2999)
    assert pair.session.state.phase is THROTTLED
    assert pair.session.state.wake_at_ms == pair.now_ms + 3000


def test_a_throttle_time_can_be_cut() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT, max_throttle_ms=250)
    assert throttle_of(pair.exchange(produce(1, size=5004), produce_response(1)), -4) == 250
    assert pair.session.state.wake_at_ms == pair.now_ms + 250


def test_a_fetch_is_capped_to_one_window_of_its_quota() -> None:
    pair = Pair(quotas=FETCH_LIMIT)
    expected = fetch(1, min_bytes=2000, max_bytes=2000)  # 1000 bytes/s x (3 - 1) x 1 s
    assert pair.send(fetch(1, min_bytes=9000, max_bytes=50_000_000)) == expected


def test_a_fetch_without_a_quota_is_left_as_it_is() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    assert pair.send(fetch(1, min_bytes=9000)) == fetch(1, min_bytes=9000)


@pytest.mark.parametrize(("version", "charged"), [(11, 5000), (12, 4999), (15, 4999)])
def test_an_over_quota_fetch_is_delivered_and_paid_for_afterwards(version: int, charged: int) -> None:
    pair = Pair(quotas=FETCH_LIMIT)
    out = pair.exchange(fetch(1, version=version), fetch_response(1, size=5004, version=version))
    throttle_ms = expected_throttle_ms(pair, QuotaType.FETCH, [charged])
    assert out == fetch_response(1, size=5004, version=version, throttle_ms=throttle_ms)
    assert pair.send(fetch(2, version=version)) == b""
    assert pair.advance(throttle_ms - 1) == b""
    pair.advance(1)
    held = pair.session.state.held
    assert held is not None, "a response as long as this one needs more room than there is yet"
    assert pair.advance(held.until_ms - pair.now_ms - 1) == b""
    pair.advance(1)
    assert pair.client != out or pair.upstream


def test_the_throttle_time_of_a_fetch_counts_from_its_head() -> None:
    pair = Pair(quotas=FETCH_LIMIT)
    pair.send(fetch(1))
    frame = fetch_response(1, size=5004)
    pair.answer(frame[:12])
    until_ms = pair.session.state.wake_at_ms
    assert until_ms == pair.now_ms + 3000
    pair.advance(100)
    pair.answer(frame[12:])
    assert pair.session.state.wake_at_ms == until_ms


def test_a_client_with_a_fetch_quota_gains_nothing_by_pipelining() -> None:
    pair = Pair(quotas=FETCH_LIMIT)
    capped = fetch(1, max_bytes=2000)
    assert pair.send(fetch(1) + fetch(2) + fetch(3)) == capped
    pair.answer(fetch_response(1, size=500))
    assert len(pair.upstream) == 2 * len(capped)
    pair.answer(fetch_response(2, size=9000))
    assert len(pair.upstream) == 2 * len(capped)
    assert pair.session.state.phase is THROTTLED


def test_fetch_version_0_has_no_field_and_is_muted_all_the_same() -> None:
    pair = Pair(quotas=FETCH_LIMIT)
    pair.send(fetch(1, version=0))
    assert pair.answer(fetch_response(1, size=5004, version=0)) == fetch_response(1, size=5004, version=0)
    assert pair.session.state.wake_at_ms == pair.now_ms + 3000


@pytest.mark.parametrize("version", [11, 15])
def test_a_follower_is_exempt_only_if_its_principal_is_named(version: int) -> None:
    named = Pair(
        quotas=FETCH_LIMIT,
        internal_principals=frozenset({"broker"}),
        principal="broker",
    )
    follower = fetch(1, version=version, replica_id=2)
    assert named.send(follower) == follower
    named.answer(fetch_response(1, size=9000, version=version))
    assert named.session.state.mute is None
    anybody = Pair(quotas=FETCH_LIMIT)
    assert anybody.send(follower) != follower
    anybody.answer(fetch_response(1, size=9000, version=version))
    assert anybody.session.state.mute is not None


def test_an_internal_principal_that_fetches_as_a_consumer_is_limited() -> None:
    pair = Pair(quotas=FETCH_LIMIT, internal_principals=frozenset({"broker"}), principal="broker")
    for version in (11, 15):
        assert pair.send(fetch(version, version=version)) == fetch(version, version=version, max_bytes=2000)
        pair.answer(fetch_response(version, size=100, version=version))


def test_delay_style_holds_the_response_back_and_mutes_nobody_after_it() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT, rules=DELAY)
    second = produce(2, size=100, version=5)
    assert pair.send(produce(1, size=5004, version=5) + second)[-len(second) :] != second
    assert pair.answer(produce_response(1, version=5)) == b""
    assert pair.session.state.is_delaying
    assert pair.advance(2999) == b""
    assert pair.client == b""
    assert pair.advance(1) == second
    assert pair.client == produce_response(1, version=5, throttle_ms=3000)
    assert pair.session.state.wake_at_ms is None


def test_delay_style_does_not_make_a_client_wait_twice() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT | FETCH_LIMIT, rules=DELAY)
    pair.exchange(produce(1, size=5004, version=6), produce_response(1, version=6))
    pair.advance(3000)
    assert pair.client == produce_response(1, version=6, throttle_ms=0)
    pair.client = b""
    pair.exchange(fetch(2, version=8), fetch_response(2, size=5004, version=8))
    pair.advance(3000)
    assert pair.client == fetch_response(2, size=5004, version=8, throttle_ms=0)


def test_delay_style_keeps_the_order_of_responses_that_come_at_once() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT, rules=DELAY)
    pair.send(request(3, 1, 1, b"\x00\x00\x00\x00") + produce(2, size=5004, version=5))
    metadata = response(1, b"\x00\x00\x00\x00" * 3)
    assert pair.answer(metadata + produce_response(2, version=5)) == metadata
    pair.advance(3000)
    assert pair.client == metadata + produce_response(2, version=5, throttle_ms=3000)


def test_a_quota_set_while_connected_counts_from_the_next_request_and_knows_the_history() -> None:
    pair = Pair(quotas={QuotaType.PRODUCE: 1e9})
    pair.exchange(produce(1, size=4004), produce_response(1))
    set_limit(pair.broker, QuotaType.PRODUCE, Entity.of(client_id=CLIENT_ID), 1000.0)
    assert throttle_of(pair.exchange(produce(2, size=1004), produce_response(2)), -4) == 3000
    pair.advance(3000)
    set_limit(pair.broker, QuotaType.PRODUCE, Entity.of(client_id=CLIENT_ID), None)
    pair.exchange(produce(3, size=50_000), produce_response(3))
    assert pair.session.state.mute is None


def test_connections_of_one_client_share_its_bucket() -> None:
    one = Pair(quotas=PRODUCE_LIMIT)
    other = Pair(broker=one.broker)
    one.send(produce(1, size=2004))
    other.send(produce(1, size=3004))
    one.answer(produce_response(1))
    other.answer(produce_response(1))
    assert one.session.state.mute is None
    assert other.session.state.wake_at_ms == other.now_ms + 3000


def test_every_other_client_id_on_the_connection_has_its_own_limit() -> None:
    pair = Pair(quotas=PRODUCE_LIMIT)
    free = produce(1, size=50_000, client_id="other")
    assert pair.send(free) == free
    assert pair.session.state.phase is READING
    pair.send(produce(2, size=5004))
    assert pair.session.state.phase is AWAITING_RESPONSE


def test_a_response_out_of_order_closes_the_connection() -> None:
    pair = Pair()
    pair.send(produce(1) + produce(2))
    with pytest.raises(ProtocolError, match="correlation id 2 where 1 was due"):
        pair.answer(produce_response(2))


def test_a_response_that_nobody_asked_for_closes_the_connection() -> None:
    with pytest.raises(ProtocolError, match="nobody asked for"):
        Pair().answer(produce_response(1))


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff" + bytes(10), b"\xff\xff\xff\xff" + bytes(10), bytes(20)]
)
def test_what_is_no_request_closes_the_connection_before_anything_is_kept(data: bytes) -> None:
    pair = Pair()
    with pytest.raises(ProtocolError):
        pair.send(data)
    assert pair.upstream == b""


def test_a_version_whose_addresses_could_not_be_rewritten_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Metadata version 99"):
        Pair().send(request(3, 99, 1, b"\x00" * 20))


def test_an_api_versions_request_beyond_ours_is_answered_with_ours() -> None:
    pair = Pair()
    out = pair.exchange(request(18, 90, 5, b"\x00\x02a\x02b\x00"), response(5, b"\x00\x00" + b"\x01\x00" * 4))
    assert out[:10] == b"\x00\x00\x00\x10\x00\x00\x00\x05\x00\x23"


def test_a_drained_session_ends_the_request_it_is_at_and_begins_no_other() -> None:
    pair = Pair()
    first, second = produce(1), produce(2)
    pair.send(first[:100])
    pair.session.state.drain()
    assert not pair.session.state.is_drained
    assert pair.send(first[100:] + second) == first[100:]
    assert not pair.session.state.is_drained
    pair.answer(produce_response(1))
    assert pair.session.state.is_drained
    assert pair.session.state.phase is DRAINING
