"""What a bucket tells of its throttle times and mutations, which limits nothing."""

from kafka_quotas.core.metrics.throttle_time import ThrottleAverage
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import BucketState, ClientQuotaManager, QuotaType

START_MS = 1_700_000_000_000
APP = Entity.of(client_id="app")


def manager(quota_type: QuotaType) -> ClientQuotaManager:
    made = ClientQuotaManager(quota_type)
    made.update_quota(APP, 10.0)
    return made


def state(quotas: ClientQuotaManager, now_ms: int) -> BucketState:
    (only,) = quotas.buckets(now_ms)
    return only


def test_throttle_times_are_averaged_over_a_minute_and_then_forgotten() -> None:
    average = ThrottleAverage()
    assert average.peek(START_MS) == 0.0
    average.record(100, START_MS)
    average.record(400, START_MS + 1000)
    assert average.peek(START_MS + 1000) == 250.0
    average.record(1000, START_MS + 40_000)
    assert average.peek(START_MS + 40_000) == 500.0
    assert average.peek(START_MS + 61_000) == 1000.0
    assert average.peek(START_MS + 61_000) == 1000.0, "asking changes nothing"
    assert average.peek(START_MS + 100_000) == 0.0


def test_a_manager_tells_the_average_of_each_bucket_and_forgets_it_with_the_bucket() -> None:
    quotas = manager(QuotaType.PRODUCE)
    limiter = quotas.limiter("u", "app")
    limiter.record(5000, START_MS)
    assert state(quotas, START_MS).throttle_ms == 0.0
    limiter.throttled(300, START_MS)
    limiter.throttled(100, START_MS)
    assert state(quotas, START_MS).throttle_ms == 200.0
    assert state(quotas, START_MS).mutation_rate is None
    quotas.expire_idle(START_MS + 3_600_001)
    limiter.record(1, START_MS + 3_600_001)
    assert state(quotas, START_MS + 3_600_001).throttle_ms == 0.0


def test_mutations_are_told_as_tokens_and_as_a_rate_of_what_was_admitted() -> None:
    quotas = manager(QuotaType.CONTROLLER_MUTATION)
    limiter = quotas.limiter("u", "app")
    assert limiter.record(150, START_MS) == 0
    assert limiter.record(150, START_MS) > 0
    strict = limiter.mutation_quota(strict=True)
    assert strict.record(60, START_MS) is not None
    told = state(quotas, START_MS)
    assert (told.measured, told.mutation_rate) == (-40.0, 150 / 30)
    limiter.mutation_quota(strict=False).record(60, START_MS)
    limiter.unrecord(30, START_MS)
    assert state(quotas, START_MS).mutation_rate == 180 / 30
    assert state(quotas, START_MS + 15_000).mutation_rate == 180 / 45
