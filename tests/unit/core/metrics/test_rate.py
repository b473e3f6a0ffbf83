"""What sharing needs of a window: its total, an amount reserved for others, and records of the past."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quotas.core.metrics.rate import ShareableRate
from kafka_quotas.core.quotas.quota_bucket import RateBucket

STEPS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 1000)), max_size=60)


@given(STEPS)
def test_the_total_is_that_of_all_records_whatever_expires(steps: list[tuple[int, int]]) -> None:
    ring, now_ms, total = ShareableRate(3, 1000), 10_000, 0
    for pause_ms, value in steps:
        now_ms += pause_ms
        ring.record(value, now_ms)
        ring.measure(now_ms)
        total += value
        assert ring.total == total


def bucket() -> RateBucket:
    made = RateBucket(("", "app"), 11, 1000)
    made.set_bound(100.0)
    return made


def test_what_is_reserved_is_held_back_and_not_measured() -> None:
    held = bucket()
    held.reserve(600.0)
    assert held.record_and_throttle_ms(400.0, 1000) == 0
    assert held.record_and_throttle_ms(1.0, 1000) == 10
    assert held.used(1000) == 401.0
    assert held.peek(1000) == pytest.approx(40.1)


def test_what_is_reserved_grows_by_the_factor() -> None:
    held = bucket()
    held.record(10.0, 1000)
    held.reserve(0.0, 3.0)
    assert held.admit(240.0, 1000)
    assert not held.admit(10.0, 1000)
    assert held.record_and_throttle_ms(10.0, 1000) == 100
    held.reserve(0.0)
    assert held.record_and_throttle_ms(700.0, 1000) == 0


def test_the_past_is_recorded_where_it_belongs() -> None:
    held = bucket()
    held.record(0.0, 20_000)
    held.record_past(1000.0, 10_000, 20_000, 20_000)
    assert held.used(20_000) == 1000.0
    assert held.used(25_500) == pytest.approx(500.0, abs=120)
    assert held.used(31_500) == 0.0
    assert held.total == 1000.0


def test_the_past_outlasts_the_samples_that_a_rest_has_emptied() -> None:
    held = bucket()
    for second in range(12):
        held.record(1.0, 1000 * second)
    held.record(0.0, 60_000)
    held.measure(60_000)
    held.record(0.0, 61_200)
    held.record_past(500.0, 59_500, 60_500, 61_200)
    for second in range(62, 69):
        held.record(0.0, 1000 * second)
        assert held.used(1000 * second) == 500.0
    assert held.used(72_000) == 0.0


def test_what_has_expired_of_the_past_is_left_out() -> None:
    held = bucket()
    held.record_past(4000.0, 0, 40_000, 40_000)
    assert held.used(40_000) == pytest.approx(1100.0)
    held.record_past(7.0, 40_000, 40_000, 40_000)
    assert held.used(40_000) == pytest.approx(1107.0)


def test_a_question_changes_no_total() -> None:
    asked = bucket()
    asked.record(5.0, 0)
    asked.would_throttle_ms(7.0, 20_000)
    assert asked.total == 5.0
