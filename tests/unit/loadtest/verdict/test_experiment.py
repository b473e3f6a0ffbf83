"""What runs with and without quotas show, from drawn latencies: an effect, none, or that it can't be told."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from tests.support.load.results import greedy, result, unlimited

from kafka_quotas.loadtest.judgement import Aspect, State
from kafka_quotas.loadtest.results.result import ClientResult, QuotaEffect
from kafka_quotas.loadtest.verdict.judging import Evidence, alternating, control_run, quota_effect
from kafka_quotas.loadtest.verdict.thresholds import parse_expectation

EXPERIMENTS = 200


def experiment(draw: Callable[[bool], int], *, most: int = 12) -> tuple[QuotaEffect | None, list[bool]]:
    """The effect of an experiment whose runs have these p90, and the order of the runs."""
    order: list[bool] = []

    def run(has_quotas: bool) -> int:
        order.append(has_quotas)
        return draw(has_quotas)

    def is_decided(limited: Sequence[int], free: Sequence[int]) -> bool:
        effect = quota_effect(limited, free)
        return effect is not None and (effect.is_shown or effect.is_refuted)

    sides = alternating(run, is_decided=is_decided, has_time=lambda: len(order) < most)
    return quota_effect(*sides), order


def scattered(source: random.Random, *, without: float, scatter: float) -> Callable[[bool], int]:
    """p90 of 10 ms with quotas and `without` times that without them, which scatter as a busy machine's do."""
    return lambda has_quotas: int(10_000 * (1 if has_quotas else without) * source.lognormvariate(0, scatter))


def shown(*, without: float, scatter: float) -> int:
    """In how many of the experiments an effect is shown."""
    found = (
        experiment(scattered(random.Random(seed), without=without, scatter=scatter)) for seed in range(EXPERIMENTS)
    )
    return sum(effect is not None and effect.is_shown for effect, _ in found)


def test_the_runs_alternate_in_mirrored_pairs_so_that_a_drift_is_in_both() -> None:
    _, order = experiment(scattered(random.Random(1), without=1.0, scatter=3.0), most=8)

    assert order == [False, True, True, False, False, True, True, False]


def test_without_any_quotas_hardly_an_experiment_shows_an_effect() -> None:
    """Isolation that is met where nobody has a quota was the defect: both sides are the same load."""
    for scatter in (0.05, 0.3, 0.8):
        assert shown(without=1.0, scatter=scatter) <= 0.05 * EXPERIMENTS


def test_an_effect_is_found_on_a_busy_machine() -> None:
    assert shown(without=6.0, scatter=0.4) >= 0.95 * EXPERIMENTS


def test_an_experiment_ends_as_soon_as_it_is_decided() -> None:
    strong, few = experiment(scattered(random.Random(3), without=8.0, scatter=0.05))
    none, also_few = experiment(scattered(random.Random(3), without=1.0, scatter=0.02))

    assert (strong is not None and strong.is_shown, len(few)) == (True, 6)
    assert (none is not None and none.is_refuted, len(also_few)) == (True, 6)


def test_without_time_for_two_runs_of_each_there_is_no_effect() -> None:
    assert experiment(scattered(random.Random(1), without=9.0, scatter=0.1), most=3)[0] is None


def control(effect: QuotaEffect | None, *, alone_us: int = 12_000) -> tuple[ClientResult, Evidence]:
    client = replace(unlimited(), control=True)  # its p99 is 12.3 ms
    effects = {} if effect is None else {client.key: effect}
    return client, Evidence(solo={client.key: replace(client.response, p99_us=alone_us)}, effects=effects)


def effect_of(low: float, high: float) -> QuotaEffect:
    return QuotaEffect(with_us=(12_000, 12_000), without_us=(50_000, 50_000), ratio=4.0, low=low, high=high)


@pytest.mark.parametrize(
    ("effect", "alone_us", "state"),
    [
        (effect_of(2.0, 8.0), 12_000, State.MET),
        (effect_of(0.9, 1.1), 12_000, State.NOT_MET),
        (effect_of(0.5, 30.0), 12_000, State.UNDECIDED),
        (None, 12_000, State.UNCHECKED),
        (effect_of(2.0, 8.0), 500, State.NOT_MET),
    ],
)
def test_isolation_is_met_where_the_quotas_spare_the_neighbour(
    effect: QuotaEffect | None, alone_us: int, state: State
) -> None:
    client, evidence = control(effect, alone_us=alone_us)
    run = result(greedy(), client, evidence=evidence)

    assert [each.state for each in run.judgements if each.aspect is Aspect.ISOLATION] == [state]
    assert run.ok is (state in (State.MET, State.UNCHECKED))


def test_the_evidence_has_the_effect_with_its_interval() -> None:
    client, evidence = control(effect_of(2.0, 8.0))
    run = result(client, evidence=evidence)
    judgement = next(each for each in run.judgements if each.aspect is Aspect.ISOLATION)

    assert judgement.evidence.endswith(
        "p90 4 times as long without the quotas (95 % interval 2 to 8, from 2 runs with and 2 without; 1.2 wanted)"
    )


def test_a_run_is_worth_what_fails_without_the_quotas() -> None:
    held, free = result(greedy(), unlimited()), result(greedy(ok=False), unlimited())
    threshold = parse_expectation("entity(greedy).throttle.count > 0")
    never = replace(greedy(), throttle=unlimited().throttle)

    fails = control_run(held, free, ())
    both = control_run(held, replace(free, entities=(never, *free.entities)), (threshold,))
    same = control_run(held, held, (threshold,))
    by_threshold = control_run(held, result(never), (threshold,))

    assert fails is not None
    assert (fails.state, fails.evidence) == (
        State.MET,
        "without the quotas it fails: greedy gets 3 MB/s instead of 2 MB/s",
    )
    assert both is not None
    assert both.evidence.endswith("2 MB/s (the first of 2 failures)")
    assert same is not None
    assert same.state is State.NOT_MET
    assert by_threshold is not None
    assert by_threshold.state is State.MET


def test_a_run_in_which_nothing_is_held_needs_no_control() -> None:
    run = result(unlimited())

    assert control_run(run, run, ()) is None


def test_a_control_run_that_is_void_decides_nothing() -> None:
    void = result(greedy(), evidence=Evidence(outages=("b:9092 did not answer any more from 9 s on",)))
    judgement = control_run(result(greedy()), void, ())

    assert judgement is not None
    assert judgement.state is State.UNDECIDED


def test_a_figure_that_the_control_run_lacks_proves_nothing() -> None:
    """Records are read back after the judged run alone."""
    run = result(greedy())
    judgement = control_run(run, run, (parse_expectation("records.lost == 0"),))

    assert judgement is not None
    assert judgement.state is State.NOT_MET
