"""Fetches that their bucket has no room for are held, and are let go by whatever makes room."""

import struct
from typing import Any

import pytest
from tests.support.daemon.fetchers import EMPTY_BYTES, Fetcher, FetchWorld, delivered
from tests.support.frames.enforcement import (
    CLIENT_ID,
    START_MS,
    WINDOW,
    Pair,
    fetch,
    fetch_response,
    produce,
    set_limit,
    throttle_of,
)

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.fetch_queue import LONGEST_MS
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import FetchOverQuota, Mode, OnViolation
from kafka_quotas.enforcement.config.rules import EnforcementRules, ThrottleStyle
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.wire.protocol.header import RequestHeader, parse_request_header
from kafka_quotas.wire.proxying.fetch_request import fetch_session

LIMIT = 10_000.0
WINDOW_S = DEFAULT_WINDOW.samples * DEFAULT_WINDOW.window_s
SMALL_LIMIT = 1000.0
CAPACITY = 2000
"""What the small limit allows in two whole samples of a second."""


SHAPES = [(1, False), (1, True), (12, False), (12, True)]
"""Numbers of consumers, and whether they take a new connection for each Fetch."""


@pytest.mark.parametrize("fetches", list(FetchOverQuota))
@pytest.mark.parametrize(("consumers", "reconnects"), SHAPES)
def test_what_is_delivered_stays_within_the_quota_however_it_is_fetched(
    fetches: FetchOverQuota, consumers: int, reconnects: bool
) -> None:
    world = FetchWorld(limit=LIMIT, rules=EnforcementRules(fetch_over_quota=fetches), latency_ms=50)
    fetchers = [world.add(Fetcher(batch_bytes=5000, reconnects=reconnects)) for _ in range(consumers)]
    world.run(12_000)
    for seconds in (0.1, 1, 5, 10, 12):
        assert delivered(fetchers, round(1000 * seconds)) < 1.15 * LIMIT * (seconds + WINDOW_S)
    assert delivered(fetchers, 12_000) > 0.6 * LIMIT * 12
    if fetches is FetchOverQuota.DELIVER:
        assert max(max(each.told_ms, default=0) for each in fetchers) <= LONGEST_MS


@pytest.mark.parametrize(("consumers", "reconnects"), SHAPES)
def test_many_small_fetches_keep_the_rate(consumers: int, reconnects: bool) -> None:
    world = FetchWorld(limit=LIMIT, rules=EnforcementRules())
    fetchers = [world.add(Fetcher(reconnects=reconnects), after_ms=7 * n) for n in range(consumers)]
    world.run(40_000)
    rate = (delivered(fetchers, 40_000) - delivered(fetchers, 20_000)) / 20
    assert 0.97 * LIMIT < rate < 1.03 * LIMIT


@pytest.mark.parametrize("fetches", list(FetchOverQuota))
@pytest.mark.parametrize("consumers", [1, 5])
def test_a_window_of_one_sample_lets_fetches_through(fetches: FetchOverQuota, consumers: int) -> None:
    """Its whole samples (`samples - 1`) hold nothing, which is no reason to ask the broker for 0 bytes."""
    rules = EnforcementRules(window=QuotaWindow(samples=1, window_s=1), fetch_over_quota=fetches)
    world = FetchWorld(limit=LIMIT, rules=rules)
    fetchers = [world.add(Fetcher(waits=True, batch_bytes=300)) for _ in range(consumers)]
    world.run(24_000)
    rate = (delivered(fetchers, 24_000) - delivered(fetchers, 12_000)) / 12
    assert 0.9 * LIMIT < rate < 1.1 * LIMIT


