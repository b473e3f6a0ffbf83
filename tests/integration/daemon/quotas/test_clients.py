"""Real clients through the daemon against real brokers: they work as without it.

That they are held as by a broker is the matter of `test_broker_against_daemon.py`.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from tests.support.brokers.appended_records import make_topic
from tests.support.brokers.broker_properties import USERS
from tests.support.brokers.servers import Kafka
from tests.support.daemon.greedy_producer import acknowledgements
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota
from tests.support.stores.stored_quotas import store_quotas

from kafka_quotas.core.model.entity import Entity

QUOTA = 1_000_000.0
WINDOW_MS = 3000  # the servers' 3 x 1 s, and the daemon's
WINDOW = ["--quota-window-num", "3", "--quota-window-size-seconds", "1"]
PARTITIONS = 4
TIMEOUT_S = 240.0


@pytest.fixture
def cluster(kafka4_cluster: Kafka, tmp_path: Path) -> Iterator[DaemonProcess]:
    with running_daemon(tmp_path, upstream=kafka4_cluster.bootstrap, options=WINDOW) as daemon:
        yield daemon


@pytest.fixture
def old(kafka3: Kafka, tmp_path: Path) -> Iterator[DaemonProcess]:
    with running_daemon(tmp_path, upstream=kafka3.bootstrap, options=WINDOW) as daemon:
        yield daemon


@pytest.fixture(params=["4.x cluster", "3.9"])
def either(request: pytest.FixtureRequest) -> DaemonProcess:
    """The daemon in front of each version in turn."""
    daemon: DaemonProcess = request.getfixturevalue("cluster" if request.param == "4.x cluster" else "old")
    return daemon


@pytest.fixture
def tools(kafka4: Kafka) -> Kafka:
    """Kafka's own tools, by version 4.

    Which brokers they talk to is up to their arguments.
    """
    return kafka4


def produced_by_confluent(bootstrap: str, topic: str, values: list[bytes]) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(
            topic, value, partition=number % PARTITIONS, on_delivery=lambda error, _: error and failures.append(error)
        )
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []


def consumed_by_confluent(bootstrap: str, topic: str, count: int, *, isolation: str = "read_committed") -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
        }
    )
    values: list[bytes] = []
    try:
        consumer.subscribe([topic])
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(values) < count and time.monotonic() < deadline_s:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sorted(values)


def produced_by_java(tools: Kafka, bootstrap: str, topic: str, records: int, *options: str) -> str:
    """What Kafka's own producer benchmark said about so many records of 500 bytes."""
    arguments = ["--topic", topic, "--num-records", str(records), "--record-size", "500", "--throughput", "-1"]
    properties = ["--producer-props", f"bootstrap.servers={bootstrap}", "client.id=java"]
    result = tools.run_tool("org.apache.kafka.tools.ProducerPerformance", [*arguments, *options, *properties])
    assert f"{records} records sent" in result.stdout, result
    return result.stdout


VALUES = [f"{number:06d}".encode() * (1 + number % 900) for number in range(2000)]


def test_confluent_kafka_gets_out_what_it_put_in(either: DaemonProcess, unique_name: str) -> None:
    make_topic(either.bootstrap, unique_name, partitions=PARTITIONS)
    produced_by_confluent(either.bootstrap, unique_name, VALUES)
    assert consumed_by_confluent(either.bootstrap, unique_name, len(VALUES)) == sorted(VALUES)
    assert either.status().counters["protocol_errors"] == 0


def test_every_broker_is_reached_through_a_listener_of_its_own(cluster: DaemonProcess, unique_name: str) -> None:
    make_topic(cluster.bootstrap, unique_name, partitions=PARTITIONS)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    brokers = admin.list_topics(timeout=TIMEOUT_S).brokers
    listeners = {row.broker: row.listen for row in cluster.status().listeners}
    assert listeners == {str(node): f"{broker.host}:{broker.port}" for node, broker in brokers.items()}
    assert len(listeners) == 2
    described = admin.describe_cluster().result(TIMEOUT_S)
    assert {f"{node.host}:{node.port}" for node in described.nodes} == set(listeners.values())


