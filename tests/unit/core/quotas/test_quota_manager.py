"""Quota managers: what handles promise, expiry, static limits, and what nothing configured means."""

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import (
    IDLE_MS,
    ClientQuotaManager,
    QuotaType,
)

NOW_MS = 1_700_000_000_000
ALICE = Entity.of(user="alice")


def produce_manager(bound: float = 1000) -> ClientQuotaManager:
    manager = ClientQuotaManager(QuotaType.PRODUCE)
    manager.limits.update(ALICE, bound)
    return manager


def test_types_name_their_quota_keys() -> None:
    assert QuotaType.PRODUCE.key is PRODUCER_BYTE_RATE
    assert QuotaType.CONTROLLER_MUTATION.key is CONTROLLER_MUTATION_RATE


def test_nothing_is_recorded_before_any_configuration() -> None:
    manager = ClientQuotaManager(QuotaType.PRODUCE)
    handle = manager.limiter("alice", "app")
    assert handle.record(10**12, NOW_MS) == 0
    handle.unrecord(10**12, NOW_MS)
    assert (handle.bound, handle.bucket, handle.entity, handle.peek(NOW_MS)) == (None, None, None, None)
    assert (manager.enabled, manager.buckets(NOW_MS)) == (False, [])


def test_a_handle_from_before_any_configuration_sees_the_first_quota() -> None:
    manager = ClientQuotaManager(QuotaType.PRODUCE)
    handle = manager.limiter("alice", "app")
    assert handle.record(15_000, NOW_MS) == 0
    manager.limits.update(ALICE, 1000)
    assert handle.record(15_000, NOW_MS) == 5000
    assert (handle.bound, handle.bucket, handle.entity) == (1000, ("alice", ""), ALICE)
    assert handle.peek(NOW_MS) == 1500


def test_a_handle_follows_its_client_to_another_bucket_and_back() -> None:
    manager = produce_manager()
    handle = manager.limiter("alice", "app")
    assert handle.record(15_000, NOW_MS) == 5000
    pair = Entity.of(user="alice", client_id="app")
    manager.limits.update(pair, 500)
    assert handle.record(0, NOW_MS) == 0
    assert (handle.bucket, handle.bound, handle.entity) == (("alice", "app"), 500, pair)
    manager.limits.update(pair, None)
    assert handle.record(0, NOW_MS) == 5000


def test_buckets_are_listed_with_their_limits_and_listing_changes_nothing() -> None:
    manager = produce_manager()
    manager.record_and_throttle_ms("bob", "app", 10, NOW_MS)
    manager.record_and_throttle_ms("alice", "app", 5_000, NOW_MS)
    listed = manager.buckets(NOW_MS + 60_000)
    assert [(state.tags, state.bound, state.measured) for state in listed] == [
        (("alice", ""), 1000, 0),
        (("bob", ""), None, 0),
    ]
    assert manager.buckets(NOW_MS)[0].measured == 500


def test_a_bucket_expires_after_more_than_an_hour_without_a_record() -> None:
    manager = produce_manager()
    handle = manager.limiter("alice", "app")
    handle.record(15_000, NOW_MS)
    manager.record_and_throttle_ms("bob", "app", 1, NOW_MS + 1)
    assert manager.expire_idle(NOW_MS + IDLE_MS) == 0
    assert manager.expire_idle(NOW_MS + IDLE_MS + 1) == 1
    assert [state.tags for state in manager.buckets(NOW_MS)] == [("bob", "")]
    assert handle.record(10_000, NOW_MS) == 0
    assert handle.record(5_000, NOW_MS) == 5000


def test_a_bucket_made_by_a_question_gets_its_hour_too() -> None:
    manager = produce_manager()
    assert manager.limiter("alice", "app").max_value(0) == 10_000
    assert manager.expire_idle(NOW_MS) == 0
    assert manager.expire_idle(NOW_MS + IDLE_MS) == 0
    assert manager.expire_idle(NOW_MS + IDLE_MS + 1) == 1


