"""One question to every broker at once."""

import threading
from contextlib import closing

import pytest
from confluent_kafka import KafkaError

from kafka_quotas.core.errors import StoreRefusedError, StoreUnreachableError
from kafka_quotas.loadtest.clients.cluster_check import translated
from kafka_quotas.stores.address import StoreSettings, parse_store_url
from kafka_quotas.stores.kafka.cluster_client import ClusterClient, ask_each


def test_brokers_are_asked_side_by_side() -> None:
    together = threading.Barrier(3)

    def question(node_id: int) -> int:
        together.wait(30)  # fails unless all three are asked at once
        if node_id == 2:
            raise StoreUnreachableError("broker 2 does not answer")
        return node_id * 10

    found = ask_each((3, 1, 2), question)
    assert dict(found.answers) == {1: 10, 3: 30}
    assert found.missing == "broker 2 does not answer"


def test_what_every_broker_refuses_is_a_refusal() -> None:
    def question(node_id: int) -> int:
        raise StoreRefusedError(f"broker {node_id} refuses")

    with pytest.raises(StoreRefusedError, match="broker 1 refuses"):
        ask_each((1, 2), question).raise_refusal()
    with pytest.raises(ZeroDivisionError):
        ask_each((1, 2), lambda node_id: 1 // (node_id - 2))


TOPIC, CLUSTER = 29, 31


@pytest.mark.parametrize(
    ("code", "operation", "said", "hint"),
    [
        (CLUSTER, "AlterConfigs", "AlterConfigs on the cluster", "--cluster --operation AlterConfigs"),
        (TOPIC, "DescribeConfigs", "DescribeConfigs on the topic", "--topic NAME --operation DescribeConfigs"),
    ],
)
def test_of_a_broker(code: int, operation: str, said: str, hint: str) -> None:
    address = parse_store_url("kafka://127.0.0.1:9092")
    with closing(ClusterClient(address, settings=StoreSettings())) as connection:
        error = connection.error(code, None, missing_acl=operation)
    assert isinstance(error, StoreRefusedError)
    assert error.message == f"not authorized at kafka://127.0.0.1:9092: {said} is missing"
    assert error.hint == f"kafka-acls --add {hint} --allow-principal User:NAME"


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "--topic NAME --operation Write (Read for consumers)"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "--group NAME --operation Read"),
    ],
)
def test_of_a_load_test(code: int, hint: str) -> None:
    error = translated(KafkaError(code), bootstrap="127.0.0.1:9092")
    assert error.message.startswith("not authorized at 127.0.0.1:9092: ")
    assert error.hint == f"kafka-acls --add {hint} --allow-principal User:NAME"
