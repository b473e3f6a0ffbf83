"""What a session does on other terms than Kafka's defaults, and with limits on requests and their time."""

import struct

import pytest
from tests.support.frames.enforcement import (
    CLIENT_ID,
    START_MS,
    WINDOW,
    Pair,
    fetch,
    fetch_response,
    framed,
    produce,
    produce_response,
    request,
    response,
    throttle_of,
)

from kafka_quotas.core.metrics.throttle_time import nanos_to_percentage
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_charges import ApiCost, CostModel
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType, RateAlgorithm
from kafka_quotas.enforcement.config.client_policy import (
    ClientPolicy,
    FetchOverQuota,
    Mode,
    PolicyFile,
    PolicyTable,
    Scope,
)
from kafka_quotas.enforcement.config.rules import EnforcementRules, ThrottleStyle
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.stores.store import QuotaEntry
from kafka_quotas.wire.protocol.header import parse_request_header
from kafka_quotas.wire.proxying.fetch_request import fetch_session

APP = Entity.of(client_id=CLIENT_ID)
FETCH_LIMIT = {QuotaType.FETCH: 1000.0}
EMPTIES = EnforcementRules(window=WINDOW, fetch_over_quota=FetchOverQuota.KAFKA)
HEARTBEAT = 12
MILLISECOND = 1_000_000
ERROR = 89


def heartbeat(correlation_id: int, *, version: int = 2) -> bytes:
    return request(HEARTBEAT, version, correlation_id, b"\x00\x01g\x00\x00\x00\x01\x00\x01m")


def heartbeat_response(correlation_id: int, throttle_ms: int = 0) -> bytes:
    return response(correlation_id, struct.pack(">ih", throttle_ms, 0))


def manager(quota_type: QuotaType, limit: float, algorithm: RateAlgorithm = RateAlgorithm.WINDOW) -> ClientQuotaManager:
    made = ClientQuotaManager(quota_type, WINDOW, algorithm)
    made.limits.update(APP, limit)
    return made


def session_fetch(correlation_id: int, *, version: int, session_id: int, epoch: int) -> bytes:
    """A Fetch of a fetch session, in a version that has sessions."""
    frame = bytearray(fetch(correlation_id, version=version))
    limits = 4 + 8 + 2 + len(CLIENT_ID) + (version >= 12)
    start = limits + (12 if version < 15 else 8) + 4 + 1
    frame[start : start + 8] = struct.pack(">ii", session_id, epoch)
    return bytes(frame)


def told_fetch(correlation_id: int, *, version: int, size: int, error: int = 0, session_id: int = 9) -> bytes:
    """A Fetch response with error and session, filled up to a size."""
    head = b"\x00" if version >= 12 else b""
    start = response(correlation_id, head + struct.pack(">ihi", 0, error, session_id))
    return framed(start[4:] + b"\xee" * (size - len(start)))


# Fetches over quota, as a broker answers them.


@pytest.mark.parametrize("version", [7, 11, 12, 15])
@pytest.mark.parametrize(("epoch", "told_session"), [(0, 0), (-1, 0), (3, 77)])
def test_an_over_quota_fetch_is_emptied_and_keeps_its_session_only_if_it_is_incremental(
    version: int, epoch: int, told_session: int
) -> None:
    pair = Pair(quotas=FETCH_LIMIT, rules=EMPTIES)
    pair.send(session_fetch(1, version=version, session_id=77, epoch=epoch))
    big = told_fetch(1, version=version, size=5004)
    charged = 5000 - (version >= 12)
    throttle_ms = manager(QuotaType.FETCH, 1000.0).record_and_throttle_ms("ANONYMOUS", CLIENT_ID, charged, START_MS)
    head = b"\x00" if version >= 12 else b""
    topics = b"\x01\x00" if version >= 12 else bytes(4)
    empty = response(1, head + struct.pack(">ihi", throttle_ms, 0, told_session) + topics)
    assert pair.answer(big[:100]) == empty
    assert pair.answer(big[100:]) == b""
    assert pair.session.state.wake_at_ms == START_MS + throttle_ms


@pytest.mark.parametrize(("version", "body"), [(0, bytes(4)), (1, struct.pack(">i", 3000) + bytes(4))])
def test_versions_without_sessions_are_emptied_too(version: int, body: bytes) -> None:
    pair = Pair(quotas=FETCH_LIMIT, rules=EMPTIES)
    assert pair.exchange(fetch(1, version=version), fetch_response(1, size=5004, version=version)) == response(1, body)