def test_kafka_python_gets_out_what_it_put_in(either: DaemonProcess, unique_name: str) -> None:
    make_topic(either.bootstrap, unique_name, partitions=PARTITIONS)
    producer = KafkaProducer(bootstrap_servers=either.bootstrap, acks="all")
    try:
        sent = [producer.send(unique_name, value, partition=n % PARTITIONS) for n, value in enumerate(VALUES)]
        for each in sent:
            each.get(TIMEOUT_S)
    finally:
        producer.close()
    consumer = KafkaConsumer(
        unique_name,
        bootstrap_servers=either.bootstrap,
        group_id=unique_name,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(TIMEOUT_S * 1000),
    )
    values: list[bytes] = []
    try:
        for record in consumer:
            values.append(record.value)
            if len(values) == len(VALUES):
                break
        consumer.commit()
    finally:
        consumer.close()
    assert sorted(values) == sorted(VALUES)
    assert either.status().counters["protocol_errors"] == 0


def test_javas_producer_and_consumer(either: DaemonProcess, tools: Kafka, unique_name: str) -> None:
    make_topic(either.bootstrap, unique_name, partitions=PARTITIONS)
    produced_by_java(tools, either.bootstrap, unique_name, 20_000)
    target = ["--bootstrap-server", either.bootstrap, "--topic", unique_name, "--group", unique_name]
    consuming = tools.run_tool(
        "org.apache.kafka.tools.ConsumerPerformance", [*target, "--num-records", "20000", "--timeout", "20000"]
    )
    figures = consuming.stdout.strip().splitlines()[-1].split(", ")
    assert int(figures[4]) == 20_000, consuming
    assert either.status().counters["protocol_errors"] == 0


def test_a_java_consumer_group_and_its_offsets(either: DaemonProcess, tools: Kafka, unique_name: str) -> None:
    make_topic(either.bootstrap, unique_name, partitions=PARTITIONS)
    produced_by_confluent(either.bootstrap, unique_name, VALUES[:100])
    target = ["--bootstrap-server", either.bootstrap, "--topic", unique_name, "--group", unique_name]
    consumed = tools.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        [*target, "--from-beginning", "--max-messages", "100", "--timeout-ms", "20000"],
    )
    assert len(consumed.stdout.splitlines()) == 100, consumed
    described = tools.run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        ["--bootstrap-server", either.bootstrap, "--describe", "--group", unique_name],
    )
    row = re.compile(rf"^{unique_name}\s+{unique_name}\s+\d+\s+(\d+)\s+\d+\s+(\d+)", re.MULTILINE)
    offsets = row.findall(described.stdout)
    assert sum(int(committed) for committed, _ in offsets) == 100, described
    assert sum(int(lag) for _, lag in offsets) == 0


def test_transactions_commit_and_abort(either: DaemonProcess, unique_name: str) -> None:
    make_topic(either.bootstrap, unique_name, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": either.bootstrap, "transactional.id": unique_name})
    producer.init_transactions(TIMEOUT_S)
    for number in range(3):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(unique_name, f"{number}-{partition}".encode(), partition=partition)
        if number == 1:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    expected = sorted(f"{number}-{partition}".encode() for number in (0, 2) for partition in range(PARTITIONS))
    assert consumed_by_confluent(either.bootstrap, unique_name, len(expected)) == expected


def test_consume_transform_produce_with_offsets_in_the_transaction(cluster: DaemonProcess, unique_name: str) -> None:
    source, target = f"{unique_name}-in", f"{unique_name}-out"
    for topic in (source, target):
        make_topic(cluster.bootstrap, topic, partitions=PARTITIONS)
    produced_by_confluent(cluster.bootstrap, source, VALUES[:40])
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": source,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": target})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    taken = 0
    try:
        consumer.subscribe([source])
        deadline_s = time.monotonic() + TIMEOUT_S
        while taken < 40 and time.monotonic() < deadline_s:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                producer.produce(target, (message.value() or b"").upper())
                taken += 1
        places = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
        committed = consumer.committed([TopicPartition(source, n) for n in range(PARTITIONS)], timeout=TIMEOUT_S)
    finally:
        consumer.close()
    assert taken == 40
    assert sum(place.offset for place in committed) == 40
    assert len(consumed_by_confluent(cluster.bootstrap, target, 40)) == 40


