"""Fair shares of a short capacity, all of which is given, and what clients need by rank and by what was tried."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.recommend.capacity import Want, fair_level
from kafka_quotas.pipeline.recommend.demand_table import with_sweep
from kafka_quotas.pipeline.recommend.part_figures import Bracket, narrowed, sample_of

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


@given(
    st.lists(st.lists(st.floats(0.0, 1e6) | st.sampled_from([1.0, 2.0]), max_size=60), min_size=1, max_size=5),
    st.integers(2, 6),
    st.data(),
)
def test_a_rank_among_all_parts_is_found_from_bounded_samples(
    parts: list[list[float]], most: int, data: st.DataObject
) -> None:
    ordered = sorted(value for part in parts for value in part)
    assume(ordered)
    rank, bracket, is_found = data.draw(st.integers(1, len(ordered))), Bracket(), False
    for _ in range(len(ordered) + 1):
        samples = [sample_of(np.array(part), bracket, most=most) for part in parts]
        assert all(each.values.size <= most for each in samples)
        bracket, is_found = narrowed(bracket, samples, rank)
        if is_found:
            break
    assert is_found
    assert bracket.high == ordered[rank - 1]


@given(
    st.lists(st.lists(st.integers(0, 4_000), min_size=3, max_size=3), min_size=1, max_size=8),
    st.lists(st.floats(1.0, 100.0), min_size=3, max_size=3, unique=True).map(sorted),
    st.sampled_from([0.0, 0.01, 0.2]),
)
def test_a_sweep_finds_the_lowest_limit_above_which_none_holds_back_for_long(
    throttle_ms: list[list[int]], limits: list[float], tolerated_share: float
) -> None:
    names = [
        {"quota_type": "produce", "user": f"{n}", "client_id": "", "broker_id": 1} for n in range(len(throttle_ms))
    ]
    kinds = [("quota_type", pa.string()), ("user", pa.string()), ("client_id", pa.string()), ("broker_id", pa.int32())]
    rows = pa.Table.from_pylist(names, schema=pa.schema(kinds))
    tried = rows.append_column("throttle_ms", pa.array(throttle_ms, pa.list_(pa.int64(), 3)))
    for name, value in (("active_s", 10), ("held_at", -math.inf), ("suffices", math.inf)):
        rows = rows.append_column(name, pa.array([value] * len(throttle_ms)))
    found = with_sweep(rows, tried, limits={QuotaType.PRODUCE: limits}, tolerated_share=tolerated_share)
    known = dict(zip(found["user"].to_pylist(), found["suffices"].to_pylist(), strict=True))
    for user, times_ms in enumerate(throttle_ms):
        lowest = math.inf
        for limit, ms in zip(reversed(limits), reversed(times_ms), strict=True):
            if ms / 1000 / 10 > tolerated_share:
                break
            lowest = limit
        assert known[f"{user}"] == lowest
