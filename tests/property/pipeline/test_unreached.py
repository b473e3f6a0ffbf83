"""Limits that a client can't reach by its largest second, against the limiters and whole replays."""

from collections import Counter
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.kernels import loop
from kafka_quotas.pipeline.kernels.admission import FETCH, RECORD
from kafka_quotas.pipeline.kernels.limiters import LimiterRule, Limiters
from kafka_quotas.pipeline.replay.job import highest_of_peak

BASE_MS = 1_700_000_000_000
windows = st.builds(QuotaWindow, samples=st.integers(2, 12), window_s=st.integers(1, 3))
# Ends and beginnings of seconds and of samples, where a window takes in the most.
steps = st.one_of(st.integers(0, 300), st.sampled_from([1, 998, 999, 1000, 1001, 9_999, 10_000, 10_001, 40_000]))
traces = st.lists(st.tuples(steps, st.sampled_from([0, 1, 700, 10_000])), min_size=1, max_size=80)


def throttled(window: QuotaWindow, times_ms: list[int], amounts: list[int], limit: float, **rule: object) -> int:
    """How many events one bucket of a limit throttles."""
    limiters = Limiters(LimiterRule(window=window, **rule), np.array([[limit]]))  # type: ignore[arg-type]
    limiters.run(np.zeros(len(times_ms), np.int32), np.array(times_ms), np.array(amounts, np.float64))
    return int(limiters.counts[0, 0, loop.THROTTLED])


def largest_second(times_ms: list[int], amounts: list[int]) -> int:
    """The most that clocks count in one second."""
    found: Counter[int] = Counter()
    for time_ms, amount in zip(times_ms, amounts, strict=True):
        found[time_ms // 1000] += amount
    return max(found.values())


@settings(deadline=None, max_examples=300)
@given(
    trace=traces,
    window=windows,
    offset_ms=st.sampled_from([0, 1, 500, 999]),
    operation=st.sampled_from([RECORD, FETCH]),
    closed=st.booleans(),
    bounded=st.booleans(),
)
def test_no_trace_is_throttled_whose_largest_second_is_that_far_below(
    trace, window, offset_ms, operation, closed, bounded
) -> None:
    times_ms = list(accumulate((step for step, _ in trace), initial=BASE_MS + offset_ms))[1:]
    amounts = [amount for _, amount in trace]
    limit = highest_of_peak(window) * max(largest_second(times_ms, amounts), 1) * (1 + 1e-9)
    rule = {"operation": operation, "closed": closed, "bounded": bounded}
    assert throttled(window, times_ms, amounts, limit, **rule) == 0


@pytest.mark.parametrize("window", [DEFAULT_WINDOW, QuotaWindow(samples=3, window_s=2), QuotaWindow(samples=2)])
def test_the_bound_is_no_higher_than_it_has_to_be(window: QuotaWindow) -> None:
    seconds = (window.samples - 1) * window.window_s
    # The end of one second, all of those between, and the beginning of another one.
    times_ms = [BASE_MS + 999, *(BASE_MS + 1000 * second + 500 for second in range(1, seconds + 1))]
    times_ms.append(BASE_MS + 1000 * (seconds + 1))
    amounts = [1000] * len(times_ms)
    assert largest_second(times_ms, amounts) == 1000
    highest = highest_of_peak(window) * 1000
    assert throttled(window, times_ms, amounts, highest * 0.998) > 0
    assert throttled(window, times_ms, amounts, highest) == 0


def test_a_single_sample_has_no_bound() -> None:
    assert highest_of_peak(QuotaWindow(samples=1)) == float("inf")
