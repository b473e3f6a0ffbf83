"""The judging rule on the traces that Kafka's own throttling makes."""

import pytest
from tests.support.load.closed_loop import Loop

from kafka_quotas.loadtest.plan.throttle_cycles import MIN_CYCLES, judge
from kafka_quotas.loadtest.plan.workload import Workload

PRODUCERS = [
    Loop(quota=quota, request=request, samples=samples)
    for samples in (3, 11)
    for quota in (500e3, 2e6, 5e6, 20e6)
    for request in (16_000, 100_000, 1_000_000)
    if request <= quota / 4
]


@pytest.mark.parametrize("loop", PRODUCERS, ids=str)
def test_a_producer_that_is_throttled_to_its_quota_is_found_to_be(loop: Loop) -> None:
    verdict = judge(loop.produce(windows=7.3), quota=loop.quota, window_ms=loop.window_ms)

    assert verdict.ok
    assert verdict.ratio == pytest.approx(1.0, abs=0.01 if verdict.cycles >= MIN_CYCLES else verdict.tolerance)


def test_the_tight_bounds_apply_to_nearly_all_of_them() -> None:
    verdicts = [judge(loop.produce(windows=7.3), quota=loop.quota, window_ms=loop.window_ms) for loop in PRODUCERS]

    assert sum(verdict.tolerance <= 0.02 for verdict in verdicts) >= 0.8 * len(verdicts)


@pytest.mark.parametrize("share", [0.96, 1.04])
def test_a_quota_that_is_enforced_wrongly_is_found_out(share: float) -> None:
    loop = Loop(quota=2e6 * share, request=50_000)

    verdict = judge(loop.produce(windows=8), quota=2e6, window_ms=loop.window_ms)

    assert verdict.cycles >= MIN_CYCLES
    assert not verdict.ok
    assert verdict.ratio == pytest.approx(share, abs=0.01)


def test_a_plain_average_would_have_been_wrong() -> None:
    loop = Loop(quota=1e6, request=16_000)
    acks = loop.produce(windows=4.75)

    average = sum(size for _, size in acks) / (acks[-1][0] - acks[0][0]) * 1000

    assert abs(average / loop.quota - 1) > 0.02
    assert judge(acks, quota=loop.quota, window_ms=loop.window_ms).ok


@pytest.mark.parametrize("request_size", [50_000, 100_000, 250_000, 1_000_000])
@pytest.mark.parametrize("quota", [1e6, 5e6, 20e6])
def test_a_consumer_of_a_broker_stays_within_its_bounds(quota: float, request_size: int) -> None:
    if request_size > quota / 4:
        request_size = int(quota / 10)
    loop = Loop(quota=quota, request=request_size)

    verdict = judge(loop.consume(windows=8), quota=quota, window_ms=loop.window_ms, workload=Workload.CONSUME)

    assert verdict.ok
