"""Live quotas: the store over static ones, for each broker and mode alike."""

from tests.support.daemon.whole_run import run_whole
from tests.support.frames.enforcement import CLIENT_ID, START_MS, WINDOW, set_limit

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.stores.store import QuotaEntry

APP = Entity.of(client_id="app")
ALICE = Entity.of(user="alice")


def entry(entity: Entity, **quotas: float) -> QuotaEntry:
    return QuotaEntry(entity=entity, quotas=quotas)


def produce_bound(
    policy: QuotaRegistry, node_id: int | None, user: str = "ANONYMOUS", client_id: str = "app"
) -> float | None:
    return policy.broker(node_id).client(user, client_id).produce.bound


def test_what_the_store_holds_is_in_force_for_every_broker_met_before_and_after() -> None:
    policy = QuotaRegistry(WINDOW)
    policy.broker(1)
    assert policy.apply([entry(APP, producer_byte_rate=1000.0, consumer_byte_rate=2000.0)]) == 2
    assert produce_bound(policy, 1) == produce_bound(policy, 2) == 1000.0
    assert policy.broker(2).client("x", "app").fetch.bound == 2000.0


def test_an_entity_that_is_gone_from_the_store_loses_its_limit() -> None:
    policy = QuotaRegistry(WINDOW)
    policy.apply([entry(APP, producer_byte_rate=1000.0), entry(ALICE, producer_byte_rate=5.0)])
    assert policy.apply([entry(ALICE, producer_byte_rate=5.0)]) == 1
    assert produce_bound(policy, 1) is None
    assert produce_bound(policy, 1, user="alice") == 5.0
    assert policy.limit_count == 1


def test_the_same_content_changes_nothing() -> None:
    policy = QuotaRegistry(WINDOW)
    content = [entry(APP, producer_byte_rate=1000.0)]
    policy.apply(content)
    generation = policy.broker(1).manager(QuotaType.PRODUCE).limits.generation
    assert policy.apply(content) == 0
    assert policy.broker(1).manager(QuotaType.PRODUCE).limits.generation == generation


def test_a_changed_limit_keeps_what_was_recorded() -> None:
    policy = QuotaRegistry(WINDOW)
    policy.apply([entry(APP, producer_byte_rate=1e9)])
    limiter = policy.broker(1).client("u", "app").produce
    assert limiter.record(5000, 0) == 0
    policy.apply([entry(APP, producer_byte_rate=1000.0)])
    assert limiter.record(0, 0) == 3000


def test_keys_that_the_daemon_does_not_enforce_and_entities_of_addresses_are_passed_over() -> None:
    policy = QuotaRegistry(WINDOW)
    others = [
        entry(Entity.of(ip="127.0.0.1"), connection_creation_rate=5.0),
        entry(Entity.of(ip=None), producer_byte_rate=5.0),
    ]
    assert policy.apply(others) == 0
    assert policy.limit_count == 0


def test_static_quotas_lie_below_the_stores() -> None:
    policy = QuotaRegistry(WINDOW)
    policy.apply([entry(Entity.of(client_id=None), producer_byte_rate=10.0)], static=True)
    assert produce_bound(policy, 1) == 10.0
    assert produce_bound(policy, 1, client_id="") == 10.0
    policy.apply([entry(Entity.of(user="ANONYMOUS"), producer_byte_rate=99.0)])
    assert produce_bound(policy, 1) == 99.0
    policy.apply([])
    assert produce_bound(policy, 1) == 10.0


def test_the_bootstrap_broker_keeps_its_buckets_when_its_node_id_becomes_known() -> None:
    policy = QuotaRegistry(WINDOW)
    quotas = policy.broker(None)
    policy.name_bootstrap(7)
    assert policy.broker(7) is quotas
    assert policy.broker(None) is not quotas


def test_idle_buckets_are_forgotten() -> None:
    policy = QuotaRegistry(WINDOW)
    policy.apply([entry(APP, producer_byte_rate=1000.0)])
    policy.broker(1).client("u", "app").produce.record(1, 0)
    assert len(policy.broker(1).manager(QuotaType.PRODUCE).buckets(0)) == 1
    run_whole(policy.expiry(3_600_001))
    assert policy.broker(1).manager(QuotaType.PRODUCE).buckets(0) == []


def test_brokers_have_buckets_for_each_mode_and_every_limit_is_in_all_of_them() -> None:
    quotas = QuotaRegistry(WINDOW).broker(None)
    set_limit(quotas, QuotaType.PRODUCE, APP, 5.0)
    smooth = quotas.manager(QuotaType.PRODUCE, Mode.SMOOTH).limits
    assert smooth.limit(smooth.bucket("u", CLIENT_ID)) == 5.0
    set_limit(quotas, QuotaType.PRODUCE, APP, 6.0)
    for mode in (Mode.KAFKA, Mode.SMOOTH):
        limits = quotas.manager(QuotaType.PRODUCE, mode).limits
        assert limits.limit(limits.bucket("u", CLIENT_ID)) == 6.0
    quotas.client("u", CLIENT_ID).produce.record(1, START_MS)
    kept = [(mode, state.bound) for mode, manager in quotas.managers() for state in manager.buckets(START_MS)]
    assert kept == [(Mode.KAFKA, 6.0)]
