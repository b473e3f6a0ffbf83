"""The bucket of one second that a rate is kept in without a window."""

from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quotas.core.metrics.throttle_time import mutation_throttle_time_ms
from kafka_quotas.core.model.quota_key import INT_MAX, LONG_MAX
from kafka_quotas.core.quotas.quota_bucket import SmoothBucket


def bucket(bound: float = 100.0, max_throttle_ms: int = LONG_MAX) -> SmoothBucket:
    made = SmoothBucket(("", "app"), max_throttle_ms)
    made.set_bound(bound)
    return made


def test_a_seconds_worth_is_free_and_the_debt_is_waited_off() -> None:
    smooth = bucket()
    assert smooth.record_and_throttle_ms(100, 1000) == 0
    assert smooth.record_and_throttle_ms(25, 1000) == 250
    assert smooth.record_and_throttle_ms(0, 1249) > 0
    assert smooth.record_and_throttle_ms(0, 1250) == 0


@pytest.mark.parametrize("amount", [1, 7, 50, 333])
def test_whoever_waits_as_told_gets_the_bound_and_one_second(amount: int) -> None:
    smooth, now_ms, taken = bucket(), 0, 0
    while now_ms < 60_000:
        taken += amount
        now_ms += smooth.record_and_throttle_ms(amount, now_ms)
    assert taken == pytest.approx(100 * (now_ms / 1000 + 1), abs=amount + 1)


def test_a_throttle_time_can_be_bounded() -> None:
    assert bucket(max_throttle_ms=1000).record_and_throttle_ms(900, 0) == 1000


def test_without_a_bound_nothing_is_throttled() -> None:
    smooth = SmoothBucket(("", "app"))
    assert smooth.record_and_throttle_ms(1e15, 0) == 0
    smooth.set_bound(0.0)
    assert smooth.record_and_throttle_ms(1.0, 0) == INT_MAX


@pytest.mark.parametrize("bound", [inf, nan])
def test_a_bound_that_is_no_number_limits_nothing_and_is_forgotten_with_the_next(bound: float) -> None:
    smooth = bucket(bound)
    assert smooth.record_and_throttle_ms(1e12, 0) == 0
    assert isfinite(smooth.used(0))
    smooth.restore(smooth.snapshot, 0)
    assert all(map(isfinite, smooth.snapshot))
    smooth.set_bound(100.0)
    assert smooth.record_and_throttle_ms(150, 10**15) == 500


def test_what_is_no_number_in_a_saved_state_does_not_lift_a_limit_for_good() -> None:
    smooth = bucket()
    smooth.restore((nan, 10.0), 0)
    smooth.record(0, 1000)
    assert smooth.record_and_throttle_ms(150, 1000) == 500


def test_a_saved_state_without_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.0 is no time"):
        bucket().restore((5.0, 0.0), 0)


STEPS = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(-2000, 5000), st.sampled_from(("record", "bound", "reserve"))),
    max_size=20,
)


@given(steps=STEPS)
def test_every_record_is_what_the_plain_arithmetic_gives(steps: list[tuple[int, int, str]]) -> None:
    smooth, bound, now_ms = bucket(1000.0), 1000.0, 10_000
    spent, last_ms, total, reserved, factor, base = 0.0, 0, 0.0, 0.0, 0.0, 0.0
    for pause_ms, amount, kind in steps:
        if kind == "bound":
            bound = float(max(0, amount))
            smooth.set_bound(bound)
        elif kind == "reserve":
            reserved, factor, base = float(amount), max(0, pause_ms) / 1024, total
            smooth.reserve(reserved, factor)
        else:
            now_ms += pause_ms
            spent = max(0.0, max(0.0, spent - bound * ((now_ms - last_ms) / 1000)) + amount)
            last_ms, total = now_ms, total + amount
            over = spent + reserved + factor * (total - base) - bound
            expected = min(mutation_throttle_time_ms(-over, bound), INT_MAX) if over > 0 else 0
            # Sums in another order may be off by a rounding, which a wait shows at half a millisecond.
            assert smooth.record_and_throttle_ms(amount, now_ms) == pytest.approx(expected, abs=1)
            assert (smooth.total, smooth.peek(now_ms)) == pytest.approx((total, spent))
