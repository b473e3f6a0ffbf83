"""What a quota promises greedy, modest and unlimited clients, and the judging rule on traces of a known rate."""

from dataclasses import replace

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.plan.client_verdict import (
    MAX_BLUR,
    MIN_CYCLES,
    ClientVerdict,
    Observation,
    ObservationKind,
    average,
    entity_verdict,
    judge,
    measure,
    settling_ms,
    unjudged_verdict,
)
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


@pytest.mark.parametrize(("early", "later", "ok"), [(1.05, 0.98, True), (1.0, 0.9, False)])
def test_a_few_cycles_at_one_end_do_not_stand_for_the_whole_trace(early: float, later: float, ok: bool) -> None:
    """The later cycles are so much smaller that they are none beside the early ones."""
    acks = sawtooth(rate=early * 1e6, cycle_ms=3500, cycles=6)
    acks += [(6 * 3500 + t_ms, size) for t_ms, size in sawtooth(rate=later * 1e6, cycle_ms=700, cycles=42)]

    verdict = judge(acks, quota=1e6, window_ms=WINDOW_MS)

    assert verdict.span_ms > 40_000
    assert verdict.ok is ok


def test_a_trace_whose_cycles_fill_less_than_half_of_it_is_not_judged() -> None:
    acks = sawtooth(rate=1.05e6, cycle_ms=3500, cycles=6)
    acks += [(6 * 3500 + t_ms, size) for t_ms, size in sawtooth(rate=0.9e6, cycle_ms=300, cycles=100)]

    verdict = judge(acks, quota=1e6, window_ms=WINDOW_MS)

    assert verdict.state is State.VOID
    assert verdict.evidence.startswith("too irregular to judge: less than half of 47.3 s are throttle cycles")


@pytest.mark.parametrize(("factor", "ok"), [(0.97, False), (0.985, True), (1.0, True), (1.015, True), (1.03, False)])
def test_producers_are_held_to_two_per_cent(factor: float, ok: bool) -> None:
    acks = sawtooth(rate=factor * 2e6, cycle_ms=3400, cycles=7)

    assert judge(acks, quota=2e6, window_ms=WINDOW_MS).ok is ok


@pytest.mark.parametrize(
    ("workload", "bounds"), [(Workload.PRODUCE, (0.98, 1.05)), (Workload.CONSUME, (0.944, 1.05))], ids=str
)
def test_what_is_under_way_at_once_widens_the_bounds(workload: Workload, bounds: tuple[float, float]) -> None:
    acks = sawtooth(rate=2e6, cycle_ms=3400, cycles=7)

    verdict = judge(acks, quota=2e6, window_ms=WINDOW_MS, workload=workload, blur=0.03)

    assert (verdict.lower, verdict.upper) == pytest.approx(bounds)


@pytest.mark.parametrize(("factor", "is_open"), [(0.7, True), (1.0, True), (1.3, True), (6.0, False)])
def test_requests_that_are_large_beside_the_window_allow_no_verdict(factor: float, is_open: bool) -> None:
    acks = sawtooth(rate=factor * 2e6, cycle_ms=3400, cycles=7)

    verdict = judge(acks, quota=2e6, window_ms=WINDOW_MS, blur=2 * MAX_BLUR)

    assert (verdict.too_short, verdict.ok) == (is_open, False)
    assert ("its requests are too large to judge" in verdict.evidence) is is_open


@pytest.mark.parametrize(("factor", "ok"), [(0.95, False), (1.0, True), (1.05, False)])
def test_a_steady_trace_needs_no_sawtooth(factor: float, ok: bool) -> None:
    acks = [(t_ms, int(factor * 10_000)) for t_ms in range(0, 30_000, 10)]

    verdict = judge(acks, quota=1e6, window_ms=WINDOW_MS)

    assert verdict.ratio == pytest.approx(factor, rel=1e-6)
    assert verdict.ok is ok


def test_the_first_window_does_not_count() -> None:
    first = [(t_ms, 50_000_000) for t_ms in range(0, 1000, 100)]
    later = [(WINDOW_MS + t_ms, size) for t_ms, size in sawtooth(rate=1e6, cycle_ms=3500, cycles=6.5)]

    assert judge(first + later, quota=1e6, window_ms=WINDOW_MS).ok
    assert judge(first + later, quota=1e6, window_ms=WINDOW_MS, skip_ms=10).ok