def test_the_bytes_of_an_emptied_fetch_count_for_nothing_and_what_follows_passes() -> None:
    pair = Pair(quotas=FETCH_LIMIT, rules=EMPTIES)
    pair.exchange(session_fetch(1, version=11, session_id=0, epoch=0), told_fetch(1, version=11, size=5004))
    pair.answer(told_fetch(1, version=11, size=26, session_id=0))  # to the end of the session that it had made
    pair.advance(3000)
    pair.send(session_fetch(2, version=11, session_id=0, epoch=0))
    small = told_fetch(2, version=11, size=1004)
    assert pair.answer(small) == small
    assert pair.session.state.mute is None


@pytest.mark.parametrize("version", range(7, 18))
def test_the_session_of_an_emptied_full_fetch_is_ended_at_the_broker(version: int) -> None:
    pair = Pair(quotas=FETCH_LIMIT, rules=EMPTIES)
    full = session_fetch(1, version=version, session_id=0, epoch=0)
    before = len(pair.send(full + produce(2)))
    pair.answer(told_fetch(1, version=version, size=5004, session_id=4711))
    ended = pair.upstream[before:]
    header = parse_request_header(ended)
    assert header is not None
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (1, version, 1, CLIENT_ID)
    assert fetch_session(ended, header) == (4711, -1)
    assert len(ended) == header.frame_end
    assert pair.answer(told_fetch(1, version=version, size=26, session_id=0)) == b""
    assert pair.advance(3000) == produce(2)
    assert pair.answer(produce_response(2)) == produce_response(2)


def test_the_session_of_an_incremental_fetch_that_is_emptied_goes_on() -> None:
    pair = Pair(quotas=FETCH_LIMIT, rules=EMPTIES)
    before = len(pair.send(session_fetch(1, version=11, session_id=77, epoch=3)))
    pair.answer(told_fetch(1, version=11, size=5004, session_id=77))
    assert len(pair.upstream) == before


def test_an_error_of_the_broker_reaches_the_client_of_an_over_quota_fetch() -> None:
    pair = Pair(quotas=FETCH_LIMIT, rules=EMPTIES)
    pair.send(session_fetch(1, version=11, session_id=77, epoch=3))
    refused = told_fetch(1, version=11, size=5004, error=70)
    assert pair.answer(refused[:13]) == b""
    out = pair.answer(refused[13:])
    assert out[12:] == refused[12:]
    assert throttle_of(out) == 3000


def test_delay_style_holds_the_empty_answer_back() -> None:
    pair = Pair(quotas=FETCH_LIMIT, fetch_over_quota=FetchOverQuota.KAFKA, throttle_style=ThrottleStyle.DELAY)
    pair.send(session_fetch(1, version=7, session_id=77, epoch=3))
    assert pair.answer(told_fetch(1, version=7, size=5004)) == b""
    pair.advance(3000)
    assert pair.client == response(1, struct.pack(">ihi", 3000, 0, 77) + bytes(4))


# Requests counted.


def test_requests_are_counted_one_by_one_and_the_throttle_time_is_the_windows() -> None:
    pair = Pair(quotas={QuotaType.REQUEST_RATE: 2.0})
    counted = manager(QuotaType.REQUEST_RATE, 2.0)
    number = told = 0
    for number in range(6):
        assert pair.send(heartbeat(number)) == heartbeat(number)
        expected = counted.record_and_throttle_ms("ANONYMOUS", CLIENT_ID, 1, START_MS)
        told = throttle_of(pair.answer(heartbeat_response(number)))
        assert told == expected
        if told:
            break
    assert (number, told) == (4, 500)  # the fifth in two seconds' worth of two each
    assert pair.send(heartbeat(9)) == b""
    assert pair.advance(told) == heartbeat(9)


def test_a_request_limit_counts_every_api_and_unknown_ones_are_muted_alike() -> None:
    pair = Pair(quotas={QuotaType.REQUEST_RATE: 1.0})
    pair.send(produce(1) + fetch(2) + request(12_345, 0, 3, b"whatever"))
    answers = (produce_response(1), fetch_response(2), response(3, b"as it is"))
    assert [pair.answer(each) for each in answers[:2]] == list(answers[:2])
    assert pair.answer(answers[2]) == answers[2]
    assert pair.session.state.mute is not None
    assert pair.session.state.mute.limiter.quota_type is QuotaType.REQUEST_RATE


def test_a_throttled_api_versions_request_is_told_so_and_its_answer_holds_our_versions() -> None:
    pair = Pair(quotas={QuotaType.REQUEST_RATE: 0.1})
    out = pair.exchange(request(18, 2, 1, b""), response(1, struct.pack(">hihhhi", 0, 1, 0, 0, 99, 0)))
    assert throttle_of(out, -4) > 0
    assert struct.unpack_from(">h", out, len(out) - 6) < (99,)
    assert pair.session.state.mute is not None


