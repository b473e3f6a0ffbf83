"""Durations are counted exactly as an HdrHistogram counts them, in less time and memory."""

from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quotas.loadtest.durations import DIGITS, HIGHEST_US, LOWEST_US, NOTHING, Durations

_NANOSECONDS = st.one_of(st.integers(0, 5_000_000), st.integers(0, 4_000_000_000_000), st.just(2**62))


@settings(max_examples=15, deadline=None)  # the reference takes tens of milliseconds
@given(added=st.lists(st.tuples(_NANOSECONDS, st.integers(1, 1000)), min_size=1, max_size=60))
def test_the_figures_are_those_of_the_histogram(added: list[tuple[int, int]]) -> None:
    durations, reference = Durations(), HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    for elapsed_ns, count in added:
        durations.add(elapsed_ns, count)
        reference.record_value(min(max(elapsed_ns // 1000, LOWEST_US), HIGHEST_US), count)

    summary = durations.summary()

    assert durations.histogram().counts[:] == reference.counts[:]
    assert summary.count == reference.get_total_count()
    told = reference.get_percentile_to_value_dict([50, 90, 99, 99.9])
    assert (summary.p50_us, summary.p90_us, summary.p99_us, summary.p999_us) == tuple(
        told[share] for share in sorted(told)
    )
    assert (summary.min_us, summary.max_us) == (reference.get_min_value(), reference.get_max_value())
    assert abs(summary.mean_us - reference.get_mean_value()) <= 1e-6 * summary.mean_us


def test_without_any_duration_all_figures_are_0() -> None:
    assert Durations().summary() == NOTHING