def test_more_than_the_first_window_may_be_skipped() -> None:
    warmup = [(t_ms, 30_000) for t_ms in range(0, 9000, 10)]
    later = [(9000 + t_ms, 10_000) for t_ms in range(0, 12_000, 10)]

    assert measure(warmup + later, window_ms=WINDOW_MS, skip_ms=9000).per_second == pytest.approx(1e6, rel=1e-3)
    assert measure(warmup + later, window_ms=WINDOW_MS).per_second > 1.5e6


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0, 1.1, 1.9, 6.0])
def test_fewer_than_five_windows_are_never_judged(factor: float) -> None:
    acks = sawtooth(rate=factor * 1e6, cycle_ms=3000, cycles=20)

    verdict = judge(acks, quota=1e6, window_ms=WINDOW_MS, measured_ms=4.9 * WINDOW_MS)

    assert (verdict.ok, verdict.too_short) == (False, True)
    assert verdict.evidence == ("too short to judge: needs 15 s, got 14.7 s: 5 quota windows of 3 s, after the first")
    assert not judge(acks, quota=1e6, window_ms=WINDOW_MS, measured_ms=5 * WINDOW_MS).too_short


def test_a_burst_after_the_last_cycle_is_too_much() -> None:
    acks = sawtooth(rate=1e6, cycle_ms=3500, cycles=7)
    free = [(acks[-1][0] + 10 * step, 100_000) for step in range(1, 101)]

    assert judge(acks, quota=1e6, window_ms=WINDOW_MS).ok
    verdict = judge([*acks, *free], quota=1e6, window_ms=WINDOW_MS)
    assert (verdict.ok, verdict.too_short) == (False, False)
    assert "more than a window's burst" in verdict.evidence


def test_a_trace_without_its_cycles_is_never_judged() -> None:
    acks = sawtooth(rate=1e6, cycle_ms=5500, cycles=4.5)

    verdict = judge(acks, quota=1e6, window_ms=WINDOW_MS)

    assert verdict.cycles < MIN_CYCLES
    assert (verdict.ok, verdict.too_short) == (False, True)
    assert "whole throttle cycles" in verdict.evidence


@pytest.mark.parametrize(
    "acks",
    [[], [(0.0, 10)], [(0.0, 10), (2000.0, 10)], [(0.0, 10), (4000.0, 10)], [(0.0, 10), (4000.0, 10), (4100.0, 10)]],
)
def test_a_trace_that_proves_nothing_is_no_success(acks: list[tuple[float, int]]) -> None:
    verdict = judge(acks, quota=100, window_ms=WINDOW_MS)

    assert not verdict.ok
    assert verdict.evidence


@pytest.mark.parametrize("quota", [0, -1, float("nan")])
def test_nothing_is_judged_by_a_meaningless_quota(quota: float) -> None:
    with pytest.raises(UsageError):
        judge([(0, 1), (5000, 1)], quota=quota, window_ms=WINDOW_MS)


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


CHANGED_MS = 10_000.0
QUOTA = 1e6
Trace = list[tuple[float, int]]


def settled(acks: Trace) -> float | None:
    return settling_ms(acks, from_ms=CHANGED_MS, quota=QUOTA, window_ms=3000)


