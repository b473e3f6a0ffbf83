"""Searches for the highest rate that keeps a target, on a target with a known knee and drawn noise."""

import math
import random
from collections.abc import Callable

import pytest

from kafka_quotas.loadtest.judge.rate_search import RateSearch, RateTally, factor_of
from kafka_quotas.loadtest.judgement import State

SEARCHES = 300


def searched(is_kept: Callable[[float], bool], *, most: int = 60) -> tuple[RateSearch, int]:
    """A search to its end, or to the most runs, and how many it made."""
    search, runs = RateSearch(), 0
    while (step := search.next_step()) is not None and runs < most:
        search.record(step, is_kept=is_kept(factor_of(step)))
        runs += 1
    return search, runs


def with_noise(knee: float, scatter: float, source: random.Random) -> Callable[[float], bool]:
    """A target whose knee lies elsewhere in each run: half of the runs break exactly at the knee."""
    return lambda factor: factor * source.lognormvariate(0, scatter) <= knee


@pytest.mark.parametrize("knee", [0.0101, 0.999, 1.0, 1.5, 37.0])
def test_without_noise_the_knee_lies_between_two_neighbouring_rates(knee: float) -> None:
    search, runs = searched(lambda factor: factor <= knee)

    assert search.state is State.MET
    assert search.low is not None
    assert search.high is not None
    assert factor_of(search.low.step) <= knee < factor_of(search.high.step)
    assert search.high.step == search.low.step + 1
    assert (search.low.kept, search.high.broken) == (5, 5)
    assert runs <= 20


@pytest.mark.parametrize(("scatter", "widest"), [(0.03, 3), (0.1, 6)])
def test_with_noise_each_end_is_right_in_95_of_100_searches(scatter: float, widest: int) -> None:
    wrong_low = wrong_high = 0
    for seed in range(SEARCHES):
        source = random.Random(seed)
        knee = math.exp(source.uniform(-3, 4))
        search, runs = searched(with_noise(knee, scatter, source))
        assert search.state is State.MET
        assert search.low is not None
        assert search.high is not None
        assert runs <= 50
        assert search.high.step - search.low.step <= widest
        wrong_low += factor_of(search.low.step) > knee
        wrong_high += factor_of(search.high.step) <= knee

    assert max(wrong_low, wrong_high) <= 0.05 * SEARCHES


def test_what_is_kept_at_random_is_hardly_ever_sure_however_often_one_looks() -> None:
    sure = 0
    for seed in range(SEARCHES):
        source, tally = random.Random(seed), RateTally(step=0)
        for _ in range(100):
            is_kept = source.random() < 0.5
            tally = RateTally(step=0, kept=tally.kept + is_kept, broken=tally.broken + (not is_kept))
            if tally.is_surely_kept:
                sure += 1
                break

    assert sure <= 0.05 * SEARCHES


@pytest.mark.parametrize(
    ("kept", "broken", "is_sure", "is_unclear"),
    [
        (4, 0, False, False),
        (5, 0, True, False),
        (0, 5, True, False),
        (8, 1, False, False),
        (9, 1, True, False),
        (2, 2, False, True),
    ],
)
def test_five_runs_in_a_row_or_nine_of_ten_are_sure(kept: int, broken: int, *, is_sure: bool, is_unclear: bool) -> None:
    tally = RateTally(step=3, kept=kept, broken=broken)

    assert (tally.is_sure, tally.is_unclear) == (is_sure, is_unclear)


def test_a_target_that_no_rate_keeps_is_not_met_and_one_that_all_keep_undecided() -> None:
    never, few = searched(lambda _: False)
    always, also_few = searched(lambda _: True)

    assert (never.state, never.low, few) == (State.NOT_MET, None, 15)
    assert (always.state, always.high, also_few) == (State.UNDECIDED, None, 15)


def test_a_search_that_ends_early_is_undecided() -> None:
    search, _ = searched(lambda factor: factor <= 3.0, most=8)

    assert search.state is State.UNDECIDED
    assert search.low is not None
    assert search.low.kept < 5