def test_other_clients_requests_are_not_counted() -> None:
    pair = Pair(quotas={QuotaType.REQUEST_RATE: 1.0})
    for number in range(20):
        pair.exchange(request(HEARTBEAT, 2, number, bytes(10), client_id="other"), heartbeat_response(number))
    assert pair.session.state.mute is None


# Their time, estimated.


def test_time_is_charged_by_the_cost_model_and_bounded_by_one_window() -> None:
    costs = CostModel(
        source="test",
        other=ApiCost(request_nanos=1),
        apis={
            HEARTBEAT: ApiCost(request_nanos=300 * MILLISECOND, request_byte_nanos=1000, response_byte_nanos=500_000)
        },
    )
    pair = Pair(quotas={QuotaType.REQUEST: 10.0}, model=costs)
    own = manager(QuotaType.REQUEST, 10.0)
    io_nanos = 300 * MILLISECOND + 1000 * (len(heartbeat(1)) - 4)
    expected = own.record_and_throttle_ms("ANONYMOUS", CLIENT_ID, nanos_to_percentage(io_nanos), START_MS)
    pair.send(heartbeat(1))
    assert throttle_of(pair.answer(heartbeat_response(1))) == expected == 1000  # 2 s were due, one window is the bound
    assert pair.session.state.mute is not None
    assert pair.session.state.mute.limiter.quota_type is QuotaType.REQUEST
    own.record_without_throttle("ANONYMOUS", CLIENT_ID, nanos_to_percentage(500_000 * 10), START_MS)
    assert pair.broker.client("ANONYMOUS", CLIENT_ID).request_time.peek(START_MS) == pytest.approx(
        own.limiter("ANONYMOUS", CLIENT_ID).peek(START_MS)
    )


def test_the_larger_of_two_throttle_times_is_told_and_waited_once() -> None:
    pair = Pair(quotas={QuotaType.PRODUCE: 1000.0, QuotaType.REQUEST: 0.01})
    assert throttle_of(pair.exchange(produce(1, size=5004), produce_response(1)), -4) == 3000
    assert pair.session.state.mute is not None
    assert pair.session.state.mute.limiter.quota_type is QuotaType.PRODUCE
    assert list(pair.throttle_stats.set_here.by_bucket) == [(QuotaType.PRODUCE, ("", CLIENT_ID))]
    pair.advance(3000)
    pair = Pair(quotas={QuotaType.PRODUCE: 1000.0, QuotaType.REQUEST: 0.01})
    assert throttle_of(pair.exchange(produce(1, size=2104), produce_response(1)), -4) == 1000
    assert list(pair.throttle_stats.set_here.by_bucket) == [(QuotaType.REQUEST, ("", CLIENT_ID))]


@pytest.mark.parametrize("mode", [FetchOverQuota.DELIVER, FetchOverQuota.KAFKA])
def test_a_fetch_that_takes_too_much_time_is_treated_as_one_over_its_bytes(mode: FetchOverQuota) -> None:
    pair = Pair(quotas={QuotaType.REQUEST: 0.01}, fetch_over_quota=mode)
    pair.send(session_fetch(1, version=11, session_id=77, epoch=3))
    data = told_fetch(1, version=11, size=5004)
    out = pair.answer(data)
    assert throttle_of(out) == 1000
    assert len(out) == (len(data) if mode is FetchOverQuota.DELIVER else 22)


@pytest.mark.parametrize("limited", [QuotaType.REQUEST, QuotaType.REQUEST_RATE])
def test_time_that_counts_for_no_quota_is_counted_for_every_client_while_the_type_is_in_use(
    limited: QuotaType,
) -> None:
    pair = Pair(
        quotas={limited: 0.01},
        entity=Entity.of(client_id="somebody else"),
        internal_principals=frozenset({"broker"}),
        principal="broker",
    )
    each = 1000 if limited is QuotaType.REQUEST else 0
    pair.send(produce(1, acks=0))
    assert pair.counters.exempt_request_us == each
    pair.exchange(request(7, 3, 1, b"\x00\x00\x00\x00\x01" + bytes(9)), response(1, bytes(5)))
    assert pair.counters.exempt_request_us == 2 * each
    pair.exchange(fetch(1, replica_id=2), fetch_response(1))
    assert pair.counters.exempt_request_us == 3 * each
    pair.exchange(produce(2), produce_response(2))
    assert pair.counters.exempt_request_us == 3 * each, "what is not exempt is not counted as exempt"
    assert pair.session.state.mute is None


# Modes and scopes.


