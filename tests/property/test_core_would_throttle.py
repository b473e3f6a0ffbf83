"""Asking what a value would cost changes nothing, and the answer is what recording it then gives."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType, RateAlgorithm

values = st.lists(st.tuples(st.integers(0, 5000), st.integers(-300, 2500)), min_size=1, max_size=30)
KINDS = (*product((QuotaType.PRODUCE,), RateAlgorithm), (QuotaType.CONTROLLER_MUTATION, RateAlgorithm.WINDOW))


@settings(deadline=None, max_examples=120)
@given(values, st.sampled_from(KINDS), st.sampled_from([0.0, 1000.0, 1e9]), st.integers(0, 3000))
def test_a_question_is_answered_as_a_record_and_leaves_no_trace(
    values: list[tuple[int, int]],
    kind: tuple[QuotaType, RateAlgorithm],
    bound: float,
    asked: int,
) -> None:
    def new_manager() -> ClientQuotaManager:
        quota_type, algorithm = kind
        manager = ClientQuotaManager(quota_type, QuotaWindow(samples=3, window_s=1), algorithm)
        manager.limits.update(Entity.of(user="alice"), bound)
        return manager

    asks, records = new_manager(), new_manager()
    now_ms = 1_700_000_000_000
    for value, pause_ms in values:
        now_ms += pause_ms
        would_ms = asks.limiter("alice", "app").would_throttle_ms(asked, now_ms)
        twin = new_manager()
        for snapshot in records.snapshots():
            twin.restore(snapshot, 0)
        assert would_ms == twin.record_and_throttle_ms("alice", "app", asked, now_ms)
        told_ms = [manager.record_and_throttle_ms("alice", "app", value, now_ms) for manager in (asks, records)]
        assert told_ms[0] == told_ms[1]
        assert asks.buckets(now_ms) == records.buckets(now_ms)
        assert asks.snapshots() == records.snapshots()
