"""The open-loop schedule: intended times and due counts agree exactly, for any rate and any length of time."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.plan.schedule import NS_PER_S, ConstantSchedule

RATES = st.fractions(min_value=Fraction(1, 1000), max_value=10**7, max_denominator=10**6)


@given(rate=RATES, index=st.integers(0, 10**12))
def test_a_record_is_due_at_its_intended_instant_and_not_before(rate: Fraction, index: int) -> None:
    schedule = ConstantSchedule(records_per_second=rate)
    instant = schedule.intended_ns(index)

    assert schedule.due_count(instant) >= index + 1
    assert schedule.due_count(instant - 1) <= index


@given(rate=RATES, elapsed=st.integers(0, 10**15))
def test_what_is_due_was_intended_by_then(rate: Fraction, elapsed: int) -> None:
    schedule = ConstantSchedule(records_per_second=rate)
    due = schedule.due_count(elapsed)

    assert schedule.intended_ns(due - 1) <= elapsed < schedule.intended_ns(due)


def test_a_day_does_not_drift() -> None:
    schedule = ConstantSchedule(records_per_second=Fraction(50_000))

    assert schedule.due_count(24 * 3600 * NS_PER_S - 1) == 24 * 3600 * 50_000


def test_nothing_is_due_before_the_start() -> None:
    assert ConstantSchedule(records_per_second=Fraction(10)).due_count(-1) == 0


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError):
        ConstantSchedule(records_per_second=Fraction(0))
