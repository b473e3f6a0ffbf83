"""Intervals of differences: their width, and that they hold the truth as often as they say."""

import random

import pytest

from kafka_quotas.loadtest.verdict.comparison import Interval, difference_interval, t_quantile


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.706), (2, 4.303), (10, 2.228), (11, 2.201), (20, 2.086), (30, 2.042), (60, 2.000), (100_000, 1.960)],
)
def test_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(degrees) == pytest.approx(quantile, abs=6e-4)


def test_two_figures_on_either_side_are_the_least() -> None:
    assert difference_interval([1.0], [1.0, 2.0]) is None
    assert difference_interval([1.0, 1.0], [3.0, 3.0]) == Interval(low=2.0, high=2.0)


def test_an_interval_as_the_textbook_has_it() -> None:
    found = difference_interval([27.5, 21.0, 19.0, 23.6, 17.0], [27.1, 22.0, 20.8, 23.4, 23.4])
    assert found is not None
    # means 21.62 and 23.34, variances 16.772 and 5.618, 6.4 degrees of freedom
    assert (found.low, found.high) == pytest.approx((1.72 - 2.447 * 2.1161, 1.72 + 2.447 * 2.1161), abs=0.01)


@pytest.mark.parametrize("runs", [(3, 3), (5, 5), (3, 12)])
def test_nineteen_of_twenty_intervals_hold_the_true_difference(runs: tuple[int, int]) -> None:
    source = random.Random(1)
    held = 0
    for _ in range(2000):
        first = [source.gauss(100, 5) for _ in range(runs[0])]
        second = [source.gauss(103, 15) for _ in range(runs[1])]
        found = difference_interval(first, second)
        held += found is not None and found.low <= 3 <= found.high

    assert held / 2000 >= 0.94
