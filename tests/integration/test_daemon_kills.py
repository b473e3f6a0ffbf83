"""SIGKILL for the broker, the daemon and the store in turn, under load.

Clients recover, nothing that was acknowledged is lost or there twice, and the event log goes on in its topic, which the
broker keeps as well.
"""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from tests.support.daemon_process import DaemonProcess
from tests.support.java_process import free_port
from tests.support.probes import kafka_brokers, zookeeper_serves
from tests.support.servers import kafka_4, zookeeper_process

from kafka_quotas.core.entity import Entity
from kafka_quotas.stores.open_store import open_store
from kafka_quotas.stores.store import Alteration

TIMEOUT_S = 240.0
CLIENT_ID = "load"
QUOTA = 2_000_000.0
EVENTS = "quota-events"
NOT_YET = {
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
"""What a broker that was started again just now answers until it leads its partitions."""


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline_s, f"not within {TIMEOUT_S} s: {what}"
        time.sleep(0.1)


class Load:
    """An idempotent producer that goes on until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: list[KafkaError] = []
        self._topic = topic
        self._ended = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "client.id": CLIENT_ID, "enable.idempotence": True, "linger.ms": 5}
        waits = {"message.timeout.ms": int(TIMEOUT_S * 1000), "reconnect.backoff.max.ms": 500, "log_level": 0}
        self._producer = Producer(settings | waits)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def goes_on(self) -> None:
        """Nothing; more was acknowledged than at the call."""
        before = len(self.acknowledged)
        wait_until("records are acknowledged again", lambda: len(self.acknowledged) > before + 100)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(TIMEOUT_S)
        assert self._producer.flush(TIMEOUT_S) == 0

    def give_up(self) -> None:
        """Nothing; whatever was not sent is forgotten."""
        self._ended.set()
        self._thread.join(TIMEOUT_S)
        self._producer.purge()

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            value = f"{number:08d}".encode() * 16
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
            self._producer.poll(0.002)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(message.value() or b"")
        else:
            self.failures.append(error)


def consumed(bootstrap: str, topic: str) -> list[bytes]:
    """Every record of the topic's one partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.partition.eof": True})
    values: list[bytes] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while time.monotonic() < deadline_s:
            for message in consumer.consume(5000, 0.5):
                error = message.error()
                if error is None:
                    values.append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    return values
    finally:
        consumer.close()
    raise AssertionError("the topic's end was not reached")


@contextmanager
def daemon(folder: Path, *, port: int, upstream: str, store: str) -> Iterator[DaemonProcess]:
    """A daemon that is always at the same place, and logs to a topic of the broker behind it."""
    started = DaemonProcess(
        [
            *("--upstream", upstream, "--listen", f"127.0.0.1:{port}", "--store", store),
            *("--control", str(folder / "c.sock"), "--state-file", str(folder / "state")),
            *("--event-log", f"kafka://{upstream}/{EVENTS}"),
        ]
    )
    try:
        yield started
    finally:
        started.stop()


def set_limit(address: str) -> None:
    """Nothing; ZooKeeper holds what a cluster that uses it has made there, and the limit of the load."""
    client = KazooClient(address)
    client.start(TIMEOUT_S)
    for path in ("/config/clients", "/config/users", "/config/changes", "/brokers/ids"):
        client.ensure_path(path)
    client.stop()
    client.close()
    with closing(open_store(f"zk://{address}")) as store:
        entity = Entity.of(client_id=CLIENT_ID)
        (result,) = store.alter([Alteration(entity=entity, changes={"producer_byte_rate": QUOTA})])
    assert result.error is None, result.error


def every_charge_is_in_the_topic(process: DaemonProcess, bootstrap: str) -> None:
    """Nothing; what the daemon has logged by now came to the topic, whatever became of its broker meanwhile."""
    counters = process.status().counters
    assert counters["events_dropped"] == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": EVENTS})
    try:
        wait_until("the events are there", lambda: events_in(consumer) >= counters["events_logged"] > 0)
    finally:
        consumer.close()


def events_in(consumer: Consumer) -> int:
    """Return how many records the topic of events has, as far as its broker says so by now."""
    try:
        first, behind = consumer.get_watermark_offsets(TopicPartition(EVENTS, 0), timeout=TIMEOUT_S / 10)
    except KafkaException as error:
        if error.args[0].code() in NOT_YET:
            return 0
        raise
    return int(behind) - int(first)


def limits(process: DaemonProcess) -> int:
    return process.status().store.limits


@pytest.mark.timeout(900)  # on a busy machine each start of a server takes a minute
def test_broker_daemon_and_store_are_killed_in_turn(tmp_path: Path, unique_name: str) -> None:
    port = free_port()
    with zookeeper_process() as (address, zookeeper), kafka_4(quick_start=True) as kafka:
        place = {"port": port, "upstream": kafka.bootstrap, "store": f"zk://{address}"}
        set_limit(address)
        with daemon(tmp_path, **place) as first:
            admin = AdminClient({"bootstrap.servers": first.bootstrap})
            admin.create_topics([NewTopic(unique_name, 1, 1)])[unique_name].result(TIMEOUT_S)
            assert limits(first) == 1
            load = Load(first.bootstrap, unique_name)
            try:
                load.goes_on()
                (broker,) = kafka.servers
                broker.kill()
                broker.start_again()
                broker.wait_ready(lambda: kafka_brokers(kafka.bootstrap) == 1)
                load.goes_on()
                every_charge_is_in_the_topic(first, kafka.bootstrap)
                first.send(signal.SIGKILL)
                first.wait()
                with daemon(tmp_path, **place) as second:
                    load.goes_on()
                    zookeeper.kill()
                    second.wait_until(lambda status: status.store.trouble is not None, timeout_s=TIMEOUT_S)
                    load.goes_on()
                    assert limits(second) == 1
                    zookeeper.start_again()
                    zookeeper.wait_ready(lambda: zookeeper_serves(address))
                    second.wait_until(lambda status: status.store.trouble is None, timeout_s=TIMEOUT_S)
                    load.goes_on()
                    assert limits(second) == 1
                    load.stop()
                    found = Counter(consumed(second.bootstrap, unique_name))
            finally:
                load.give_up()
    assert load.failures == []
    assert [value for value, times in found.items() if times > 1] == []
    assert Counter(load.acknowledged) - found == Counter()
