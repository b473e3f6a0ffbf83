"""The open-loop schedules, even or not: intended times and due counts agree exactly, in shares as well."""

import itertools
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.load.recordings import recorded, run_of

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.engine import OUTSTANDING_S, Pacer
from kafka_quotas.loadtest.clients.raw.topic_mutator import MutationPlan
from kafka_quotas.loadtest.plan.client_verdict import ObservationKind
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadShare, RampPhase
from kafka_quotas.loadtest.plan.schedule import (
    NEVER_NS,
    NS_PER_S,
    TICKS,
    BurstSchedule,
    PoissonSchedule,
    RampSchedule,
    Schedule,
    even_schedule,
    mean_rate,
    multiplied,
    rate_bounds,
    schedule_of,
)
from kafka_quotas.loadtest.plan.workload import (
    NO_LOAD,
    Arrival,
    ClientKind,
    Loop,
    MutationFlood,
    MutationKind,
    RateKind,
    Stage,
    Workload,
)
from kafka_quotas.loadtest.scenario.model import parse_scenario

FEW = settings(max_examples=50)
RATES = st.fractions(min_value=Fraction(1, 1000), max_value=10**7, max_denominator=10**6)


@FEW
@given(rate=RATES, index=st.integers(0, 10**12))
def test_a_record_is_due_at_its_intended_instant_and_not_before(rate: Fraction, index: int) -> None:
    schedule = even_schedule(rate)
    instant = schedule.intended_ns(index)

    assert schedule.due_count(instant) >= index + 1
    assert schedule.due_count(instant - 1) <= index


@FEW
@given(rate=RATES, elapsed=st.integers(0, 10**15))
def test_what_is_due_was_intended_by_then(rate: Fraction, elapsed: int) -> None:
    schedule = even_schedule(rate)
    due = schedule.due_count(elapsed)

    assert schedule.intended_ns(due - 1) <= elapsed < schedule.intended_ns(due)


def test_a_day_does_not_drift() -> None:
    schedule = even_schedule(Fraction(50_000))

    assert schedule.due_count(24 * 3600 * NS_PER_S - 1) == 24 * 3600 * 50_000


def test_nothing_is_due_before_the_start() -> None:
    assert even_schedule(Fraction(10)).due_count(-1) == 0


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError):
        even_schedule(Fraction(0))


RATE = Fraction(100)
DAY_NS = 86_400 * NS_PER_S


def at_random(seed: int = 1) -> PoissonSchedule:
    return PoissonSchedule(ticks=even_schedule(RATE * TICKS), seed=seed)


def in_bursts(size: int) -> BurstSchedule:
    return BurstSchedule(bursts=even_schedule(RATE / size), burst_size=size)


@pytest.mark.parametrize("schedule", [at_random(), in_bursts(7)])
def test_an_arrival_is_due_from_its_instant_on_and_not_before(schedule: Schedule) -> None:
    instants = [schedule.intended_ns(index) for index in range(2000)]

    assert instants == sorted(instants)
    assert schedule.due_count(-1) == 0
    for index, instant in enumerate(instants):
        assert schedule.due_count(instant) > index
        assert schedule.due_count(instant - 1) <= index


def test_random_arrivals_keep_their_rate_for_a_day_and_are_spread_as_a_poisson_process() -> None:
    schedule = at_random()
    assert schedule.due_count(DAY_NS) == pytest.approx(86_400 * 100, abs=256)
    assert schedule.intended_ns(86_400 * 100) == pytest.approx(DAY_NS, abs=2.56 * NS_PER_S)

    instants = [schedule.intended_ns(index) for index in range(20_000)]
    gaps = [(after - before) / NS_PER_S for before, after in itertools.pairwise(instants)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.01, rel=0.02)
    assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.02)  # exponential: 1 / e
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) / mean**2 == pytest.approx(1.0, abs=0.1)


def test_a_seed_tells_the_arrivals() -> None:
    first = [at_random(1).intended_ns(index) for index in range(300)]

    assert first == [at_random(1).intended_ns(index) for index in range(300)]
    assert first != [at_random(2).intended_ns(index) for index in range(300)]


