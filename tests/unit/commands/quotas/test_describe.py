"""What a cluster adds to effective quotas: its size, a topic's leaders, and callbacks that replace the answer."""

from collections.abc import Mapping, Sequence

import pytest

from kafka_quotas.commands.quotas.describe import ClusterView, look_at_cluster
from kafka_quotas.core.errors import StoreError, StoreRefusedError, UsageError
from kafka_quotas.core.model.quota_key import (
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaKey,
)
from kafka_quotas.stores import open_store
from kafka_quotas.stores.kafka.cluster_client import CALLBACK_CLASS, FanOut, Properties

CLUSTER, LOCAL = open_store("kafka://broker:9092"), open_store("local:/q.db")


class FakeCluster:
    """Three brokers.

    The class attributes say what they answer.
    """

    callbacks: Mapping[int, str] = {}
    refuses = False
    silent: tuple[int, ...] = ()

    def node_ids(self) -> tuple[int, ...]:
        return (1, 2, 3)

    def leaders(self, topic: str) -> Mapping[int, int]:
        assert topic == "orders"
        return {0: 1, 1: 3, 2: 1}

    def broker_settings(self, names: Sequence[str]) -> FanOut[Properties]:
        assert list(names) == [CALLBACK_CLASS]
        if self.refuses:
            raise StoreRefusedError("not allowed", hint="grant DescribeConfigs")
        answers = {
            node: {CALLBACK_CLASS: self.callbacks[node]} if node in self.callbacks else {}
            for node in self.node_ids()
            if node not in self.silent
        }
        failures = {node: StoreError(f"broker {node} does not answer") for node in self.silent}
        return FanOut(answers=answers, failures=failures)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeCluster]:
    class Own(FakeCluster):
        pass

    monkeypatch.setattr(CLUSTER, "cluster", Own())
    return Own


def test_a_cluster_tells_its_size_and_a_topics_leaders(fake: type[FakeCluster]) -> None:
    found = look_at_cluster(CLUSTER, topic="orders")
    assert found == (ClusterView(brokers=3, topic="orders", leading_brokers=2), ())


def test_a_callback_on_any_broker_is_warned_of(fake: type[FakeCluster]) -> None:
    fake.callbacks = {1: "com.example.Ours", 3: "com.example.Ours", 2: "com.example.Other"}
    _, warnings = look_at_cluster(CLUSTER)
    assert [warning.split(":")[0] for warning in warnings] == [
        f"{CALLBACK_CLASS}=com.example.Other on broker 2 replaces all of this",
        f"{CALLBACK_CLASS}=com.example.Ours on broker 1, 3 replaces all of this",
    ]


def test_settings_that_may_not_be_read_are_warned_of(fake: type[FakeCluster]) -> None:
    fake.refuses = True
    view, warnings = look_at_cluster(CLUSTER)
    assert view == ClusterView(brokers=3)
    assert "would replace all of this: not allowed" in warnings[0]


def test_a_silent_broker_is_named_beside_what_the_others_run(fake: type[FakeCluster]) -> None:
    fake.callbacks = {1: "com.example.Ours"}
    fake.silent = (3,)
    _, (first, second) = look_at_cluster(CLUSTER)
    assert first.startswith(f"{CALLBACK_CLASS}=com.example.Ours on broker 1 replaces")
    assert second.endswith("would replace all of this: broker 3 does not answer")


def test_the_number_of_brokers_may_be_given(fake: type[FakeCluster]) -> None:
    assert look_at_cluster(CLUSTER, brokers=9) == (ClusterView(brokers=9), ())
    assert look_at_cluster(LOCAL, brokers=9) == (ClusterView(brokers=9), ())
    assert look_at_cluster(LOCAL) == (None, ())


def test_only_kafka_knows_who_leads_a_topic() -> None:
    with pytest.raises(UsageError, match="--topic needs a Kafka store"):
        look_at_cluster(LOCAL, topic="orders")


@pytest.mark.parametrize(
    ("key", "limit", "total", "topic_total"),
    [
        (PRODUCER_BYTE_RATE, 10.0, 60.0, 30.0),
        (CONNECTION_CREATION_RATE, 10.0, 60.0, None),
        (REQUEST_PERCENTAGE, 10.0, None, None),
        (CONTROLLER_MUTATION_RATE, 10.0, None, None),
        (PRODUCER_BYTE_RATE, None, None, None),
        (PRODUCER_BYTE_RATE, float(PRODUCER_BYTE_RATE.unlimited), None, None),
    ],
)
def test_what_adds_up_over_brokers(
    key: QuotaKey, limit: float | None, total: float | None, topic_total: float | None
) -> None:
    view = ClusterView(brokers=6, topic="orders", leading_brokers=3)
    assert (view.total(key, limit), view.topic_total(key, limit)) == (total, topic_total)
