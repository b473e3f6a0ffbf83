"""The four algorithms for controller mutations, as a quota manager keeps them."""

import pytest

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.mutation_bucket import MutationAlgorithm
from kafka_quotas.core.quotas.mutation_quota import MutationQuota
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType

START_MS = 1_700_000_000_000
ALICE = Entity.of(user="alice")
EVERY = list(MutationAlgorithm)


def manager(
    algorithm: MutationAlgorithm, *, bound: float | None = 5.0, window: QuotaWindow | None = None
) -> ClientQuotaManager:
    made = ClientQuotaManager(
        QuotaType.CONTROLLER_MUTATION, window or QuotaWindow(samples=100, window_s=1), mutations=algorithm
    )
    made.update_quota(ALICE, bound)
    return made


def strict(quotas: ClientQuotaManager) -> MutationQuota:
    return quotas.mutation_quota("alice", "app", strict=True)


@pytest.mark.parametrize(
    ("algorithm", "wait_ms"),
    [
        (MutationAlgorithm.TOKEN_BUCKET, 12_000),  # 560 of a burst of 500: 60 at 5 per second
        (MutationAlgorithm.RATE, 13_000),  # 560 of 495: the window is 99 s at first
        (MutationAlgorithm.SPREAD_EVEN, 12_000),
        (MutationAlgorithm.SPREAD_FILL, 12_000),
    ],
)
def test_the_documents_burst_of_560_is_admitted_and_the_next_request_waits(
    algorithm: MutationAlgorithm, wait_ms: int
) -> None:
    quotas = manager(algorithm)
    assert strict(quotas).record(560, START_MS) is None
    refusal = strict(quotas).record(1, START_MS)
    assert refusal is not None
    assert (refusal.throttle_ms, refusal.limit, refusal.entity) == (wait_ms, 5.0, ALICE)


@pytest.mark.parametrize(
    ("algorithm", "free_after_s"),
    [
        (MutationAlgorithm.TOKEN_BUCKET, 12),
        (MutationAlgorithm.SPREAD_EVEN, 12),
        (MutationAlgorithm.SPREAD_FILL, 12),
        (MutationAlgorithm.RATE, 101),
    ],
)
def test_after_the_wait_a_request_is_admitted_but_with_a_plain_rate_only_when_the_sample_is_gone(
    algorithm: MutationAlgorithm, free_after_s: int
) -> None:
    quotas = manager(algorithm)
    strict(quotas).record(560, START_MS)
    admitted = [second for second in range(1, 110) if strict(quotas).record(0, START_MS + second * 1000) is None]
    assert free_after_s - 1 <= admitted[0] <= free_after_s + 1, admitted[0]


@pytest.mark.parametrize("algorithm", EVERY)
def test_a_permissive_quota_admits_everything_and_tells_the_wait(algorithm: MutationAlgorithm) -> None:
    quotas = manager(algorithm)
    permissive = quotas.mutation_quota("alice", "app", strict=False)
    assert permissive.record(560, START_MS) is None
    assert permissive.record(560, START_MS) is None
    assert permissive.throttle_ms(START_MS) > 100_000
    assert permissive.throttle_ms(START_MS + 50_000) == permissive.throttle_ms(START_MS) - 50_000


@pytest.mark.parametrize("algorithm", EVERY)
def test_what_is_taken_back_counts_no_more(algorithm: MutationAlgorithm) -> None:
    quotas = manager(algorithm)
    assert strict(quotas).record(560, START_MS) is None
    quotas.limiter("alice", "app").unrecord(560, START_MS)
    assert strict(quotas).record(1, START_MS) is None


@pytest.mark.parametrize("algorithm", EVERY)
def test_a_new_bound_holds_at_once_and_keeps_what_was_recorded(algorithm: MutationAlgorithm) -> None:
    quotas = manager(algorithm)
    strict(quotas).record(560, START_MS)
    quotas.update_quota(ALICE, 100.0)
    later_ms = START_MS + 2000
    assert strict(quotas).record(0, later_ms) is None
    quotas.update_quota(ALICE, None)
    assert strict(quotas).record(1_000_000, later_ms) is None, "no limit at all"


@pytest.mark.parametrize("algorithm", EVERY)
def test_nothing_is_limited_before_any_configuration(algorithm: MutationAlgorithm) -> None:
    quotas = ClientQuotaManager(QuotaType.CONTROLLER_MUTATION, mutations=algorithm)
    quota = quotas.mutation_quota("alice", "app", strict=True)
    assert quota.kind == "unbounded"
    assert quota.record(1e9, START_MS) is None


@pytest.mark.parametrize("algorithm", EVERY)
def test_idle_buckets_are_forgotten_and_found_again(algorithm: MutationAlgorithm) -> None:
    quotas = manager(algorithm)
    strict(quotas).record(3, START_MS)
    assert quotas.expire_idle(START_MS + 3_600_001) == 1
    assert strict(quotas).record(3, START_MS + 3_600_002) is None
    (state,) = quotas.buckets(START_MS + 3_600_002)
    assert (state.tags, state.bound) == (("alice", ""), 5.0)