def test_bursts_come_at_once_with_pauses_that_make_up_for_it() -> None:
    schedule = in_bursts(50)

    assert [schedule.due_count(at) for at in (0, NS_PER_S // 2 - 1, NS_PER_S // 2)] == [50, 50, 100]


@pytest.mark.parametrize(
    ("arrival", "kind"),
    [
        (Arrival.CONSTANT, RampSchedule),
        (Arrival.POISSON, PoissonSchedule),
        (Arrival.BURST, BurstSchedule),
    ],
)
def test_an_entity_says_how_its_arrivals_are_spread(arrival: Arrival, kind: type) -> None:
    entity = ClientLoad(
        name=ClientName(user=None, client_id="a"),
        workload=Workload.CONNECT,
        client=ClientKind.RAW,
        arrivals_per_second=RATE,
        arrival=arrival,
    )

    assert isinstance(schedule_of(entity, seed=1), kind)


def test_an_open_loop_owes_what_was_due_and_lets_go_what_waited_too_long() -> None:
    pacer = Pacer(even_schedule(RATE), origin_ns=1000, loop=Loop.OPEN)

    assert pacer.due(999, most=9) == 0
    assert pacer.due(1000 + NS_PER_S, most=1000) == 101
    assert pacer.due(1000 + NS_PER_S, most=9) == 9
    pacer.taken += 101
    assert pacer.next_ns(0) == 1000 + 101 * NS_PER_S // 100
    pacer.answered(1000 + 5 * NS_PER_S)
    assert pacer.due(1000 + 5 * NS_PER_S, most=10_000) == 400

    late_ns = 1000 + (OUTSTANDING_S + 2) * NS_PER_S
    assert len(pacer.dropped(late_ns)) == 100  # due within the second second, and taken up to the first
    assert not pacer.dropped(late_ns)


def test_a_closed_loop_forgets_what_fell_due_while_it_waited() -> None:
    pacer = Pacer(even_schedule(RATE), origin_ns=0, loop=Loop.CLOSED)

    pacer.taken += pacer.due(0, most=10)
    pacer.answered(5 * NS_PER_S)

    assert pacer.due(5 * NS_PER_S, most=10_000) == 1
    assert not pacer.dropped(500 * NS_PER_S)


def test_without_a_schedule_anything_is_due() -> None:
    pacer = Pacer(None, origin_ns=0, loop=Loop.OPEN)

    assert (pacer.due(5, most=77), pacer.next_ns(5), len(pacer.dropped(DAY_NS))) == (77, 5, 0)


def test_a_flood_makes_its_topics_in_order_until_they_are_all_made() -> None:
    plan = MutationPlan(MutationFlood(total_topics=5, topics_per_request=2, partitions_per_topic=3, prefix="p-"))

    requests = [plan.following() for _ in range(3)]

    assert [[topic.name for topic in topics] for topics in requests] == [
        ["p-000000", "p-000001"],
        ["p-000002", "p-000003"],
        ["p-000004"],
    ]
    assert {topic.partitions for topics in requests for topic in topics} == {3}
    assert plan.is_exhausted
    assert plan.topics_before() == ()


def test_what_is_to_be_deleted_or_grown_is_there_before() -> None:
    drop = MutationPlan(MutationFlood(kind=MutationKind.DELETE, total_topics=2, partitions_per_topic=4, prefix="p-"))
    assert [(topic.name, topic.partitions) for topic in drop.topics_before()] == [("p-000000", 4), ("p-000001", 4)]

    grow = MutationPlan(
        MutationFlood(kind=MutationKind.PARTITIONS, total_topics=2, partitions_per_topic=4, prefix="p-")
    )
    assert [topic.partitions for topic in grow.topics_before()] == [1, 1]
    grown = [(topic.name, topic.partitions) for _ in range(3) for topic in grow.following()]
    assert grown == [
        ("p-000000", 5),
        ("p-000001", 5),
        ("p-000000", 9),
    ]
    assert not grow.is_exhausted

    with pytest.raises(UsageError):
        MutationPlan(MutationFlood(kind=MutationKind.DELETE))


RAMP_RATES = st.fractions(min_value=0, max_value=10**6, max_denominator=1000)
PHASES = st.lists(
    st.builds(RampPhase, duration_s=st.floats(0, 4000), start_rate=RAMP_RATES, end_rate=RAMP_RATES),
    min_size=1,
    max_size=5,
)


def phase(duration_s: float, start: int, end: int) -> RampPhase:
    return RampPhase(duration_s=duration_s, start_rate=Fraction(start), end_rate=Fraction(end))


UP_AND_DOWN = (phase(10, 0, 100), phase(20, 100, 100), phase(0, 100, 400), phase(5, 400, 0))
"""500 arrivals up, 2000 level, 1000 down, and none after that."""


@FEW
@given(phases=PHASES, index=st.integers(0, 10**9))
def test_an_arrival_is_due_at_its_intended_instant_and_not_before(phases: list[RampPhase], index: int) -> None:
    schedule = RampSchedule(phases=tuple(phases))
    instant = schedule.intended_ns(index)

    if instant < NEVER_NS:
        assert schedule.due_count(instant) >= index + 1
        assert instant == 0 or schedule.due_count(instant - 1) <= index
    else:
        assert schedule.due_count(20_000 * NS_PER_S) <= index


@FEW
@given(phases=PHASES, elapsed=st.integers(0, 10**14), later=st.integers(0, 10**12))
def test_what_is_due_was_intended_by_then_and_never_falls(phases: list[RampPhase], elapsed: int, later: int) -> None:
    schedule = RampSchedule(phases=tuple(phases))
    due = schedule.due_count(elapsed)

    assert schedule.intended_ns(due - 1) <= elapsed < schedule.intended_ns(due)
    assert schedule.due_count(elapsed + later) >= due


@FEW
@given(phases=PHASES, to_s=st.floats(1, 20_000))
def test_arrivals_are_the_area_below_the_rate(phases: list[RampPhase], to_s: float) -> None:
    due = RampSchedule(phases=tuple(phases)).due_count(int(to_s * NS_PER_S))

    assert due == pytest.approx(mean_rate(phases, from_s=0.0, to_s=to_s) * to_s, rel=1e-6, abs=2)


@FEW
@given(rate=st.fractions(min_value=Fraction(1, 100), max_value=10**6, max_denominator=1000), at=st.integers(0, 10**14))
def test_a_level_ramp_has_the_arrivals_of_a_constant_rate(rate: Fraction, at: int) -> None:
    level = RampSchedule(phases=(RampPhase(duration_s=60, start_rate=rate, end_rate=rate),))

    assert level.due_count(at) == pytest.approx(even_schedule(rate).due_count(at), abs=1)


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


RAMP = (RampPhase(duration_s=3.0, start_rate=Fraction(10), end_rate=Fraction(90)),)


def schedule(arrival: Arrival, share: LoadShare, *, ramp: bool) -> Schedule:
    entity = replace(recorded(rate=Fraction(90)).entity, arrival=arrival, burst_size=7, ramp=RAMP if ramp else ())
    found = schedule_of(replace(entity, share=share), seed=3)
    assert found is not None
    return found


@pytest.mark.parametrize("arrival", Arrival)
@FEW
@given(count=st.integers(1, 6), ramp=st.booleans(), elapsed=st.integers(0, 10**10))
def test_shares_have_every_arrival_between_them_and_none_twice(
    arrival: Arrival, count: int, ramp: bool, elapsed: int
) -> None:
    whole = schedule(arrival, LoadShare(), ramp=ramp)
    shares = [schedule(arrival, LoadShare(number=number, count=count), ramp=ramp) for number in range(1, count + 1)]

    due = [share.due_count(elapsed) for share in shares]
    assert sum(due) == whole.due_count(elapsed)
    assert max(due) - min(due) <= 1
    instants = sorted(share.intended_ns(index) for share in shares for index in range(40))
    assert instants == [whole.intended_ns(index) for index in range(40 * count)]


@pytest.mark.parametrize(("number", "count"), [(0, 4), (5, 4), (1, 0), (1, 1001)])
def test_a_share_that_is_none_is_refused(number: int, count: int) -> None:
    with pytest.raises(UsageError):
        LoadShare(number=number, count=count)
