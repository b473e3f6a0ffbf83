"""Fair shares of a short capacity: nothing is left over or given twice."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quotas.pipeline.recommend.shares import Want, fair_level

WANTS = st.lists(st.builds(Want, limit=st.floats(0.0, 1e9), priority=st.floats(0.1, 10.0)), min_size=1, max_size=12)


@given(WANTS, st.floats(1.0, 1e10))
def test_a_short_capacity_is_shared_to_the_last_byte(wants: list[Want], capacity: float) -> None:
    level = fair_level(wants, capacity)
    shares = [min(each.limit, each.priority * level) for each in wants]
    if level == math.inf:
        assert sum(each.limit for each in wants) <= capacity * (1 + 1e-9)
    else:
        assert sum(shares) == pytest.approx(capacity, rel=1e-6)


@given(WANTS, st.floats(1.0, 1e10), st.floats(1.0, 2.0))
def test_more_capacity_takes_nothing_from_anybody(wants: list[Want], capacity: float, factor: float) -> None:
    assert fair_level(wants, capacity * factor) >= fair_level(wants, capacity) * (1 - 1e-9)


def test_equal_priorities_get_equal_shares_above_what_the_modest_want() -> None:
    assert fair_level([Want(10.0), Want(100.0), Want(200.0)], 110.0) == 50.0
    assert fair_level([Want(100.0), Want(200.0)], 0.0) == 0.0
