"""Shares of a load: together they send every arrival once, at its time."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.load.recordings import recorded

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.plan.plan import LoadShare, RampPhase
from kafka_quotas.loadtest.plan.schedule import Schedule, schedule_of
from kafka_quotas.loadtest.plan.workload import Arrival

RAMP = (RampPhase(duration_s=3.0, start_rate=Fraction(10), end_rate=Fraction(90)),)


def schedule(arrival: Arrival, share: LoadShare, *, ramp: bool) -> Schedule:
    entity = replace(recorded(rate=Fraction(90)).entity, arrival=arrival, burst_size=7, ramp=RAMP if ramp else ())
    found = schedule_of(replace(entity, share=share), seed=3)
    assert found is not None
    return found


@pytest.mark.parametrize("arrival", Arrival)
@given(count=st.integers(1, 6), ramp=st.booleans(), elapsed=st.integers(0, 10**10))
def test_shares_have_every_arrival_between_them_and_none_twice(
    arrival: Arrival, count: int, ramp: bool, elapsed: int
) -> None:
    whole = schedule(arrival, LoadShare(), ramp=ramp)
    shares = [schedule(arrival, LoadShare(number=number, count=count), ramp=ramp) for number in range(1, count + 1)]

    due = [share.due_count(elapsed) for share in shares]
    assert sum(due) == whole.due_count(elapsed)
    assert max(due) - min(due) <= 1
    instants = sorted(share.intended_ns(index) for share in shares for index in range(40))
    assert instants == [whole.intended_ns(index) for index in range(40 * count)]


@pytest.mark.parametrize(("number", "count"), [(0, 4), (5, 4), (1, 0), (1, 1001)])
def test_a_share_that_is_none_is_refused(number: int, count: int) -> None:
    with pytest.raises(UsageError):
        LoadShare(number=number, count=count)
