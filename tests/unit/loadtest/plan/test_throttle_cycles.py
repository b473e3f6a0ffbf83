"""The judging rule on traces whose true rate is known."""

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.plan.throttle_cycles import CONSUMER_LOWER, MIN_CYCLES, average, judge, measure
from kafka_quotas.loadtest.plan.workload import Workload

WINDOW_MS = 3000


def sawtooth(
    *, rate: float, cycle_ms: int, cycles: float, burst_ms: int = 100, step_ms: int = 10
) -> list[tuple[float, int]]:
    """A trace that sends all of a cycle's bytes in its first `burst_ms`, then nothing until the next cycle."""
    per_step = int(rate * cycle_ms / 1000 * step_ms / burst_ms)
    return [(t_ms, per_step) for t_ms in range(0, int(cycles * cycle_ms), step_ms) if t_ms % cycle_ms < burst_ms]


def test_a_sawtooth_is_measured_over_its_whole_cycles() -> None:
    acks = sawtooth(rate=1e6, cycle_ms=3500, cycles=6.1)  # ends just after a burst: the plain average is too high

    verdict = judge(acks, quota=1e6, window_ms=WINDOW_MS)

    plain = sum(size for _, size in acks) / (acks[-1][0] - acks[0][0]) * 1000
    assert plain / 1e6 > 1.1
    assert verdict.ratio == pytest.approx(1.0, abs=1e-9)
    assert verdict.cycles >= MIN_CYCLES
    assert verdict.ok
    assert "throttle cycles" in verdict.evidence


@pytest.mark.parametrize(("factor", "ok"), [(0.97, False), (0.985, True), (1.0, True), (1.015, True), (1.03, False)])
def test_producers_are_held_to_two_per_cent(factor: float, ok: bool) -> None:
    acks = sawtooth(rate=factor * 2e6, cycle_ms=3400, cycles=6)

    assert judge(acks, quota=2e6, window_ms=WINDOW_MS).ok is ok


@pytest.mark.parametrize(("factor", "ok"), [(0.85, False), (0.88, True), (0.93, True), (1.01, True), (1.03, False)])
def test_consumers_may_stay_below_their_quota_as_with_a_broker(factor: float, ok: bool) -> None:
    acks = sawtooth(rate=factor * 2e6, cycle_ms=3400, cycles=6)

    verdict = judge(acks, quota=2e6, window_ms=WINDOW_MS, workload=Workload.CONSUME)

    assert verdict.ok is ok
    assert verdict.lower == CONSUMER_LOWER


@pytest.mark.parametrize(("factor", "ok"), [(0.95, False), (1.0, True), (1.05, False)])
def test_a_steady_trace_needs_no_sawtooth(factor: float, ok: bool) -> None:
    acks = [(t_ms, int(factor * 10_000)) for t_ms in range(0, 30_000, 10)]

    verdict = judge(acks, quota=1e6, window_ms=WINDOW_MS)

    assert verdict.ratio == pytest.approx(factor, rel=1e-6)
    assert verdict.ok is ok


def test_the_first_window_does_not_count() -> None:
    first = [(t_ms, 50_000_000) for t_ms in range(0, 1000, 100)]
    later = [(WINDOW_MS + t_ms, size) for t_ms, size in sawtooth(rate=1e6, cycle_ms=3500, cycles=5.5)]

    assert judge(first + later, quota=1e6, window_ms=WINDOW_MS).ok
    assert judge(first + later, quota=1e6, window_ms=WINDOW_MS, skip_ms=10).ok


def test_more_than_the_first_window_may_be_skipped() -> None:
    warmup = [(t_ms, 30_000) for t_ms in range(0, 9000, 10)]
    later = [(9000 + t_ms, 10_000) for t_ms in range(0, 12_000, 10)]

    assert measure(warmup + later, window_ms=WINDOW_MS, skip_ms=9000).per_second == pytest.approx(1e6, rel=1e-3)
    assert measure(warmup + later, window_ms=WINDOW_MS).per_second > 1.5e6


def test_too_few_cycles_give_the_honest_tolerance() -> None:
    acks = sawtooth(rate=1e6, cycle_ms=3500, cycles=3.5)

    verdict = judge(acks, quota=1e6, window_ms=WINDOW_MS)

    assert verdict.cycles < MIN_CYCLES
    assert verdict.tolerance == pytest.approx(WINDOW_MS / verdict.span_ms)
    assert verdict.upper == 1 + verdict.tolerance
    assert "one window per span" in verdict.evidence


@pytest.mark.parametrize(
    "acks",
    [[], [(0.0, 10)], [(0.0, 10), (2000.0, 10)], [(0.0, 10), (4000.0, 10)], [(0.0, 10), (4000.0, 10), (4100.0, 10)]],
)
def test_a_trace_that_proves_nothing_is_no_success(acks: list[tuple[float, int]]) -> None:
    verdict = judge(acks, quota=100, window_ms=WINDOW_MS)

    assert not verdict.ok
    assert verdict.evidence


@pytest.mark.parametrize(("quota", "window_ms"), [(0, 3000), (-1, 3000), (float("nan"), 3000), (1, 0)])
def test_nothing_is_judged_by_a_meaningless_quota_or_window(quota: float, window_ms: int) -> None:
    with pytest.raises(UsageError):
        judge([(0, 1), (5000, 1)], quota=quota, window_ms=window_ms)


@pytest.mark.parametrize(("end_ms", "per_second"), [(None, 1000), (8_000, 1000), (20_000, 500)])
def test_silence_until_the_end_counts_where_it_is_longer_than_a_window(end_ms: float | None, per_second: float) -> None:
    acks = [(float(t_ms), 100) for t_ms in range(0, 10_000, 100)]

    assert average(acks, window_ms=3000, skip_ms=0, end_ms=end_ms).per_second == pytest.approx(per_second, rel=0.02)


def test_a_stall_that_ends_with_the_run_takes_nothing_from_the_average() -> None:
    steady = [(t_ms, 100) for t_ms in range(0, 10_000, 100)]
    stalled = [ack for ack in steady if ack[0] <= 9000] + [(9900, 900)]

    for acks in (steady, stalled):
        assert average(acks, window_ms=3000, skip_ms=0).per_second == pytest.approx(1000)
    assert average([], window_ms=3000).span_ms == average([(0, 5)], window_ms=3000).span_ms == 0