@pytest.mark.parametrize("consumers", [1, 5])
def test_batches_longer_than_the_window_come_at_the_rate_of_the_quota(consumers: int) -> None:
    batch_bytes = 500_000
    world = FetchWorld(limit=LIMIT, rules=EnforcementRules())
    fetchers = [world.add(Fetcher(batch_bytes=batch_bytes)) for _ in range(consumers)]
    world.run(300_000)
    times_ms = sorted(at_ms for each in fetchers for at_ms, _ in each.got)
    assert len(times_ms) == pytest.approx(300 * LIMIT / batch_bytes, abs=1.1)
    assert max(each.longest_ms for each in fetchers) <= LONGEST_MS + 600, "a mute, and a wait that the client asked for"
    assert max(max(each.told_ms) for each in fetchers) == LONGEST_MS


def test_clients_that_only_wait_for_data_take_nothing_from_one_that_gets_some() -> None:
    world = FetchWorld(limit=10 * LIMIT, rules=EnforcementRules())
    busy = world.add(Fetcher(waits=True))
    idle = [world.add(Fetcher(has_data=lambda _: False), after_ms=n) for n in range(40)]
    world.run(27_000)
    assert (delivered([busy], 27_000) - delivered([busy], 15_000)) / 12 > 9.3 * LIMIT
    assert max(each.longest_ms for each in idle) < 1100, "a wait for data, and one for room"


def test_broker_and_network_are_spared_what_would_not_be_delivered() -> None:
    world = FetchWorld(limit=LIMIT, rules=EnforcementRules())
    fetchers = [world.add(Fetcher(batch_bytes=1000, reconnects=True)) for _ in range(12)]
    world.run(20_000)
    assert world.sent_bytes < 1.1 * delivered(fetchers, 20_000)


class Shared:
    """Connections of one client to one broker, and which of them were told to look again."""

    def __init__(self, limit: float = SMALL_LIMIT, rules: EnforcementRules | None = None, **settings: Any) -> None:
        self.rules = rules = rules or EnforcementRules(window=WINDOW, **settings)
        self.broker = QuotaRegistry(rules.window, policies=rules.policies).broker(None)
        self.limit(limit)
        self.called: list[Pair] = []

    def limit(self, limit: float | None) -> None:
        set_limit(self.broker, QuotaType.FETCH, Entity.of(client_id=CLIENT_ID), limit)

    def pair(self) -> Pair:
        pair = Pair(rules=self.rules, broker=self.broker)
        pair.session.state.turn.on_turn = lambda: self.called.append(pair)
        return pair

    def resumed(self) -> list[bytes]:
        """What reached the broker of the connections that were told to look again."""
        called, self.called = self.called, []
        return [passed for pair in called if (passed := resume(pair))]

    def in_flight_and_held(self) -> tuple[Pair, Pair]:
        """Two connections, whose Fetches take all room: the second one's is held."""
        first, second = self.pair(), self.pair()
        assert first.send(fetch(1)) == fetch(1, max_bytes=CAPACITY)
        first.answer(fetch_response(1, size=CAPACITY + 504))
        third = self.pair()
        assert third.send(fetch(1)) == b""
        assert second.send(fetch(1)) == b""
        return third, second


def resume(pair: Pair) -> bytes:
    before = len(pair.upstream)
    pair.session.state.resume_held(pair.now_ms)
    pair._collect()
    return pair.upstream[before:]


def test_fetches_in_flight_count_at_the_size_that_they_may_have() -> None:
    shared = Shared()
    pairs = [shared.pair() for _ in range(20)]
    assert pairs[0].send(fetch(1)) == fetch(1, max_bytes=CAPACITY)
    sizes = [struct.unpack_from(">i", passed, 29)[0] for pair in pairs[1:] if (passed := pair.send(fetch(1)))]
    assert sizes
    assert sum(sizes) <= CAPACITY / 8
    assert pairs[-1].session.state.held is not None
    assert pairs[-1].session.state.waiting_request_bytes


