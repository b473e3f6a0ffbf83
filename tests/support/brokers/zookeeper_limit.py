"""A limit in a ZooKeeper server that no cluster uses yet."""

from kazoo.client import KazooClient
from tests.support.stores.stored_quotas import store_quotas

from kafka_quotas.core.model.entity import Entity

TIMEOUT_S = 240.0
PATHS = ("/config/clients", "/config/users", "/config/changes", "/brokers/ids")
"""What a cluster makes there."""


def set_producer_limit(address: str, entity: Entity, bytes_per_second: float) -> None:
    """Make what a cluster has at host:port, and set an entity's `producer_byte_rate`.

    Raises:
        AssertionError: the store refused it.
    """
    client = KazooClient(address)
    client.start(TIMEOUT_S)
    for path in PATHS:
        client.ensure_path(path)
    client.stop()
    client.close()
    store_quotas(f"zk://{address}", {entity: {"producer_byte_rate": bytes_per_second}})
