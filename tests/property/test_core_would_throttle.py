"""Asking what a value would cost changes nothing, and the answer is what recording it then gives."""

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType, RateAlgorithm

values = st.lists(st.tuples(st.integers(0, 5000), st.integers(-300, 2500)), min_size=1, max_size=30)


@settings(deadline=None, max_examples=150)
@given(values, st.sampled_from(RateAlgorithm), st.sampled_from([0.0, 1000.0, 1e9]), st.integers(0, 3000))
def test_a_question_is_answered_as_a_record_and_leaves_no_trace(
    values: list[tuple[int, int]], algorithm: RateAlgorithm, bound: float, asked: int
) -> None:
    asks, records = (
        ClientQuotaManager(QuotaType.PRODUCE, QuotaWindow(samples=3, window_s=1), algorithm) for _ in range(2)
    )
    for manager in (asks, records):
        manager.update_quota(Entity.of(user="alice"), bound)
    now_ms = 1_700_000_000_000
    for value, pause_ms in values:
        now_ms += pause_ms
        limiter = asks.limiter("alice", "app")
        would_ms = limiter.would_throttle_ms(asked, now_ms)
        assert would_ms == copy.deepcopy(limiter).record(asked, now_ms)
        told_ms = [manager.record_and_throttle_ms("alice", "app", value, now_ms) for manager in (asks, records)]
        assert told_ms[0] == told_ms[1]
        assert asks.buckets(now_ms) == records.buckets(now_ms)
        assert asks.snapshots() == records.snapshots()