def test_a_response_gives_back_what_it_does_not_need_and_the_first_in_the_queue_goes_on() -> None:
    shared = Shared()
    pairs = [shared.pair() for _ in range(20)]
    for pair in pairs:
        pair.send(fetch(1))
    held = [pair for pair in pairs if pair.session.state.held is not None]
    assert len(held) > 2
    pairs[0].answer(fetch_response(1, size=100))
    assert shared.called == [held[0]]
    assert shared.resumed()
    assert held[0].session.state.held is None
    assert held[1].session.state.held is not None or held[1] in shared.called


@pytest.mark.parametrize("is_upstream", [True, False])
def test_a_connection_that_ends_gives_back_its_place(is_upstream: bool) -> None:
    shared = Shared()
    first, others = shared.pair(), [shared.pair() for _ in range(20)]
    for pair in (first, *others):
        pair.send(fetch(1))
    held = [pair for pair in others if pair.session.state.held is not None]
    leaves = first if is_upstream else held[0]
    leaves.session.state.close()
    leaves.session.end(leaves.now_ms)
    assert shared.called == [held[0] if is_upstream else held[1]]
    manager = shared.broker.manager(QuotaType.FETCH)
    for pair in (first, *others):
        pair.session.end(pair.now_ms)
    assert not manager._waited_at


@pytest.mark.parametrize("limit", [None, 1e9])
def test_a_limit_that_is_raised_or_removed_lets_go_at_once(limit: float | None) -> None:
    shared = Shared()
    held = shared.in_flight_and_held()
    shared.limit(limit)
    assert shared.called == list(held)
    assert len(shared.resumed()) == 2
    assert held[0].session.state.held is None
    assert held[0].session.state.wake_at_ms is None


def test_a_held_fetch_is_read_once_however_often_its_turn_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(chunk: memoryview, header: RequestHeader) -> tuple[int, int] | None:
        read.append(header.correlation_id)
        return fetch_session(chunk, header)

    monkeypatch.setattr("kafka_quotas.enforcement.session.requests.fetch_session", counted)
    shared = Shared()
    held, _ = shared.in_flight_and_held()
    before = len(read)
    for _ in range(5):
        assert resume(held) == b""
    assert held.session.state.held is not None
    assert len(read) == before
    shared.limit(None)
    assert resume(held) == fetch(1), "without a limit it is another request"
    assert len(read) == before


def test_only_the_first_in_the_queue_is_woken_for_room_and_the_others_for_their_deadline() -> None:
    shared = Shared()
    first, second = shared.in_flight_and_held()
    assert first.session.state.wake_at_ms is not None
    assert START_MS < first.session.state.wake_at_ms <= START_MS + 500
    assert second.session.state.wake_at_ms == START_MS + 500


def test_a_fetch_that_waited_as_long_as_it_asked_to_is_answered_empty_and_told_when_to_come_again() -> None:
    shared = Shared()
    first, _ = shared.in_flight_and_held()
    first.advance(499)
    assert first.client == b""
    assert first.advance(1) == b"", "the broker does not see it"
    told_ms = throttle_of(first.client)
    assert 0 < told_ms <= LONGEST_MS
    assert len(first.client) == EMPTY_BYTES + 6, "no topics; version 11 has an error and a session"
    assert first.session.state.mute is not None
    assert first.session.state.mute.until_ms == first.now_ms + told_ms
    assert first.send(fetch(2)) == b""


def test_a_fetch_that_does_not_wait_is_answered_at_once() -> None:
    shared = Shared()
    shared.in_flight_and_held()
    pair = shared.pair()
    assert pair.send(fetch(1, wait_ms=0)) == b""
    assert throttle_of(pair.client) > 0
    assert not pair.session.state.turn.is_waiting  # others would wait until it comes again, if it ever does


def test_what_a_fetch_waited_here_it_does_not_wait_at_the_broker() -> None:
    shared = Shared()
    first, _ = shared.in_flight_and_held()
    shared.limit(1e9)
    first.now_ms += 200
    assert struct.unpack_from(">i", resume(first), 21)[0] == 300


