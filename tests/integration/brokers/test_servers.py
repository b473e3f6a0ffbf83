"""The server fixtures themselves: each kind of server comes up, and answers what it claims to be."""

from tests.support.brokers.probes import kafka_brokers, zookeeper_serves
from tests.support.brokers.servers import Kafka


def test_kafka_4_is_one_broker(kafka4: Kafka) -> None:
    assert kafka_brokers(kafka4.bootstrap) == 1


def test_kafka_4_cluster_has_two_brokers(kafka4_cluster: Kafka) -> None:
    assert [kafka_brokers(address) for address in kafka4_cluster.bootstrap.split(",")] == [2, 2]


def test_kafka_3_runs_on_zookeeper(kafka3: Kafka, zookeeper_server: str) -> None:
    assert kafka_brokers(kafka3.bootstrap) == 1
    assert zookeeper_serves(zookeeper_server)


def test_kafkas_own_tools_run(kafka4: Kafka, unique_name: str) -> None:
    arguments = ["--bootstrap-server", kafka4.bootstrap, "--create", "--topic", unique_name]
    result = kafka4.run_tool("org.apache.kafka.tools.TopicCommand", arguments)
    assert (result.returncode, result.stdout) == (0, f"Created topic {unique_name}.\n")