def burst(at_ms: float, amount: int, *, length_ms: int = 500) -> Trace:
    """Amounts of equal size every 10 ms from `at_ms` on."""
    count = length_ms // 10
    return [(at_ms + 10 * step, amount // count) for step in range(count)]


BEFORE = burst(8_000, 4_000_000, length_ms=2_000)
LATE = burst(10_000, 1_000_000)
"""What the client still took until the new quota reached it."""
CYCLES = [each for start in range(12_000, 24_000, 3_000) for each in burst(start, 3_000_000)]


def test_a_pause_after_which_the_quota_holds_settles_it() -> None:
    assert settled([*BEFORE, *LATE, *CYCLES]) == 2_000


def test_a_pause_after_which_it_does_not_yet_hold_does_not() -> None:
    later = [(t_ms + 3_000, size) for t_ms, size in CYCLES]

    assert settled([*BEFORE, *LATE, *burst(11_500, 4_000_000), *later]) == 5_000


def test_a_client_that_is_not_held_never_settles() -> None:
    assert settled([*BEFORE, *burst(10_000, 20_000_000, length_ms=10_000)]) is None
    twice = [each for start in range(12_000, 24_000, 1_500) for each in burst(start, 3_000_000)]
    assert settled([*BEFORE, *twice]) is None


def test_a_client_without_answers_never_settles() -> None:
    assert settled(BEFORE) is None


def test_a_client_below_the_new_quota_has_settled_at_once() -> None:
    assert settled([(CHANGED_MS + 1_000 * second, 500_000) for second in range(1, 10)]) == 0


def steady(rate: float, *, seconds: int = 15) -> list[tuple[float, int]]:
    return [(float(t_ms), int(rate / 100)) for t_ms in range(0, seconds * 1000, 10)]


def judged(rate: float, *, offered: float | None, quota: float | None, throttled: int = 0) -> ClientVerdict:
    return entity_verdict(
        Observation(acks=steady(rate, seconds=18), offered=offered, throttle_count=throttled, elapsed_ms=18_000),
        quota=quota,
        window_ms=3000,
        warmup_ms=3000,
    )


@pytest.mark.parametrize(
    ("rate", "offered", "quota", "throttled", "kind", "ok"),
    [
        (1e6, None, 1e6, 9, ObservationKind.GREEDY, True),
        (1e6, 2e6, 1e6, 9, ObservationKind.GREEDY, True),
        (1.2e6, None, 1e6, 9, ObservationKind.GREEDY, False),
        (0.8e6, None, 1e6, 9, ObservationKind.GREEDY, False),
        (0.5e6, 0.5e6, 1e6, 0, ObservationKind.MODEST, True),
        (
            0.5e6,
            0.5e6,
            1e6,
            2,
            ObservationKind.MODEST,
            True,
        ),  # a burst may be held back, as long as all of it gets through
        (0.4e6, 0.5e6, 1e6, 9, ObservationKind.MODEST, False),
        (5e6, 5e6, None, 0, ObservationKind.UNLIMITED, True),
        (5e6, None, None, 0, ObservationKind.UNLIMITED, True),
        (5e6, 5e6, None, 1, ObservationKind.UNLIMITED, False),
        (3e6, 5e6, None, 0, ObservationKind.UNLIMITED, False),
    ],
)
def test_verdicts(
    rate: float, offered: float | None, quota: float | None, throttled: int, kind: ObservationKind, ok: bool
) -> None:
    verdict = judged(rate, offered=offered, quota=quota, throttled=throttled)

    assert (verdict.kind, verdict.ok) == (kind, ok)
    assert verdict.ratio == (None if quota is None else pytest.approx(rate / quota, rel=1e-3))
    assert "MB/s" in verdict.evidence or "kB/s" in verdict.evidence


def test_a_client_that_got_nothing_is_no_success() -> None:
    nothing = Observation(acks=[], offered=None, throttle_count=0, elapsed_ms=15_000)

    for quota in (None, 1e6):
        verdict = entity_verdict(nothing, quota=quota, window_ms=3000, warmup_ms=0)
        assert not verdict.ok


def test_a_single_answer_has_no_rate_and_is_no_failure_without_a_quota() -> None:
    once = Observation(acks=[(300.0, 560)], offered=None, throttle_count=0, elapsed_ms=1000)

    free = entity_verdict(once, quota=None, window_ms=3000, warmup_ms=0)
    throttled = entity_verdict(replace(once, throttle_count=1), quota=None, window_ms=3000, warmup_ms=0)

    assert free.ok
    assert free.evidence == "all answered at one instant, which has no rate, never throttled"
    assert not throttled.ok


def test_the_quota_of_a_client_whose_rate_is_not_judged_is_told() -> None:
    seen = Observation(acks=steady(2e6), offered=None, throttle_count=3, elapsed_ms=15_000)

    verdict = unjudged_verdict(seen, quota=1e6, window_ms=3000, warmup_ms=3000)

    assert (verdict.kind, verdict.ok, verdict.quota) == (ObservationKind.UNJUDGED, True, 1e6)
    assert verdict.ratio == pytest.approx(2, rel=1e-3)


def short(*, seconds: int, quota: float | None, window_ms: int = 11_000) -> ClientVerdict:
    """The verdict on a run shorter than Kafka's usual window, with a second of warm-up."""
    return entity_verdict(
        Observation(
            acks=steady(1e6, seconds=seconds),
            offered=1e6 if quota is None else None,
            throttle_count=0,
            elapsed_ms=seconds * 1000,
        ),
        quota=quota,
        window_ms=window_ms,
        warmup_ms=1000,
    )


def test_a_client_without_a_quota_is_judged_from_the_warm_up_on() -> None:
    """It makes no burst into an empty past, so that a run shorter than a window tells its rate too."""
    verdict = short(seconds=4, quota=None)
    assert verdict.ok
    assert verdict.achieved == pytest.approx(1e6)
    assert verdict.span_ms == pytest.approx(3000, abs=20)


def test_a_run_too_short_to_judge_says_so_and_is_no_success() -> None:
    for seconds, quota in ((20, 1e6), (65, 4e6), (65, 1e5)):
        verdict = short(seconds=seconds, quota=quota)
        assert (verdict.ok, verdict.state) == (False, State.VOID)
    assert verdict.evidence == "too short to judge: needs 55 s, got 54 s: 5 quota windows of 11 s, after the first"
    assert short(seconds=5, quota=1e6).evidence.startswith("too short to judge: needs 55 s, got 0 s")
    assert short(seconds=66, quota=4e6).state is State.NOT_MET
    assert short(seconds=66, quota=1e6).state is State.MET


@pytest.mark.parametrize(("served", "ok"), [(1.0, True), (0.95, False)])
@pytest.mark.parametrize("quota", [None, 2e6])
@pytest.mark.parametrize("runs_s", [(0.0, 18.5), (11.5, 30.0)], ids=["goes to 0", "comes from 0"])
def test_a_rate_that_stages_lead_to_0_or_from_there_is_the_mean_of_all_its_time(
    runs_s: tuple[float, float], quota: float | None, served: float, ok: bool
) -> None:
    """The silence is shorter than a client may be without an answer, and still part of what the offer is a mean of."""
    from_s, to_s = max(runs_s[0], 10.0), 20.0 if runs_s[0] == 0 else 30.0
    acks = [(t_ms, int(size * served)) for t_ms, size in steady(1e6, seconds=30)]
    seen = Observation(
        acks=[(t_ms, size) for t_ms, size in acks if runs_s[0] * 1000 <= t_ms < runs_s[1] * 1000],
        offered=1e6 * (runs_s[1] - from_s) / (to_s - 10.0),
        throttle_count=0,
        elapsed_ms=to_s * 1000,
        end_ms=to_s * 1000,
        patience_ms=2000,
        mean_over_ms=(10_000.0, to_s * 1000),
    )

    verdict = entity_verdict(seen, quota=quota, window_ms=3000, warmup_ms=10_000)

    assert (verdict.ok, verdict.achieved) == (ok, pytest.approx(seen.offered * served if seen.offered else 0, rel=1e-3))


@pytest.mark.parametrize(("silent_s", "ok"), [(1, True), (7, False)])
@pytest.mark.parametrize(("offered", "quota"), [(1e6, None), (1e6, 2e6), (None, 1e6)])
def test_an_outage_at_the_end_counts_within_the_last_window_as_well(
    offered: float | None, quota: float | None, silent_s: int, ok: bool
) -> None:
    """The window is Kafka's usual one of 11 s."""
    seen = Observation(
        acks=steady(1e6, seconds=70 - silent_s),
        offered=offered,
        throttle_count=0,
        elapsed_ms=70_000,
        end_ms=70_000,
        patience_ms=3000,
    )

    verdict = entity_verdict(seen, quota=quota, window_ms=11_000, warmup_ms=11_000)

    assert verdict.ok is ok
    if not ok and offered is None:
        assert "nothing was acknowledged in the last 7.0 s, longer than any throttle time" in verdict.evidence
