"""Real consumers whose fetches over quota are answered empty, as a broker does it: every record comes once, in order.

The answer drops a fetch session or keeps it; a client that took that wrongly would lose its place or stop.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as PythonPartition
from tests.support.brokers.servers import Kafka
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota

from kafka_quotas.core.model.entity import Entity

RECORDS = 300
RECORD_BYTES = 10_000
BYTES_PER_SECOND = 800_000.0
TIMEOUT_S = 240.0


def value(number: int) -> str:
    return f"{number:06}".ljust(RECORD_BYTES, "x")


@pytest.fixture(scope="module")
def topic(kafka4: Kafka) -> str:
    """A topic of one partition with the records, in batches that fit into the quota's window."""
    name = "fetch-mode"
    producer = Producer({"bootstrap.servers": kafka4.bootstrap, "batch.size": 100_000})
    for number in range(RECORDS):
        producer.produce(name, value(number))
    assert producer.flush(TIMEOUT_S) == 0
    return name


@pytest.fixture(scope="module")
def daemon(kafka4: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = Path(tmp_path_factory.mktemp("d"))
    set_quota(folder, Entity.of(client_id=None), consumer_byte_rate=BYTES_PER_SECOND)
    options = ["--fetch-over-quota", "kafka", "--quota-window-num", "3"]
    with running_daemon(folder, upstream=kafka4.bootstrap, options=options) as running:
        yield running


def by_librdkafka(bootstrap: str, topic: str, client_id: str, kafka: Kafka) -> list[str]:
    del kafka
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": client_id, "client.id": client_id})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    try:
        while len(values) < RECORDS:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{len(values)} records came"
            assert message.error() is None, message.error()
            values.append((message.value() or b"").decode())
    finally:
        consumer.close()
    return values


def by_kafka_python(bootstrap: str, topic: str, client_id: str, kafka: Kafka) -> list[str]:
    del kafka
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, client_id=client_id, group_id=None, consumer_timeout_ms=int(1000 * TIMEOUT_S)
    )
    try:
        partition = PythonPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        return [next(consumer).value.decode() for _ in range(RECORDS)]
    finally:
        consumer.close()


def by_java(bootstrap: str, topic: str, client_id: str, kafka: Kafka) -> list[str]:
    place = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(RECORDS)]
    told = kafka.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        ["--bootstrap-server", bootstrap, *place, "--command-property", f"client.id={client_id}"],
    )
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()


@pytest.mark.parametrize("consume", [by_librdkafka, by_kafka_python, by_java])
def test_every_record_comes_once_and_in_order(
    consume: Callable[[str, str, str, Kafka], list[str]],
    daemon: DaemonProcess,
    topic: str,
    kafka4: Kafka,
    unique_name: str,
) -> None:
    values = consume(daemon.bootstrap, topic, unique_name, kafka4)
    assert values == [value(number) for number in range(RECORDS)]
    status = daemon.status()
    assert status.fetch_over_quota == "kafka"
    (row,) = [row for row in status.throttles if row.client_id == unique_name]
    assert (row.quota, row.times > 0) == ("consumer_byte_rate", True)
