"""Kafka's own tools and other programs through the daemon: they find what they would find without it."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.support.brokers.appended_records import make_topic
from tests.support.brokers.servers import Kafka
from tests.support.daemon.process import DaemonProcess, running_daemon
from tests.support.processes.awaiting import await_true

TIMEOUT_S = 240.0
LINES = [f"line {number}" for number in range(50)]


@pytest.fixture(scope="module")
def daemon(kafka4_cluster: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with running_daemon(tmp_path_factory.mktemp("daemon"), upstream=kafka4_cluster.bootstrap) as running:
        yield running
        assert running.status().counters["protocol_errors"] == 0
        assert running.status().counters["connections_failed"] == 0


def produce_lines(kafka: Kafka, bootstrap: str, topic: str) -> None:
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic]
    done = kafka.run_tool("org.apache.kafka.tools.ConsoleProducer", arguments, stdin="\n".join(LINES) + "\n")
    assert done.returncode == 0, done


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_console_producer_and_consumer_in_both_kinds_of_group(
    daemon: DaemonProcess, kafka4_cluster: Kafka, unique_name: str, protocol: str
) -> None:
    make_topic(daemon.bootstrap, unique_name, partitions=2)
    produce_lines(kafka4_cluster, daemon.bootstrap, unique_name)
    arguments = ["--bootstrap-server", daemon.bootstrap, "--topic", unique_name, "--group", unique_name]
    arguments += ["--from-beginning", "--max-messages", str(len(LINES)), "--timeout-ms", "60000"]
    arguments += ["--command-property", f"group.protocol={protocol}"]
    done = kafka4_cluster.run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", arguments)
    assert sorted(done.stdout.splitlines()) == sorted(LINES), done


def test_config_command_and_a_share_group(daemon: DaemonProcess, kafka4_cluster: Kafka, unique_name: str) -> None:
    make_topic(daemon.bootstrap, unique_name, partitions=2)
    target = ["--bootstrap-server", daemon.bootstrap]
    group = ["--entity-type", "groups", "--entity-name", unique_name]
    altered = kafka4_cluster.run_tool(
        "kafka.admin.ConfigCommand", [*target, "--alter", *group, "--add-config", "share.auto.offset.reset=earliest"]
    )
    assert "Completed updating config" in altered.stdout, altered
    described = kafka4_cluster.run_tool("kafka.admin.ConfigCommand", [*target, "--describe", *group])
    assert "share.auto.offset.reset=earliest" in described.stdout, described
    produce_lines(kafka4_cluster, daemon.bootstrap, unique_name)
    arguments = ["--topic", unique_name, "--group", unique_name, "--max-messages", str(len(LINES))]
    done = kafka4_cluster.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer", [*target, *arguments, "--timeout-ms", "60000"]
    )
    assert sorted(done.stdout.splitlines()) == sorted(LINES), done


def test_config_command_sets_quotas_at_the_brokers_behind(
    daemon: DaemonProcess, kafka4_cluster: Kafka, unique_name: str
) -> None:
    client = ["--entity-type", "clients", "--entity-name", unique_name]
    alter = ["--alter", *client, "--add-config", "producer_byte_rate=12345"]
    altered = kafka4_cluster.run_tool("kafka.admin.ConfigCommand", ["--bootstrap-server", daemon.bootstrap, *alter])
    assert "Completed updating config" in altered.stdout, altered
    for bootstrap in (daemon.bootstrap, kafka4_cluster.bootstrap):
        described = kafka4_cluster.run_tool(
            "kafka.admin.ConfigCommand", ["--bootstrap-server", bootstrap, "--describe", *client]
        )
        assert "producer_byte_rate=12345.0" in described.stdout, described


def test_kcat(daemon: DaemonProcess, unique_name: str) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("kcat is not installed: apt-get install kcat")
    make_topic(daemon.bootstrap, unique_name, partitions=2)

    def run(*arguments: str, stdin: str = "") -> str:
        command = [kcat, "-b", daemon.bootstrap, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done
        return done.stdout

    run("-P", "-t", unique_name, stdin="\n".join(LINES) + "\n")
    assert sorted(run("-C", "-t", unique_name, "-o", "beginning", "-e", "-q").splitlines()) == sorted(LINES)
    brokers = {broker["name"] for broker in json.loads(run("-L", "-J"))["brokers"]}
    leading = {row.listen for row in daemon.status().listeners if row.listen != daemon.bootstrap}
    assert brokers == leading


def program(bootstrap: str, topic: str) -> list[object]:
    """What a client program sees of a cluster, step by step, but for addresses and times."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    make_topic(bootstrap, topic, partitions=4, append_time=False)
    return [
        *_administered(admin, topic),
        *_produced(bootstrap, topic),
        *_consumed(bootstrap, topic),
        *_offsets(admin, topic),
        *_refused(admin, topic),
    ]