def test_refused_mutations_do_not_keep_a_bucket_alive() -> None:
    manager = ClientQuotaManager(QuotaType.CONTROLLER_MUTATION)
    manager.limits.update(ALICE, 1)
    manager.record_and_throttle_ms("alice", "app", 100_000, NOW_MS)
    assert manager.record_and_throttle_ms("alice", "app", 1, NOW_MS + IDLE_MS) > 0
    assert manager.expire_idle(NOW_MS + IDLE_MS + 1) == 1


def test_static_limits_lie_below_every_stored_one() -> None:
    manager = ClientQuotaManager(QuotaType.PRODUCE)
    manager.limits.update_static(Entity.of(client_id=None), 100)
    manager.limits.update_static(Entity.of(client_id="app"), 200)
    assert manager.enabled
    alice, bob = manager.limiter("alice", "app"), manager.limiter("bob", "app")
    assert (alice.bound, manager.limiter("alice", "").bound) == (200, 100)
    assert manager.limiter("alice", "").bucket == ("", "")
    manager.limits.update(ALICE, 7)
    assert (alice.bound, bob.bound) == (7, 200)
    match = manager.limits.match(manager.limits.bucket("bob", "other"))
    assert match is not None
    assert (match.level, match.limit) == (10, 100)
    manager.limits.update(Entity.of(client_id=None), 8)
    assert bob.bound == 8
    manager.limits.update(Entity.of(client_id=None), None)
    manager.limits.update_static(Entity.of(client_id="app"), None)
    assert bob.bound == 100


@pytest.mark.parametrize("entity", [Entity.of(ip="127.0.0.1"), Entity(parts=())])
def test_quotas_of_clients_are_not_set_on_other_entities(entity: Entity) -> None:
    with pytest.raises(UsageError):
        ClientQuotaManager(QuotaType.PRODUCE).limits.update(entity, 1)


@pytest.mark.parametrize("entity", [ALICE, Entity.of(user=None, client_id="app"), Entity.of(ip=None)])
def test_static_quotas_are_set_on_client_ids_alone(entity: Entity) -> None:
    with pytest.raises(UsageError):
        ClientQuotaManager(QuotaType.PRODUCE).limits.update_static(entity, 1)


def test_a_strict_refusal_says_how_long_until_when_and_whose_limit() -> None:
    manager = ClientQuotaManager(QuotaType.CONTROLLER_MUTATION)
    manager.limits.update(ALICE, 10)
    quota = manager.limiter("alice", "app").mutation_quota(strict=True)
    assert quota.kind == "strict"
    assert quota.record(190, NOW_MS) is None
    refusal = quota.record(1, NOW_MS)
    assert refusal is not None
    assert (refusal.throttle_ms, refusal.until_ms) == (8000, NOW_MS + 8000)
    assert (refusal.limit, refusal.entity) == (10, ALICE)
    assert (quota.throttle_ms(NOW_MS + 3000), quota.throttle_ms(NOW_MS + 9000)) == (5000, 0)


def test_a_mutation_quota_keeps_its_bucket_and_follows_its_bound() -> None:
    manager = ClientQuotaManager(QuotaType.CONTROLLER_MUTATION)
    manager.limits.update(ALICE, 10)
    quota = manager.limiter("alice", "app").mutation_quota(strict=False)
    quota.record(210, NOW_MS)
    assert (quota.kind, quota.throttle_ms(NOW_MS)) == ("permissive", 10_000)
    manager.limits.update(ALICE, 100)
    quota.record(0, NOW_MS)
    assert quota.throttle_ms(NOW_MS) == 1000
    manager.limits.update(Entity.of(user="alice", client_id="app"), 1)
    quota.record(0, NOW_MS)
    assert quota.throttle_ms(NOW_MS) == 1000


@pytest.mark.parametrize("window", [{"samples": 0}, {"window_s": 0}])
def test_a_window_has_at_least_one_sample_of_a_second(window: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        QuotaWindow(**window)
