"""Fair shares of a short capacity, all of which is given, and the few trials that decide what a client needs."""

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quotas.pipeline.recommend.demand import BrokerDemand, Trial
from kafka_quotas.pipeline.recommend.shares import Want, fair_level
from kafka_quotas.pipeline.replay.outcomes import LocalOutcomes
from kafka_quotas.pipeline.tables.schemas import ENTITIES, THROTTLE_SPANS, WHATIF

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


@given(
    st.lists(st.lists(st.integers(0, 4_000), min_size=1, max_size=8), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.01, 0.2]),
)
def test_the_deciding_trials_need_what_all_trials_need(throttle_ms: list[list[int]], tolerated_share: float) -> None:
    whole = dict.fromkeys(WHATIF.column_names, None) | {"scenario": "", "algorithm": "rate", "model": "closed"}
    rows = [
        whole | {"entity_id": entity, "quota": 10.0 * (step + 1), "throttle_ms": found}
        for entity, tried in enumerate(throttle_ms)
        for step, found in enumerate(tried)
    ]
    schema = pa.schema([field.with_nullable(True) for field in WHATIF.arrow_schema()])
    tables = pa.Table.from_pylist(rows, schema=schema), THROTTLE_SPANS.arrow_schema().empty_table()
    outcomes = LocalOutcomes(ENTITIES.arrow_schema().empty_table(), *tables)
    active_s = pa.table(
        {"entity_id": pa.array(range(len(throttle_ms)), pa.int32()), "active_s": [10] * len(throttle_ms)}
    )

    found = outcomes.deciding(active_s, tolerated_share=tolerated_share).to_pylist()

    for entity in range(len(throttle_ms)):
        every, own = ([row for row in each if row["entity_id"] == entity] for each in (rows, found))
        assert len(own) <= 2
        assert demand(own).needed(tolerated_share) == demand(every).needed(tolerated_share)


def demand(rows: list[dict[str, Any]]) -> BrokerDemand:
    trials = sorted((row["quota"], row["throttle_ms"] / 1000 / 10) for row in rows)
    tried = tuple(Trial(limit=limit, throttled_share=share) for limit, share in trials)
    return BrokerDemand(broker_id=1, p50=1.0, p99=1.0, peak=1e9, active_s=10, trials=tried)
