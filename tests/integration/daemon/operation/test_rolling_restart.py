"""A cluster whose brokers are restarted one after the other under load, with the daemon in front of it."""

import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.brokers.appended_records import appended
from tests.support.brokers.servers import Kafka, kafka_4
from tests.support.daemon.process import DaemonProcess, running_daemon
from tests.support.processes.awaiting import await_true

BROKERS = 3
PARTITIONS = 6
TIMEOUT_S = 240.0
PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
}


class Load:
    """An idempotent producer that goes on until it is told to stop: what it got acknowledged, and what failed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: list[KafkaError] = []
        self._topic = topic
        self._ended = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": int(TIMEOUT_S * 1000),
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(TIMEOUT_S)
        assert self._producer.flush(TIMEOUT_S) == 0

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            value = f"{number:08d}".encode() * 16
            self._producer.produce(self._topic, value, partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0.03)  # brokers that replicate one record at a time would keep the processors busy
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(message.value() or b"")
        else:
            self.failures.append(error)


def in_sync(admin: AdminClient, topic: str) -> bool:
    """Whether every partition has all its replicas, one of them as its leader."""
    described = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    return len(described.partitions) == PARTITIONS and all(
        partition.leader >= 0 and len(partition.isrs) == BROKERS for partition in described.partitions.values()
    )


def restart(kafka: Kafka, daemon: DaemonProcess, admin: AdminClient, topic: str, load: Load, *, brokers: int) -> None:
    """Stop some of the brokers under load and start them again, one after the other."""
    for server in kafka.servers[:brokers]:
        server.stop()
        before = len(load.acknowledged)
        await_true(lambda before=before: len(load.acknowledged) > before + 100, "the other brokers go on")
        server.start_again()
        await_true(lambda: in_sync(admin, topic), f"{server.name} is back")
    assert daemon.status().counters["protocol_errors"] == 0


@pytest.mark.timeout(900)  # three brokers start six times; on a busy machine each takes a minute
@pytest.mark.parametrize("brokers", [1, pytest.param(BROKERS, marks=pytest.mark.long)])
def test_a_rolling_restart_loses_and_doubles_nothing(tmp_path: Path, unique_name: str, brokers: int) -> None:
    with (
        kafka_4(brokers=BROKERS, is_quorum=True, quick_start=True, properties=PROPERTIES) as kafka,
        running_daemon(tmp_path, upstream=kafka.bootstrap) as daemon,
    ):
        admin = AdminClient({"bootstrap.servers": daemon.bootstrap})
        admin.create_topics([NewTopic(unique_name, PARTITIONS, BROKERS)])[unique_name].result(TIMEOUT_S)
        await_true(lambda: in_sync(admin, unique_name), "the topic is there")
        load = Load(daemon.bootstrap, unique_name)
        try:
            await_true(lambda: len(load.acknowledged) > 100, "the load has begun")
            restart(kafka, daemon, admin, unique_name, load, brokers=brokers)
        finally:
            load.stop()
        assert load.failures == []
        found = Counter(each.value for each in appended(daemon.bootstrap, unique_name, partitions=PARTITIONS))
        listeners = {row.broker for row in daemon.status().listeners}
    assert [value for value, times in found.items() if times > 1] == []
    assert Counter(load.acknowledged) - found == Counter()
    assert len(found) == len(load.acknowledged)
    assert listeners == {"1", "2", "3"}