def test_a_smooth_rate_gives_a_second_and_no_more() -> None:
    pair = Pair(quotas={QuotaType.PRODUCE: 1000.0}, mode=Mode.SMOOTH)
    pair.exchange(produce(1, size=1004), produce_response(1))
    assert pair.session.state.mute is None
    assert throttle_of(pair.exchange(produce(2, size=504), produce_response(2)), -4) == 500
    pair.advance(500)
    assert throttle_of(pair.exchange(produce(3, size=104), produce_response(3)), -4) == 100


def test_a_smooth_fetch_is_capped_to_its_second() -> None:
    pair = Pair(quotas=FETCH_LIMIT, mode=Mode.SMOOTH)
    assert pair.send(fetch(1)) == fetch(1, max_bytes=1000)


def test_a_shadow_is_neither_told_nor_muted_nor_capped_and_what_would_have_been_is_counted() -> None:
    pair = Pair(
        quotas={QuotaType.PRODUCE: 1000.0, QuotaType.FETCH: 1000.0},
        mode=Mode.SHADOW,
    )
    assert pair.exchange(produce(1, size=5004), produce_response(1)) == produce_response(1)
    assert pair.send(fetch(2)) == fetch(2)
    assert pair.answer(fetch_response(2, size=5004)) == fetch_response(2, size=5004)
    assert pair.session.state.mute is None
    assert pair.throttle_stats.set_here.by_bucket == {}
    assert {kind: count.total_ms for (kind, _), count in pair.throttle_stats.shadowed_here.by_bucket.items()} == {
        QuotaType.PRODUCE: 3000,
        QuotaType.FETCH: 3000,
    }


def test_a_limit_of_the_cluster_is_shared_by_all_brokers_and_one_of_brokers_is_not() -> None:
    for scope, waits in ((Scope.CLUSTER, True), (Scope.BROKER, False)):
        rules = EnforcementRules(window=WINDOW, scope=scope)
        policy = QuotaRegistry(WINDOW, policies=rules.policies)
        policy.apply([QuotaEntry(entity=APP, quotas={"producer_byte_rate": 1000.0})])
        pairs = [Pair(rules=rules, broker=policy.broker(node)) for node in (1, 2)]
        for pair in pairs:
            pair.exchange(produce(1, size=2004), produce_response(1))
        assert pairs[0].session.state.mute is None
        assert (pairs[1].session.state.mute is not None) is waits


def test_an_exempt_client_is_held_to_nothing() -> None:
    policy = QuotaRegistry(WINDOW)
    policy.apply([QuotaEntry(entity=APP, quotas={"producer_byte_rate": 10.0, "request_percentage": 0.01})])
    policy.replace(PolicyFile(entities={Entity.of(user="ANONYMOUS"): {"exempt": True}}))
    pair = Pair(broker=policy.broker(1))
    assert pair.exchange(produce(1, size=50_004), produce_response(1)) == produce_response(1)
    assert pair.session.state.mute is None


def test_terms_that_change_hold_from_the_next_request_on_and_keep_what_was_measured() -> None:
    policy = QuotaRegistry(WINDOW)
    policy.apply([QuotaEntry(entity=APP, quotas={"producer_byte_rate": 1000.0})])
    pair = Pair(broker=policy.broker(1))
    pair.exchange(produce(1, size=2004), produce_response(1))
    policy.replace(PolicyFile(entities={APP: {"mode": Mode.SHADOW}}))
    pair.exchange(produce(2, size=9004), produce_response(2))
    assert pair.session.state.mute is None
    policy.replace(PolicyFile())
    assert throttle_of(pair.exchange(produce(3, size=3004), produce_response(3)), -4) == 3000


def test_each_setting_is_that_of_the_most_specific_entity_that_has_it() -> None:
    policies = PolicyTable(
        default=ClientPolicy(max_throttle_ms=1),
        entities={
            Entity.of(user="alice"): {"mode": Mode.SMOOTH, "max_throttle_ms": 2},
            Entity.of(user="alice", client_id="app"): {"mode": Mode.SHADOW},
            Entity.of(user=None): {"scope": Scope.CLUSTER},
            Entity.of(client_id="app"): {"mode": Mode.SMOOTH},
        },
    )
    assert policies.policy_of("alice", "app") == ClientPolicy(mode=Mode.SHADOW, scope=Scope.CLUSTER, max_throttle_ms=2)
    assert policies.policy_of("alice", "x") == ClientPolicy(mode=Mode.SMOOTH, scope=Scope.CLUSTER, max_throttle_ms=2)
    assert policies.policy_of("bob", "app") == ClientPolicy(mode=Mode.SMOOTH, scope=Scope.CLUSTER, max_throttle_ms=1)
