"""Clocks that are set, and machines that sleep: nobody waits for ever, nobody is forgiven, no time is negative."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.core.virtual_clock import VirtualClock
from tests.support.daemon.proxy_quotas import proxy_quotas
from tests.support.frames.enforcement import CLIENT_ID, START_MS, WINDOW, Pair, produce, produce_response, throttle_of

from kafka_quotas.core.clock import MonotonicClock
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import ThresholdSettings
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType, RateAlgorithm
from kafka_quotas.enforcement.event_log.charges import Charge
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.stores.store import QuotaEntry

HOUR_MS, DAY_MS = 3_600_000, 24 * 3_600_000
APP = Entity.of(client_id="app")
BOUND = 1000.0
KINDS = [
    (QuotaType.PRODUCE, RateAlgorithm.WINDOW),
    (QuotaType.REQUEST, RateAlgorithm.WINDOW),
    (QuotaType.FETCH, RateAlgorithm.SMOOTH),
    (QuotaType.CONTROLLER_MUTATION, RateAlgorithm.WINDOW),
]


class Clocks:
    """The wall clock and the one that nobody can set, as the system tells them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ns, self.monotonic_ns = START_MS * 1_000_000, 5_000_000_000
        monkeypatch.setattr(time, "time_ns", lambda: self.wall_ns)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.monotonic_ns)

    def pass_by(self, ms: int) -> None:
        self.wall_ns += ms * 1_000_000
        self.monotonic_ns += ms * 1_000_000


@pytest.mark.parametrize("jump_ms", [-DAY_MS, -HOUR_MS, -1, HOUR_MS, 365 * DAY_MS])
def test_a_wall_clock_that_is_set_moves_the_daemons_clock_not_at_all(
    monkeypatch: pytest.MonkeyPatch, jump_ms: int
) -> None:
    clocks = Clocks(monkeypatch)
    clock = MonotonicClock()
    assert clock.now_ms() == START_MS
    clocks.pass_by(1500)
    clocks.wall_ns += jump_ms * 1_000_000
    clocks.pass_by(500)
    assert clock.now_ms() == START_MS + 2000


jumps = st.sampled_from((0, 1, 999, 1000, 5000, 60_000, HOUR_MS, DAY_MS, 400 * DAY_MS)) | st.integers(0, 20_000)
steps = st.lists(st.tuples(jumps, st.integers(1, 100_000)), min_size=1, max_size=30)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0].value}-{kind[1].value}")
@settings(max_examples=40, deadline=None)
@given(steps=steps)
def test_however_long_a_machine_sleeps_no_throttle_time_is_negative_or_longer_than_what_was_used(
    kind: tuple[QuotaType, RateAlgorithm], steps: list[tuple[int, int]]
) -> None:
    quota_type, algorithm = kind
    quotas, now_ms, used = ClientQuotaManager(quota_type, WINDOW, algorithm), START_MS, 0
    quotas.limits.update(APP, BOUND)
    for pause_ms, amount in steps:
        now_ms += pause_ms
        used += amount
        throttle_ms = quotas.record_and_throttle_ms("u", "app", amount, now_ms)
        assert 0 <= throttle_ms <= used / BOUND * 1000 + 1
        if throttle_ms > 1:
            assert quotas.record_and_throttle_ms("u", "app", 0, now_ms) > 0, "nobody is forgiven for asking again"


def test_a_muted_client_goes_on_when_its_machine_wakes_up_and_starts_with_an_empty_window() -> None:
    pair = Pair(quotas={QuotaType.PRODUCE: BOUND})
    assert throttle_of(pair.exchange(produce(1, size=9004), produce_response(1)), -4) == 7000
    waiting = produce(2, size=104)
    assert pair.send(waiting) == b""
    assert pair.advance(8 * HOUR_MS) == waiting
    assert throttle_of(pair.answer(produce_response(2)), -4) == 0
    assert pair.session.state.mute is None
    assert pair.session.state.wake_at_ms is None


def test_tokens_are_no_more_than_the_burst_after_a_long_sleep() -> None:
    quotas = ClientQuotaManager(QuotaType.CONTROLLER_MUTATION, WINDOW)
    quotas.limits.update(APP, 2.0)
    quotas.record_and_throttle_ms("u", "app", 100, START_MS)
    (state,) = quotas.buckets(START_MS + 400 * DAY_MS)
    assert state.measured == 2.0 * WINDOW.samples
    assert quotas.record_and_throttle_ms("u", "app", 100, START_MS + 400 * DAY_MS) == 0
    assert quotas.record_and_throttle_ms("u", "app", 1, START_MS + 400 * DAY_MS) == 47_000


def test_a_topic_over_its_threshold_is_taken_again_after_a_long_sleep_and_not_before() -> None:
    registry = proxy_quotas(clock=VirtualClock(START_MS)).topics.thresholds
    registry.apply_file(ThresholdSettings(topics={"busy": 10.0}, totals={None: 100.0}))
    thresholds = registry.broker(1)
    thresholds.topics.record("busy", 1_000_000, START_MS)
    assert not thresholds.decide("busy", START_MS + 5000).admitted
    assert not thresholds.decide("busy", START_MS + 5001).admitted
    assert thresholds.decide("busy", START_MS + 400 * DAY_MS).admitted
    assert thresholds.rates(START_MS + 400 * DAY_MS)["busy"][0] < 1e-100


def test_connections_after_a_long_sleep_are_counted_anew() -> None:
    quotas = ConnectionQuotas(WINDOW)
    quotas.apply([QuotaEntry(entity=Entity.of(ip=None), quotas={"connection_creation_rate": 1.0})])
    rates = quotas.broker(1)
    delays = [rates.record_ip("192.0.2.7", 1, START_MS) for _ in range(5)]
    assert delays[-1] > 0
    later_ms = START_MS + 30 * DAY_MS
    assert rates.record_ip("192.0.2.7", 1, later_ms) == 0
    assert [rates.record_ip("192.0.2.7", 1, later_ms) for _ in range(5)][-1] > 0


def test_the_event_log_goes_on_in_order() -> None:
    charges: list[Charge] = []
    pair = Pair(quotas={QuotaType.PRODUCE: BOUND}, on_charge=charges.append)
    for number, pause_ms in enumerate((0, 5000, DAY_MS, 1), start=1):
        pair.advance(pause_ms)
        pair.exchange(produce(number, size=504), produce_response(number))
    times = [charge[0] for charge in charges]
    assert times == sorted(times)
    assert times[-1] - times[0] == DAY_MS + 5001
    assert all(charge[1:3] == ("ANONYMOUS", CLIENT_ID) for charge in charges)
    assert all(charge[6] >= 0 for charge in charges)
