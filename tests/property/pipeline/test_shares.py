"""Fair shares of a short capacity, all of which is given, and what clients need by rank and by what was tried."""

from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.pipeline.jobs.recommend.test_advice import broker, demand, demands

from kafka_quotas.pipeline.engine.sql import DuckTables
from kafka_quotas.pipeline.jobs.recommend.capacity import fair_shares
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan

TABLES = DuckTables()


class Want(NamedTuple):
    """What clients want of a broker."""

    want: float
    priority: float = 1.0
    clients: int = 1


WANTS = st.lists(
    st.builds(Want, want=st.floats(0.0, 1e9), priority=st.floats(0.1, 10.0), clients=st.just(1)),
    min_size=1,
    max_size=12,
)


def shares(wants: list[Want], capacity: float) -> list[float]:
    """What each of the clients gets."""
    same = {"broker_id": 1, "at_ms": 0, "available": capacity}
    rows = [each._asdict() | same | {"place": place} for place, each in enumerate(wants)]
    name = TABLES.add("wants", pa.Table.from_pylist(rows))
    fair = fair_shares(TABLES, f"SELECT * FROM {name}", clients=len(wants))
    return [each.want if share is None else share for each, share in zip(wants, fair, strict=True)]


@settings(deadline=None, max_examples=60)
@given(WANTS, st.floats(1.0, 1e10), st.floats(1.0, 2.0))
def test_a_short_capacity_is_shared_to_the_last_byte_by_priority_and_more_of_it_takes_nothing_from_anybody(
    wants: list[Want], capacity: float, factor: float
) -> None:
    found, total = shares(wants, capacity), sum(each.want for each in wants)
    assert sum(found) == pytest.approx(min(total, capacity), rel=1e-6)
    assert all(share <= each.want for each, share in zip(wants, found, strict=True))
    by_priority = [(share / each.priority, share < each.want) for each, share in zip(wants, found, strict=True)]
    levels = [level for level, is_cut in by_priority if is_cut]
    assert levels == pytest.approx([max(levels, default=0.0)] * len(levels), rel=1e-9)
    assert all(level <= max(levels) * (1 + 1e-9) for level, _ in by_priority if levels)
    more = shares(wants, capacity * factor)
    assert all(after >= before * (1 - 1e-9) for before, after in zip(found, more, strict=True))


def test_equal_priorities_get_equal_shares_above_what_the_modest_want() -> None:
    assert shares([Want(10.0), Want(100.0), Want(200.0)], 110.0) == [10.0, 50.0, 50.0]
    assert shares([Want(100.0), Want(200.0)], 0.0) == [0.0, 0.0]


@settings(deadline=None, max_examples=25)
@given(WANTS, st.integers(1, 5), st.floats(1.0, 1e10))
def test_equal_wants_may_be_given_by_number(wants: list[Want], clients: int, capacity: float) -> None:
    one_by_one = shares([each for each in wants for _ in range(clients)], capacity)[::clients]
    assert shares([each._replace(clients=clients) for each in wants], capacity) == pytest.approx(one_by_one, rel=1e-9)


@settings(deadline=None, max_examples=25)
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
    found = demands(rows, RecommendPlan(overrides=0, time_share=tolerated_share))
    assert len(found) == len(rows)
    for each in found:
        lowest = peak
        for limit, ms in zip(reversed(limits), reversed(throttle_ms[int(str(each.user))]), strict=True):
            if ms / 1000 / active_s > tolerated_share:
                break
            lowest = limit
        assert each.needed == lowest
