"""Durations are counted exactly as an HdrHistogram counts them, in less time and memory."""

import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quotas.loadtest.measurement.histogram import HIGHEST_US, LOWEST_US, NOTHING, Histogram

_NANOSECONDS = st.one_of(st.integers(0, 5_000_000), st.integers(0, 4_000_000_000_000), st.just(2**62))


@settings(max_examples=15, deadline=None)  # the reference takes tens of milliseconds
@given(added=st.lists(st.tuples(_NANOSECONDS, st.integers(1, 1000)), min_size=1, max_size=60))
def test_the_figures_are_those_of_the_histogram(added: list[tuple[int, int]]) -> None:
    durations, reference = Histogram(), HdrHistogram(LOWEST_US, HIGHEST_US, 3)
    for elapsed_ns, count in added:
        durations.add(elapsed_ns, count)
        reference.record_value(min(max(elapsed_ns // 1000, LOWEST_US), HIGHEST_US), count)

    summary = durations.summary()

    assert {us: reference.get_count_at_value(us) for us in durations.counts} == dict(durations.counts)
    assert summary.count == reference.get_total_count()
    told = reference.get_percentile_to_value_dict([50, 90, 99, 99.9])
    assert (summary.p50_us, summary.p90_us, summary.p99_us, summary.p999_us) == tuple(
        told[share] for share in sorted(told)
    )
    assert (summary.min_us, summary.max_us) == (reference.get_min_value(), reference.get_max_value())
    assert summary.mean_us == pytest.approx(reference.get_mean_value(), rel=1e-6)


def test_without_any_duration_all_figures_are_0() -> None:
    assert Histogram().summary() == NOTHING


def test_each_line_of_a_distribution_holds_its_share() -> None:
    """The library's lines lie elsewhere, its steps not being those of the original.

    Its counts are the same.
    """
    durations, reference = Histogram(), HdrHistogram(LOWEST_US, HIGHEST_US, 3)
    added = [*range(50, 2000, 7), *range(10_000, 4_000_000, 30_011)]
    for microseconds in added:
        durations.add(microseconds * 1000)
        reference.record_value(microseconds)

    points = list(durations.percentiles())
    shares = [each.share for each in points]

    assert len(points) > 20
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert 0.1 in shares
    for point in points:
        count = sum(microseconds <= point.value_us for microseconds in added)
        assert count >= point.share * len(added)
        assert count - reference.get_count_at_value(point.value_us) <= point.share * len(added)
    assert not any(each.is_bound for each in points)


def test_a_distribution_marks_what_waits_without_an_answer_leave_open() -> None:
    durations = Histogram()
    for seconds in range(1, 81):
        durations.add(seconds * 1_000_000_000)
    durations.add_bound(200_000)  # sent just before the end
    durations.add_bound(90_000_000_000, 19)

    points = list(durations.percentiles())

    assert [each.share for each in points] == sorted({each.share for each in points})
    assert (points[0].value_us, points[0].share, points[0].is_bound) == (200, 0.0, True)
    assert not any(each.is_bound for each in points if 0.3 <= each.share <= 0.75)
    assert all(each.is_bound for each in points if each.share > 0.85)
    assert (points[-1].share, points[-1].value_us // 1_000_000) == (1.0, 90)