def test_a_java_transactional_producer(either: DaemonProcess, tools: Kafka, unique_name: str) -> None:
    make_topic(either.bootstrap, unique_name, partitions=PARTITIONS)
    transactional = ["--transactional-id", unique_name, "--transaction-duration-ms", "50"]
    produced_by_java(tools, either.bootstrap, unique_name, 2000, *transactional)
    assert len(consumed_by_confluent(either.bootstrap, unique_name, 2000)) == 2000


@pytest.mark.measuring
def test_a_quota_of_a_user_holds_whoever_authenticated_as_that_user(
    kafka4: Kafka, tmp_path: Path, unique_name: str
) -> None:
    set_quota(tmp_path, Entity.of(user="alice"), producer_byte_rate=QUOTA)
    sasl = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": USERS["alice"],
    }
    with running_daemon(tmp_path, upstream=kafka4.sasl_bootstrap, options=WINDOW) as daemon:
        acks = acknowledgements(daemon.bootstrap, unique_name, unique_name, duration_s=12.0, properties=sasl)
        status = daemon.status()
    average = sum(size for at_ms, size in acks if at_ms >= acks[0][0] + WINDOW_MS) / (
        (acks[-1][0] - acks[0][0] - WINDOW_MS) / 1000
    )
    assert average == pytest.approx(QUOTA, rel=0.35)  # 9 s hold two or three cycles, and one window is 3 s
    assert [(row.user, row.client_id) for row in status.throttles] == [("alice", "")]
    assert status.counters["authentications"] > 0
    assert status.counters["unknown_principals"] == 0


def test_a_broker_that_throttles_the_same_client_is_noticed(kafka4: Kafka, tmp_path: Path, unique_name: str) -> None:
    entity = Entity.of(client_id=unique_name)
    store_quotas(f"kafka://{kafka4.bootstrap}", {entity: {"producer_byte_rate": QUOTA}})
    set_quota(tmp_path, entity, producer_byte_rate=10 * QUOTA)
    with running_daemon(tmp_path, upstream=kafka4.bootstrap, options=WINDOW) as daemon:
        acknowledgements(daemon.bootstrap, unique_name, unique_name, duration_s=5.0)
        daemon.wait_for_log("upstream throttles a client that is limited here as well", unique_name)
        (row,) = daemon.status().throttles
    assert row.upstream_times > 0
    assert row.upstream_total_ms > 0
    assert len(daemon.lines("upstream throttles")) == 1


@pytest.mark.parametrize("kind", ["kafka", "zk"])
def test_quotas_are_followed_in_the_stores_of_a_cluster(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, unique_name: str
) -> None:
    kafka: Kafka = request.getfixturevalue("kafka4" if kind == "kafka" else "kafka3")
    url = f"kafka://{kafka.bootstrap}" if kind == "kafka" else kafka.zookeeper_url
    with running_daemon(tmp_path, upstream=kafka.bootstrap, store=url) as daemon:
        before = daemon.status().store.limits
        for value, limits in ((QUOTA, before + 1), (None, before)):
            store_quotas(url, {Entity.of(client_id=unique_name): {"producer_byte_rate": value}})
            daemon.wait_until(lambda status, limits=limits: status.store.limits == limits)
        assert daemon.status().store.trouble is None


def test_javas_producer_knows_that_it_is_throttled(
    cluster: DaemonProcess, tools: Kafka, tmp_path: Path, unique_name: str
) -> None:
    make_topic(cluster.bootstrap, unique_name, partitions=PARTITIONS)
    set_quota(tmp_path, Entity.of(client_id=None), producer_byte_rate=QUOTA)
    cluster.wait_until(lambda status: status.store.limits == 1)
    said = produced_by_java(tools, cluster.bootstrap, unique_name, 32_000, "--print-metrics")
    (throttled,) = re.findall(r"produce-throttle-time-max\S*\s*:\s*([\d.]+)", said)
    assert float(throttled) > 0, said
