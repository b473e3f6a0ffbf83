"""What calibrating sets at a cluster is removed again, whatever fails at the end."""

from collections.abc import Sequence

import pytest

from kafka_quotas.commands import calibrate
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW
from kafka_quotas.stores.address import StoreSettings
from kafka_quotas.stores.store import Alteration, AlterationResult
from kafka_quotas.wire.client.admin import Broker, Metadata, Partition, Topic

TOPIC = Topic(name="scratch", error_code=0, partitions=(Partition(number=0, leader_id=1),))


class Cluster:
    """A store and its cluster of one broker: what was set at it, and what of its connections was closed."""

    url = "kafka://localhost:1"

    def __init__(self) -> None:
        self.cluster = self
        self.quotas: dict[Entity, dict[str, float | None]] = {}
        self.closed: list[str] = []

    def send(self, request: object) -> Metadata:
        del request
        broker = Broker(node_id=1, host="localhost", port=1)
        return Metadata(brokers=(broker,), controller_id=1, topics=(TOPIC,))

    def alter(self, alterations: Sequence[Alteration]) -> list[AlterationResult]:
        self.quotas |= {each.entity: dict(each.changes) for each in alterations}
        return []


class Peer:
    """A connection whose close fails."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def close(self) -> None:
        self._cluster.closed.append("peer")
        raise OSError("the connection is gone")


def test_a_connection_that_fails_to_close_leaves_no_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, entity = Cluster(), Entity.of(client_id="probe")
    monkeypatch.setattr("kafka_quotas.stores.BrokerClient", lambda *_, **__: Peer(cluster))
    upstream = calibrate._Upstream(cluster, StoreSettings(), "scratch", DEFAULT_WINDOW)  # type: ignore[arg-type]
    for client_id in ("probe", "baseline"):
        upstream.asking(client_id)
    upstream.limit([entity])
    assert cluster.quotas[entity]["request_percentage"]
    with pytest.raises(OSError, match="the connection is gone"):
        upstream.close()
    assert cluster.quotas == {entity: {"request_percentage": None}}
    assert cluster.closed == ["peer", "peer"]