def test_the_session_of_a_fetch_that_the_broker_did_not_see_is_ended() -> None:
    shared = Shared()
    first, _ = shared.in_flight_and_held()
    first.session.end(first.now_ms)
    pair = shared.pair()
    frame = bytearray(fetch(1))
    frame[-18:-10] = struct.pack(">ii", 77, 5)
    header = parse_request_header(frame)
    assert header is not None
    assert fetch_session(frame, header) == (77, 5)
    pair.send(bytes(frame))
    ended = pair.advance(500)
    header = parse_request_header(ended)
    assert header is not None
    assert fetch_session(ended, header) == (77, -1)
    assert pair.client == b""
    pair.answer(fetch_response(1, size=26))
    assert throttle_of(pair.client) > 0
    assert pair.client[-8:-4] == bytes(4), "no session"


def test_a_muted_client_does_not_keep_the_others_waiting() -> None:
    shared = Shared()
    set_limit(shared.broker, QuotaType.PRODUCE, Entity.of(client_id=CLIENT_ID), SMALL_LIMIT)
    first, second = shared.pair(), shared.pair()
    first.exchange(fetch(1), fetch_response(1, size=CAPACITY + 504))
    muted = shared.pair()
    muted.send(produce(1, size=9000))
    muted.send(fetch(2))
    assert second.send(fetch(1)) == b""
    muted.session.end(muted.now_ms)
    assert second.advance(450) or second.session.state.held is not None


def test_a_follower_is_not_held() -> None:
    shared = Shared(internal_principals=frozenset({"broker"}), principal="broker")
    shared.in_flight_and_held()
    follower = fetch(1, replica_id=2)
    assert shared.pair().send(follower) == follower


@pytest.mark.parametrize(
    "rules",
    [
        EnforcementRules(window=WINDOW, mode=Mode.SHADOW),
        EnforcementRules(window=WINDOW, fetch_over_quota=FetchOverQuota.KAFKA),
    ],
)
def test_nothing_is_held_in_shadow_mode_or_where_it_is_answered_as_by_a_broker(rules: EnforcementRules) -> None:
    shared = Shared(rules=rules)
    for _ in range(3):
        pair = shared.pair()
        assert pair.send(fetch(1))
        pair.answer(fetch_response(1, size=9000))


def test_a_response_longer_than_asked_for_is_not_delivered_when_others_took_the_room() -> None:
    shared = Shared()
    pairs = [shared.pair() for _ in range(3)]
    for pair in pairs:
        assert pair.send(fetch(1, max_bytes=10, version=6))
    got = [len(pair.answer(fetch_response(1, size=1504, version=6))) for pair in pairs]
    assert got == [1504, 16, 16]
    ((tags, measured),) = [(s.tags, s.measured) for s in shared.broker.manager(QuotaType.FETCH).buckets(START_MS)]
    assert measured == 1500 / 2, tags


def test_throttle_style_delay_holds_what_has_no_room_as_well() -> None:
    shared = Shared(throttle_style=ThrottleStyle.DELAY)
    first = shared.pair()
    first.exchange(fetch(1), fetch_response(1, size=CAPACITY + 504))
    assert shared.pair().send(fetch(1)) == b""


@pytest.mark.parametrize("refuses", [OnViolation.ERROR, OnViolation.DELAY_THEN_ERROR])
def test_clients_that_get_errors_start_no_more_fetches_at_once_than_others(refuses: OnViolation) -> None:
    longest_ms = 100 if refuses is OnViolation.DELAY_THEN_ERROR else None
    shared = Shared(on_violation=refuses, max_throttle_ms=longest_ms)
    pairs = [shared.pair() for _ in range(30)]
    passed = [pair for pair in pairs if pair.send(fetch(1))]
    assert 0 < len(passed) < 30


def test_a_drained_connection_does_not_wait_for_a_held_fetch() -> None:
    shared = Shared()
    first, second = shared.in_flight_and_held()
    first.session.state.drain()
    assert first.session.state.is_drained
    first.session.state.close()
    first.session.end(first.now_ms)
    assert shared.called == [second]
