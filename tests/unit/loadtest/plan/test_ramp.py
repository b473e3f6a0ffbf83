"""Ramps: the exact arrivals of a rate that changes, and what a client with stages is judged by."""

import itertools
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.load.recordings import recorded, run_of

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.plan.plan import ClientLoad, RampPhase
from kafka_quotas.loadtest.plan.schedule import (
    NEVER_NS,
    NS_PER_S,
    BurstSchedule,
    ConstantSchedule,
    PoissonSchedule,
    RampSchedule,
    mean_rate,
    multiplied,
    rate_bounds,
    schedule_of,
)
from kafka_quotas.loadtest.plan.throttle_cycles import ObservationKind
from kafka_quotas.loadtest.plan.workload import NO_LOAD, Arrival, RateKind, Stage
from kafka_quotas.loadtest.scenario.file import parse_scenario

RATES = st.fractions(min_value=0, max_value=10**6, max_denominator=1000)
PHASES = st.lists(
    st.builds(RampPhase, duration_s=st.floats(0, 4000), start_rate=RATES, end_rate=RATES), min_size=1, max_size=5
)


def phase(duration_s: float, start: int, end: int) -> RampPhase:
    return RampPhase(duration_s=duration_s, start_rate=Fraction(start), end_rate=Fraction(end))


UP_AND_DOWN = (phase(10, 0, 100), phase(20, 100, 100), phase(0, 100, 400), phase(5, 400, 0))
"""500 arrivals up, 2000 level, 1000 down, and none after that."""


@given(phases=PHASES, index=st.integers(0, 10**9))
def test_an_arrival_is_due_at_its_intended_instant_and_not_before(phases: list[RampPhase], index: int) -> None:
    schedule = RampSchedule(phases=tuple(phases))
    instant = schedule.intended_ns(index)

    if instant < NEVER_NS:
        assert schedule.due_count(instant) >= index + 1
        assert instant == 0 or schedule.due_count(instant - 1) <= index
    else:
        assert schedule.due_count(20_000 * NS_PER_S) <= index


@given(phases=PHASES, elapsed=st.integers(0, 10**14), later=st.integers(0, 10**12))
def test_what_is_due_was_intended_by_then_and_never_falls(phases: list[RampPhase], elapsed: int, later: int) -> None:
    schedule = RampSchedule(phases=tuple(phases))
    due = schedule.due_count(elapsed)

    assert schedule.intended_ns(due - 1) <= elapsed < schedule.intended_ns(due)
    assert schedule.due_count(elapsed + later) >= due


@given(phases=PHASES, to_s=st.floats(1, 20_000))
def test_arrivals_are_the_area_below_the_rate(phases: list[RampPhase], to_s: float) -> None:
    due = RampSchedule(phases=tuple(phases)).due_count(int(to_s * NS_PER_S))

    assert due == pytest.approx(mean_rate(phases, from_s=0.0, to_s=to_s) * to_s, rel=1e-6, abs=2)


@given(rate=st.fractions(min_value=Fraction(1, 100), max_value=10**6, max_denominator=1000), at=st.integers(0, 10**14))
def test_a_level_ramp_has_the_arrivals_of_a_constant_rate(rate: Fraction, at: int) -> None:
    level = RampSchedule(phases=(RampPhase(duration_s=60, start_rate=rate, end_rate=rate),))

    assert level.due_count(at) == pytest.approx(ConstantSchedule(records_per_second=rate).due_count(at), abs=1)


def test_a_ramp_up_and_down_and_the_silence_after_it() -> None:
    schedule = RampSchedule(phases=UP_AND_DOWN)

    assert [schedule.due_count(at * NS_PER_S) - 1 for at in (5, 10, 30, 35, 3000)] == [125, 500, 2500, 3500, 3500]
    assert schedule.intended_ns(3501) == NEVER_NS
    assert mean_rate(UP_AND_DOWN, from_s=5, to_s=32.5) == pytest.approx((375 + 2000 + 750) / 27.5)
    assert rate_bounds(UP_AND_DOWN, from_s=5, to_s=31) == (50, 400)
    assert rate_bounds(multiplied(UP_AND_DOWN, Fraction(2)), from_s=40, to_s=50) == (0, 0)


@pytest.mark.parametrize(("arrival", "kind"), [(Arrival.POISSON, PoissonSchedule), (Arrival.BURST, BurstSchedule)])
def test_random_arrivals_and_bursts_follow_the_ramp(arrival: Arrival, kind: type) -> None:
    schedule = schedule_of(_with(arrival), seed=1)
    assert schedule is not None
    assert isinstance(schedule, kind)
    counts = [schedule.due_count(second * NS_PER_S) for second in (0, 5, 10, 30)]

    assert counts == pytest.approx([0, 125, 500, 2500], abs=80)
    instants = [schedule.intended_ns(index) for index in range(2000)]
    assert instants == sorted(instants)
    for index, instant in itertools.islice(enumerate(instants), 0, 2000, 7):
        assert schedule.due_count(instant) > index
        assert schedule.due_count(instant - 1) <= index


def _with(arrival: Arrival) -> ClientLoad:
    entity = recorded(rate=Fraction(100)).entity
    return replace(entity, ramp=UP_AND_DOWN, arrival=arrival, burst_size=20)


def staged(duration: str, target: str) -> Stage:
    text = f"""
schema: kafka-quotas.scenario/1
name: s
title: s
duration: 60s
entities: [{{client-id: a, does: connect, stages: [{{duration: {duration}, target: {target}}}]}}]
"""
    return parse_scenario(text, "f.yaml").entities[0].stages[0]


def test_stages_as_they_are_written() -> None:
    stage = staged("30s", "5MB/s")
    assert (stage.duration_s, stage.target.kind, stage.target.figure) == (30.0, RateKind.BYTES, 5_000_000)
    assert staged("0s", "0").target == NO_LOAD

    for duration, target in (("30s", "''"), ("30s", "max"), ("5MB/s", "30s"), ("-1s", "5MB/s"), ("''", "5MB/s")):
        with pytest.raises(UsageError):
            staged(duration, target)


@pytest.mark.parametrize(
    ("quota", "kind"),
    [(None, ObservationKind.UNLIMITED), (20_000, ObservationKind.MODEST), (5_000, ObservationKind.STAGED)],
)
def test_a_client_is_judged_by_the_mean_of_its_stages_and_not_across_its_quota(
    quota: int | None, kind: ObservationKind
) -> None:
    ramp = (phase(10, 0, 100), phase(10, 100, 100))  # at 100 bytes each: up to 10 kB/s
    client = recorded(rate=Fraction(100), quota=quota)
    client.entity = replace(client.entity, ramp=ramp, record_size=100)
    schedule = RampSchedule(phases=ramp)
    for ms in range(0, 20_000, 50):
        due = schedule.due_count(ms * 1_000_000) - client.recorder.acked
        client.recorder.sent += due
        client.recorder.acknowledged(ms * 1_000_000, records=due, size=100 * due)

    verdict = run_of(client, elapsed_s=20.0).entities[0].verdict

    assert (verdict.kind, verdict.ok) == (kind, True)
    assert verdict.offered == pytest.approx(7_500)
