"""The throttle times of a bucket: their average, and their number, sum and part of the last minute."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_quotas.core.metrics.throttled_minute import SLICES, ThrottleAverage, ThrottledMinute
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import MINUTE_MS, NOT_THROTTLED, RecentThrottling
from kafka_quotas.core.quotas.quota_manager import BucketState, ClientQuotaManager, QuotaType

NOW_MS = 1_700_000_000_000
APP = Entity.of(client_id="app")
START_MS = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS
SLICE_MS = MINUTE_MS // SLICES


def test_a_client_is_throttled_between_two_throttle_times_as_well() -> None:
    minute = ThrottledMinute()
    assert minute.peek(START_MS) == NOT_THROTTLED
    for second in range(0, 50, 5):
        minute.record(4000, START_MS + second * 1000)
    found = minute.peek(START_MS + 49_500)
    assert found == RecentThrottling(times=10, total_ms=40_000, held_ms=40_000)
    assert round(found.share, 3) == 0.667
    assert minute.peek(START_MS + 49_500) == found, "asking changes nothing"


def test_the_time_of_several_connections_counts_once_and_what_is_yet_to_come_not_at_all() -> None:
    minute = ThrottledMinute()
    minute.record(3000, START_MS)
    minute.record(3000, START_MS + 1000)
    assert minute.peek(START_MS + 4000) == RecentThrottling(times=2, total_ms=6000, held_ms=4000)
    assert minute.peek(START_MS + 2000).held_ms == 2000


def test_a_minute_later_it_is_forgotten_slice_by_slice() -> None:
    minute = ThrottledMinute()
    minute.record(100, START_MS)
    minute.record(100, START_MS + SLICE_MS)
    assert minute.peek(START_MS + MINUTE_MS - 1).times == 2
    assert minute.peek(START_MS + MINUTE_MS).times == 1
    assert minute.peek(START_MS + MINUTE_MS + SLICE_MS) == NOT_THROTTLED


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 30_000)), max_size=60))
def test_the_part_of_the_minute_is_never_more_than_the_time_that_passed(steps: list[tuple[int, int]]) -> None:
    minute, now_ms = ThrottledMinute(), START_MS
    for pause_ms, throttle_ms in steps:
        now_ms += pause_ms
        minute.record(throttle_ms, now_ms)
        found = minute.peek(now_ms)
        assert 0 <= found.held_ms <= now_ms - START_MS
        assert 1 <= found.times <= len(steps)
        assert 0.0 <= found.share <= 1.0


def manager(quota_type: QuotaType) -> ClientQuotaManager:
    made = ClientQuotaManager(quota_type)
    made.limits.update(APP, 10.0)
    return made


def state(quotas: ClientQuotaManager, now_ms: int) -> BucketState:
    (only,) = quotas.buckets(now_ms)
    return only


def test_throttle_times_are_averaged_over_a_minute_and_then_forgotten() -> None:
    average = ThrottleAverage()
    assert average.peek(NOW_MS) == 0.0
    average.record(100, NOW_MS)
    average.record(400, NOW_MS + 1000)
    assert average.peek(NOW_MS + 1000) == 250.0
    average.record(1000, NOW_MS + 40_000)
    assert average.peek(NOW_MS + 40_000) == 500.0
    assert average.peek(NOW_MS + 61_000) == 1000.0
    assert average.peek(NOW_MS + 61_000) == 1000.0, "asking changes nothing"
    assert average.peek(NOW_MS + 100_000) == 0.0


def test_a_manager_tells_the_average_of_each_bucket_and_forgets_it_with_the_bucket() -> None:
    quotas = manager(QuotaType.PRODUCE)
    limiter = quotas.limiter("u", "app")
    limiter.record(5000, NOW_MS)
    assert state(quotas, NOW_MS).throttle_ms == 0.0
    limiter.throttled(300, NOW_MS)
    limiter.throttled(100, NOW_MS)
    assert state(quotas, NOW_MS).throttle_ms == 200.0
    assert state(quotas, NOW_MS).mutation_rate is None
    quotas.expire_idle(NOW_MS + 3_600_001)
    limiter.record(1, NOW_MS + 3_600_001)
    assert state(quotas, NOW_MS + 3_600_001).throttle_ms == 0.0


def test_mutations_are_told_as_tokens_and_as_a_rate_of_what_was_admitted() -> None:
    quotas = manager(QuotaType.CONTROLLER_MUTATION)
    limiter = quotas.limiter("u", "app")
    assert limiter.record(150, NOW_MS) == 0
    assert limiter.record(150, NOW_MS) > 0
    strict = limiter.mutation_quota(strict=True)
    assert strict.record(60, NOW_MS) is not None
    told = state(quotas, NOW_MS)
    assert (told.measured, told.mutation_rate) == (-40.0, 150 / 30)
    limiter.mutation_quota(strict=False).record(60, NOW_MS)
    limiter.unrecord(30, NOW_MS)
    assert state(quotas, NOW_MS).mutation_rate == 180 / 30
    assert state(quotas, NOW_MS + 15_000).mutation_rate == 180 / 45
