"""A quota set through a store holds a real producer at a real broker: the whole point of setting one."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.brokers.servers import Kafka
from tests.support.daemon.greedy_producer import acknowledgements
from tests.support.stores.stored_quotas import store_quotas

from kafka_quotas.core.model.entity import EVERYTHING, Entity
from kafka_quotas.loadtest.plan.client_verdict import TOLERANCE, ClientVerdict, judge
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import QuotaEntry

QUOTA = 1_000_000.0
WINDOW_MS = 3000  # the servers' 3 x 1 s
DURATION_S = 24.0  # seven cycles or so, where three are needed


def _produce(bootstrap: str, name: str) -> ClientVerdict:
    acks = acknowledgements(bootstrap, name, name, duration_s=DURATION_S)
    return judge(acks, quota=QUOTA, window_ms=WINDOW_MS)


@pytest.mark.measuring
def test_a_quota_set_through_a_store_throttles_a_producer(kafka4: Kafka, kafka3: Kafka, unique_name: str) -> None:
    """One through Kafka, one through ZooKeeper, both at once: each producer needs little of the machine."""
    entity = Entity.of(client_id=unique_name)
    stores = {f"kafka://{kafka4.bootstrap}": kafka4, kafka3.zookeeper_url: kafka3}
    for url in stores:
        store_quotas(url, {entity: {"producer_byte_rate": QUOTA}})
    broker = open_store(f"kafka://{kafka3.bootstrap}")
    assert QuotaEntry(entity=entity, quotas={"producer_byte_rate": QUOTA}) in broker.describe(EVERYTHING)
    broker.close()
    with ThreadPoolExecutor(len(stores)) as pool:
        verdicts = list(pool.map(lambda kafka: _produce(kafka.bootstrap, unique_name), stores.values()))
    for url in stores:
        store_quotas(url, {entity: {"producer_byte_rate": None}})
    for verdict in verdicts:
        assert verdict.ok, verdict.evidence
        assert (verdict.lower, verdict.upper) == (1 - TOLERANCE, 1 + TOLERANCE), verdict.evidence


@pytest.mark.measuring
def test_without_a_quota_the_same_producer_is_many_times_faster(kafka4: Kafka, unique_name: str) -> None:
    acks = acknowledgements(kafka4.bootstrap, unique_name, unique_name, duration_s=2.0)
    assert sum(size for _, size in acks) > 5 * 2 * QUOTA
