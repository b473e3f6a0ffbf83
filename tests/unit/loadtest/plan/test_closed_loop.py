"""The judging rule on the traces that Kafka's own throttling makes."""

import pytest
from tests.support.load.closed_loop import Loop

from kafka_quotas.loadtest.plan.client_verdict import MAX_BLUR, MIN_CYCLES, ClientVerdict, judge
from kafka_quotas.loadtest.plan.workload import Workload

PRODUCERS = [
    Loop(quota=quota, request=request, samples=samples)
    for samples in (3, 11)
    for quota in (500e3, 2e6, 5e6, 20e6)
    for request in (16_000, 100_000, 1_000_000)
    if request <= MAX_BLUR * quota * samples
]


def judged(loop: Loop, acks: list[tuple[float, int]], workload: Workload = Workload.PRODUCE) -> ClientVerdict:
    """The verdict by the quota that the loop says, whatever is kept."""
    blur = loop.request / (loop.quota * loop.window_ms / 1000)
    return judge(acks, quota=loop.quota, window_ms=loop.window_ms, workload=workload, blur=blur)


@pytest.mark.parametrize("loop", PRODUCERS, ids=str)
def test_a_producer_that_is_throttled_to_its_quota_is_found_to_be(loop: Loop) -> None:
    verdict = judged(loop, loop.produce(windows=7.3))

    assert verdict.ok, verdict.evidence
    assert verdict.ratio == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("share", [0.96, 1.04])
def test_a_quota_that_is_enforced_wrongly_is_found_out(share: float) -> None:
    loop = Loop(quota=2e6 * share, request=50_000)

    verdict = judge(loop.produce(windows=8), quota=2e6, window_ms=loop.window_ms)

    assert verdict.cycles >= MIN_CYCLES
    assert not verdict.ok
    assert verdict.ratio == pytest.approx(share, abs=0.01)


def test_a_plain_average_would_have_been_wrong() -> None:
    loop = Loop(quota=1e6, request=16_000)
    acks = loop.produce(windows=7.75)

    average = sum(size for _, size in acks) / (acks[-1][0] - acks[0][0]) * 1000

    assert abs(average / loop.quota - 1) > 0.02
    assert judge(acks, quota=loop.quota, window_ms=loop.window_ms).ok


@pytest.mark.parametrize("share", [0.005, 0.01, 0.03, 0.04])
@pytest.mark.parametrize("quota", [1e6, 5e6, 20e6])
def test_a_consumer_of_a_broker_stays_within_its_bounds(quota: float, share: float) -> None:
    loop = Loop(quota=quota, request=int(share * 3 * quota))

    verdict = judged(loop, loop.consume(windows=8), Workload.CONSUME)

    assert verdict.ok, verdict.evidence
