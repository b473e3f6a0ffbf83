"""The throttle times of the last minute: their number, their sum, and the part of the minute that they take."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_quotas.core.metrics.throttled_minute import SLICES, ThrottledMinute
from kafka_quotas.core.model.quota_window import MINUTE_MS, NOT_THROTTLED, RecentThrottling

START_MS = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS
SLICE_MS = MINUTE_MS // SLICES


def test_a_client_is_throttled_between_two_throttle_times_as_well() -> None:
    minute = ThrottledMinute()
    assert minute.peek(START_MS) == NOT_THROTTLED
    for second in range(0, 50, 5):
        minute.record(4000, START_MS + second * 1000)
    found = minute.peek(START_MS + 49_500)
    assert found == RecentThrottling(times=10, total_ms=40_000, held_ms=40_000)
    assert round(found.share, 3) == 0.667
    assert minute.peek(START_MS + 49_500) == found, "asking changes nothing"


def test_the_time_of_several_connections_counts_once_and_what_is_yet_to_come_not_at_all() -> None:
    minute = ThrottledMinute()
    minute.record(3000, START_MS)
    minute.record(3000, START_MS + 1000)
    assert minute.peek(START_MS + 4000) == RecentThrottling(times=2, total_ms=6000, held_ms=4000)
    assert minute.peek(START_MS + 2000).held_ms == 2000


def test_a_minute_later_it_is_forgotten_slice_by_slice() -> None:
    minute = ThrottledMinute()
    minute.record(100, START_MS)
    minute.record(100, START_MS + SLICE_MS)
    assert minute.peek(START_MS + MINUTE_MS - 1).times == 2
    assert minute.peek(START_MS + MINUTE_MS).times == 1
    assert minute.peek(START_MS + MINUTE_MS + SLICE_MS) == NOT_THROTTLED


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 30_000)), max_size=60))
def test_the_part_of_the_minute_is_never_more_than_the_time_that_passed(steps: list[tuple[int, int]]) -> None:
    minute, now_ms = ThrottledMinute(), START_MS
    for pause_ms, throttle_ms in steps:
        now_ms += pause_ms
        minute.record(throttle_ms, now_ms)
        found = minute.peek(now_ms)
        assert 0 <= found.held_ms <= now_ms - START_MS
        assert 1 <= found.times <= len(steps)
        assert 0.0 <= found.share <= 1.0
