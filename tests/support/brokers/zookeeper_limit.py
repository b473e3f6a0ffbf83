"""A limit in a ZooKeeper server that no cluster uses yet."""

from contextlib import closing

from kazoo.client import KazooClient

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration

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
    with closing(open_store(f"zk://{address}")) as store:
        changes = {"producer_byte_rate": bytes_per_second}
        (result,) = store.alter([Alteration(entity=entity, changes=changes)])
    assert result.error is None, result.error
