"""Arrivals at random and in bursts, and how a client gets through them in an open and in a closed loop."""

import itertools
from fractions import Fraction

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.engine import OUTSTANDING_S, Pacer
from kafka_quotas.loadtest.clients.raw.topic_mutator import MutationPlan
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName
from kafka_quotas.loadtest.plan.schedule import (
    NS_PER_S,
    TICKS,
    BurstSchedule,
    ConstantSchedule,
    PoissonSchedule,
    Schedule,
    schedule_of,
)
from kafka_quotas.loadtest.plan.workload import Arrival, ClientKind, Loop, MutationFlood, MutationKind, Workload

RATE = Fraction(100)
DAY_NS = 86_400 * NS_PER_S


def at_random(seed: int = 1) -> PoissonSchedule:
    return PoissonSchedule(ticks=ConstantSchedule(records_per_second=RATE * TICKS), seed=seed)


def in_bursts(size: int) -> BurstSchedule:
    return BurstSchedule(bursts=ConstantSchedule(records_per_second=RATE / size), burst_size=size)


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
    with pytest.raises(UsageError):
        BurstSchedule(bursts=ConstantSchedule(records_per_second=RATE), burst_size=0)


@pytest.mark.parametrize(
    ("arrival", "kind"),
    [
        (Arrival.CONSTANT, ConstantSchedule),
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
    pacer = Pacer(ConstantSchedule(records_per_second=RATE), origin_ns=1000, loop=Loop.OPEN)

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
    pacer = Pacer(ConstantSchedule(records_per_second=RATE), origin_ns=0, loop=Loop.CLOSED)

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
