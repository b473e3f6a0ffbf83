"""Fair shares of a short capacity, all of which is given, and what clients need by rank and by what was tried."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.pipeline.jobs.recommend.test_advice import broker, demand, demands

from kafka_quotas.pipeline.jobs.recommend.capacity import Want, fair_level
from kafka_quotas.pipeline.jobs.recommend.plan import Tolerance

WANTS = st.lists(
    st.builds(Want, limit=st.floats(0.0, 1e9), priority=st.floats(0.1, 10.0), clients=st.just(1)),
    min_size=1,
    max_size=12,
)


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


@given(WANTS, st.integers(1, 5), st.floats(1.0, 1e10))
def test_equal_wants_may_be_given_by_number(wants: list[Want], clients: int, capacity: float) -> None:
    one_by_one = fair_level([each for each in wants for _ in range(clients)], capacity)
    assert fair_level([each._replace(clients=clients) for each in wants], capacity) == pytest.approx(
        one_by_one, rel=1e-9
    )


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 4_000), min_size=3, max_size=3), min_size=1, max_size=8),
    st.lists(st.floats(1.0, 100.0), min_size=3, max_size=3, unique=True).map(sorted),
    st.sampled_from([0.0, 0.01, 0.2]),
)
def test_a_sweep_finds_the_lowest_limit_above_which_none_holds_back_for_long(
    throttle_ms: list[list[int]], limits: list[float], tolerated_share: float
) -> None:
    peak, active_s = 1000.0, 100
    trials = [tuple(zip(limits, (ms / 1000 / active_s for ms in own), strict=True)) for own in throttle_ms]
    rows = [row for n, own in enumerate(trials) for row in demand(f"{n}", broker(peak, *own))]
    found = demands(rows, Tolerance(overrides=0, time_share=tolerated_share))
    assert len(found) == len(rows)
    for each in found:
        lowest = peak
        for limit, ms in zip(reversed(limits), reversed(throttle_ms[int(str(each.user))]), strict=True):
            if ms / 1000 / active_s > tolerated_share:
                break
            lowest = limit
        assert each.needed == lowest
