"""What a quota promises greedy, modest and unlimited clients."""

from dataclasses import replace

import pytest

from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.plan.throttle_cycles import ClientVerdict, ObservationKind
from kafka_quotas.loadtest.verdict.client_verdict import Observation, entity_verdict, unjudged_verdict


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
