"""The fast forms of rates and token buckets against the plain rules, to the last bit."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.core.reference_limiters import ReferenceRate, ReferenceTokens, java_round

from kafka_quotas.core.metrics.rate import Rate, WindowedSum
from kafka_quotas.core.metrics.sensor import Quota, Sensor, TokenBucket
from kafka_quotas.core.metrics.throttle_time import round_half_up
from kafka_quotas.core.model.quota_key import LONG_MAX
from kafka_quotas.core.quotas.quota_bucket import MutationBucket, RateBucket

thorough = settings(deadline=None, max_examples=150)
unhurried = settings(deadline=None)
START_MS = 1_700_000_000_000
values = st.one_of(
    st.integers(0, 10**9),
    st.floats(-1e6, 1e9),
    st.sampled_from([0, 0.1, 1 / 3, 1e-7, 2.0**53, 123456789.123]),
)
steps_ms = st.one_of(
    st.integers(0, 40),
    st.integers(0, 3000),
    st.integers(-5000, 30000),
    st.sampled_from([0, 1, 99, 100, 101, 500, 999, 1000, 1001, 10_000, 11_000, 12_000, -1, -1000, -(10**7), 10**7]),
)
samples = st.integers(1, 12)
windows_ms = st.sampled_from([1, 7, 100, 500, 1000, 2000])
bounds = st.one_of(st.floats(1e-3, 1e9), st.sampled_from([1, 5, 0.1, 1000, 1e6, 1e-9, 0.0, float(LONG_MAX), 1e300]))
ops = st.lists(
    st.tuples(
        steps_ms,
        st.one_of(
            st.tuples(st.sampled_from(["record", "decide", "admit"]), values),
            st.tuples(st.sampled_from(["measure", "window", "peek", "sum"]), st.none()),
            st.tuples(st.just("bound"), bounds),
            st.tuples(st.just("dimensions"), st.tuples(samples, windows_ms)),
        ),
    ),
    max_size=60,
)


@thorough
@given(samples, windows_ms, bounds, st.sampled_from([LONG_MAX, 1000]), ops)
def test_rate_bucket_is_kafkas_to_the_last_bit(
    count: int, window_ms: int, bound: float, longest_ms: int, events: list[Any]
) -> None:
    reference = ReferenceRate(count, window_ms)
    bucket = RateBucket(("u", ""), count, window_ms, longest_ms)
    bucket.set_bound(bound)
    now_ms = START_MS
    for step_ms, (op, value) in events:
        now_ms += step_ms
        match op:
            case "record":
                reference.record(value, now_ms)
                bucket.record(value, now_ms)
            case "decide":
                expected = reference.record_and_throttle_ms(value, now_ms, bound, longest_ms)
                assert bucket.record_and_throttle_ms(value, now_ms) == expected
            case "admit":
                if bucket.admit(value, now_ms):
                    assert reference.record_and_throttle_ms(value, now_ms, bound, longest_ms) == 0
            case "measure":
                peeked = bucket.peek(now_ms)
                assert reference.measure(now_ms) == bucket.measure(now_ms) == peeked
            case "window":
                assert reference.window_ms(now_ms) == bucket.window_ms(now_ms)
            case "sum":
                assert reference.total(now_ms) == WindowedSum.measure(bucket, now_ms)
            case "peek":
                bucket.peek(now_ms)  # must not be noticed by anything that follows
            case "bound":
                bound = value
                bucket.set_bound(value)
            case "dimensions":
                reference.samples, reference.window = value
                bucket.reconfigure(*value)
    assert [(slot.start_ms, slot.last_ms, slot.value) for slot in bucket.slots] == [
        (slot.start_ms, slot.last_ms, slot.value) for slot in reference.slots
    ]


token_events = st.lists(
    st.tuples(
        steps_ms,
        st.one_of(
            st.tuples(st.sampled_from(["record", "decide"]), values),
            st.tuples(st.sampled_from(["measure", "peek"]), st.none()),
            st.tuples(st.just("bound"), bounds.filter(bool)),
        ),
    ),
    max_size=60,
)


@thorough
@given(samples, windows_ms, bounds.filter(bool), token_events, st.sampled_from([0, START_MS]))
def test_mutation_bucket_is_kafkas_to_the_last_bit(
    count: int, window_ms: int, bound: float, events: list[Any], now_ms: int
) -> None:
    reference = ReferenceTokens(count, window_ms, bound)
    bucket = MutationBucket(("u", ""), count, window_ms)
    bucket.set_bound(bound)
    for step_ms, (op, value) in events:
        now_ms += step_ms
        match op:
            case "record":
                reference.record(value, now_ms)
                bucket.record(value, now_ms)
            case "decide":
                expected = reference.record_and_throttle_ms(value, now_ms)
                assert bucket.record_and_throttle_ms(value, now_ms) == expected
            case "measure":
                peeked = bucket.peek(now_ms)
                assert reference.measure(now_ms) == bucket.measure(now_ms) == peeked
            case "peek":
                bucket.peek(now_ms)
            case "bound":
                reference.bound = value
                bucket.set_bound(value)


@unhurried
@given(st.one_of(st.floats(), st.floats(-1e7, 1e7), st.integers(-(2**53), 2**53).map(lambda n: n / 2)))
def test_rounding_is_javas(value: float) -> None:
    assert round_half_up(value) == java_round(value)


@unhurried
@given(samples, windows_ms, st.floats(1e-2, 1e6), st.lists(st.tuples(st.integers(0, 3000), values), min_size=1))
def test_sensor_and_bucket_agree(count: int, window_ms: int, bound: float, events: list[tuple[int, float]]) -> None:
    sensor = Sensor(Rate(count, window_ms), Quota(bound), max_throttle_ms=window_ms)
    bucket = RateBucket(("u", ""), count, window_ms, window_ms)
    bucket.set_bound(bound)
    now_ms = START_MS
    for step_ms, value in events:
        now_ms += step_ms
        violation = sensor.record(value, now_ms)
        assert bucket.record_and_throttle_ms(value, now_ms) == (violation.throttle_ms if violation else 0)


@unhurried
@given(
    samples,
    st.sampled_from([500, 1000, 2000]),
    st.integers(1, 10**6),
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 10**7)), min_size=1, max_size=20),
)
def test_a_refused_mutation_is_admitted_when_announced_and_not_before(
    count: int, window_ms: int, bound: int, events: list[tuple[int, int]]
) -> None:
    """For whole bounds and amounts: the announced instant is right to the millisecond.

    The wait is rounded to whole ms. So the bucket is still in debt a full ms before the announced instant, and at most
    half a ms' worth of tokens short at it; one ms later nothing is short.
    """
    bucket = TokenBucket(count, window_ms, float(bound))
    sensor = Sensor(bucket, Quota(float(bound)))
    now_ms = START_MS
    for step_ms, amount in events:
        now_ms += step_ms
        refusal = sensor.check(now_ms)
        if refusal is None:
            bucket.record(amount, now_ms)
            continue
        assert refusal.throttle_ms is not None
        free_ms = now_ms + refusal.throttle_ms
        noise = 1e-9 * max(1.0, abs(refusal.value))
        if refusal.throttle_ms > 1:
            assert bucket.peek(free_ms - 1) < 0
        assert bucket.peek(free_ms) >= -0.0005 * bound - noise
        assert bucket.peek(free_ms + 1) >= -noise


@unhurried
@given(st.integers(2, 12), st.integers(1, 10**6), st.integers(1, 10**7))
def test_a_rate_is_back_at_its_bound_when_announced_and_not_before(count: int, bound: int, excess: int) -> None:
    """One burst, nothing after it: at the announced instant the rate is the bound.

    That holds as long as the burst has not expired by then and the window grows with the clock, that is once
    `samples - 1` windows have passed. The excess is chosen so that the instant after it comes within one window too.
    """
    window_ms = 1000
    sensor = Sensor(Rate(count, window_ms), Quota(float(bound)))
    whole_ms = (count - 1) * window_ms
    sensor.stat.record(0, START_MS)
    burst = bound * whole_ms / 1000 + bound * (excess % 998 + 1) / 1000
    now_ms = START_MS + whole_ms
    violation = sensor.record(burst, now_ms)
    assert violation is not None
    assert violation.throttle_ms is not None
    assert violation.throttle_ms == excess % 998 + 1
    free_ms = now_ms + violation.throttle_ms
    assert _peek(sensor, free_ms - 1) > bound
    assert _peek(sensor, free_ms) == pytest.approx(bound, rel=1e-12)
    assert _peek(sensor, free_ms + 1) < bound


def _peek(sensor: Sensor, now_ms: int) -> float:
    assert isinstance(sensor.stat, Rate)
    return sensor.stat.peek(now_ms)


@unhurried
@given(st.integers(1000, 10**6), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10_000))
def test_more_recorded_never_waits_less(bound: int, one: int, other: int, step_ms: int) -> None:
    """For amounts small enough that no throttle time overflows 32 bits."""
    delays = []
    for amount in sorted((one, other)):
        bucket = RateBucket(("u", ""), 11, 1000)
        bucket.set_bound(float(bound))
        bucket.record(0, START_MS)
        delays.append(bucket.record_and_throttle_ms(amount, START_MS + step_ms))
    assert 0 <= delays[0] <= delays[1]


@unhurried
@given(st.floats(1e-3, 1e6), st.floats(1.0, 1e3), st.integers(1, 10**8))
def test_a_higher_bound_never_waits_longer(bound: float, factor: float, amount: int) -> None:
    low, high = (Sensor(Rate(11, 1000), Quota(limit)).record(amount, START_MS) for limit in (bound, bound * factor))
    assert high is None or (low is not None and high.throttle_ms <= low.throttle_ms)