def _administered(admin: AdminClient, topic: str) -> Iterator[object]:
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(TIMEOUT_S)
    entry = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    await_true(lambda: configs_of(admin, topic)["retention.ms"] == "3600000", "the changed configuration shows")
    yield sorted(configs_of(admin, topic).items())
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    yield cluster.cluster_id, sorted(node.id for node in cluster.nodes)
    metadata = admin.list_topics(timeout=TIMEOUT_S)
    yield metadata.cluster_id, sorted(metadata.brokers)


def configs_of(admin: AdminClient, topic: str) -> dict[str, str | None]:
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in described.result(TIMEOUT_S).items()}


def _produced(bootstrap: str, topic: str) -> Iterator[object]:
    reports: list[tuple[object, ...]] = []
    for properties in ({"acks": "1"}, {"enable.idempotence": True}, {"compression.type": "zstd"}):
        producer = Producer({"bootstrap.servers": bootstrap, **properties})
        for number in range(40):
            producer.produce(
                topic,
                f"value {number}" * (number + 1),
                key=None if number % 5 == 0 else f"key {number}",
                partition=number % 4,
                timestamp=1_700_000_000_000 + number,
                headers=[("number", str(number))],
                on_delivery=lambda error, message: reports.append(
                    (str(error), message.partition(), message.offset(), message.value())
                ),
            )
        assert producer.flush(TIMEOUT_S) == 0
        yield sorted(reports)
        reports.clear()


def _consumed(bootstrap: str, topic: str) -> Iterator[object]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    seen: list[tuple[object, ...]] = []
    try:
        consumer.subscribe([topic])
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(seen) < 120 and time.monotonic() < deadline_s:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                place = (message.partition(), message.offset(), message.timestamp(), message.headers())
                seen.append((*place, message.key(), message.value()))
        consumer.commit(asynchronous=False)
        yield sorted(seen, key=lambda record: record[:2])
        committed = consumer.committed([TopicPartition(topic, number) for number in range(4)], timeout=TIMEOUT_S)
        yield [(place.partition, place.offset, str(place.error)) for place in committed]
    finally:
        consumer.close()


def _offsets(admin: AdminClient, topic: str) -> Iterator[object]:
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        asked = {TopicPartition(topic, number): spec for number in range(4)}
        yield sorted(
            (place.partition, future.result(TIMEOUT_S).offset) for place, future in admin.list_offsets(asked).items()
        )
    groups = admin.describe_consumer_groups([topic])
    yield [(future.result(TIMEOUT_S).state.name, len(future.result(TIMEOUT_S).members)) for future in groups.values()]


def _refused(admin: AdminClient, topic: str) -> Iterator[object]:
    """The errors that brokers give for what can't be done."""
    for doomed in (
        lambda: admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S),
        lambda: admin.create_topics([NewTopic(f"{topic}-x", 1, 99)])[f"{topic}-x"].result(TIMEOUT_S),
        lambda: admin.delete_topics([f"{topic}-missing"])[f"{topic}-missing"].result(TIMEOUT_S),
        lambda: admin.create_partitions([NewPartitions(topic, 1)])[topic].result(TIMEOUT_S),
    ):
        with pytest.raises(KafkaException) as refused:
            doomed()
        yield refused.value.args[0].name()
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)


@pytest.mark.measuring
def test_the_same_program_sees_the_same_with_and_without_the_daemon(
    daemon: DaemonProcess, kafka4_cluster: Kafka, unique_name: str
) -> None:
    bare, proxied = f"{unique_name}-1", f"{unique_name}-2"
    without = program(kafka4_cluster.bootstrap, bare)
    through = program(daemon.bootstrap, proxied)
    assert len(without) == len(through)
    for bare_step, proxied_step in zip(without, through, strict=True):
        assert json.dumps(proxied_step, default=str).replace(proxied, bare) == json.dumps(bare_step, default=str)
