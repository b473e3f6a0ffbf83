"""Topics through the daemon against real brokers: what those get who create and delete too many.

Figures are compared with the broker's own: the same requests, to the broker under its quota and to the daemon under
its own. What clients make of the answers is seen with those that people use.
"""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic as PythonTopic
from kafka.errors import KafkaError
from tests.support.brokers.java_process import java_command
from tests.support.brokers.servers import Kafka
from tests.support.brokers.topic_broker import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, METADATA, request_of
from tests.support.brokers.wire_client import WireClient, wire_client
from tests.support.daemon.process import DaemonProcess, running_daemon
from tests.support.stores.stored_quotas import store_quotas

from kafka_quotas.core.model.entity import Entity

WINDOW = ["--controller-quota-window-num", "3", "--controller-quota-window-size-seconds", "1"]
"""That of the servers: a burst of three seconds' worth."""
RATE = 0.1
"""Partitions per second: one partition is more than the burst, and takes 7 s to be paid, however slow the machine."""
QUOTA_EXCEEDED = 89
TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Held:
    """A daemon and the store that it goes by."""

    daemon: DaemonProcess
    store_url: str

    @property
    def bootstrap(self) -> str:
        return self.daemon.bootstrap

    def limit(self, client_id: str, rate: float = RATE) -> None:
        """Limit a client-id to a number of partitions per second."""
        self.set(Entity.of(client_id=client_id), "controller_mutation_rate", rate)

    def set(self, entity: Entity, key: str, value: float | None) -> None:
        """Store a limit, and wait until the daemon goes by it."""
        before = self.daemon.status().store.revision
        store_quotas(self.store_url, {entity: {key: value}})
        self.daemon.wait_until(lambda status: status.store.revision != before)

    def counter(self, name: str) -> int:
        return self.daemon.status().counters[name]


@contextmanager
def held(folder: Path, kafka: Kafka, *options: str) -> Iterator[Held]:
    with running_daemon(folder, upstream=kafka.bootstrap, options=[*WINDOW, *options]) as daemon:
        yield Held(daemon, f"local:{folder / 'quotas.db'}")


@pytest.fixture(scope="module")
def new(kafka4: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    with held(tmp_path_factory.mktemp("new"), kafka4) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def old(kafka3: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    with held(tmp_path_factory.mktemp("old"), kafka3) as daemon:
        yield daemon


def new_topic(version: int, name: str, partitions: int) -> Any:
    kind = request_of(CREATE_TOPICS, version).CreatableTopic
    return kind(version=version, name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])


def create(client: WireClient, version: int, *topics: tuple[str, int]) -> Any:
    wanted = [new_topic(version, *topic) for topic in topics]
    return client.ask(
        CREATE_TOPICS, version, topics=wanted, timeout_ms=10_000, **({"validate_only": False} if version else {})
    )


def topics_of(bootstrap: str) -> set[str]:
    """The topics that there are, as somebody sees them who is held to nothing."""
    with wire_client(bootstrap, client_id="look") as client:
        return {topic.name for topic in client.ask(METADATA, 4, topics=None, allow_auto_topic_creation=False).topics}


def seen(bootstrap: str, expected: set[str], prefix: str) -> None:
    """Wait until these are the topics with a prefix."""
    deadline_s = time.monotonic() + TIMEOUT_S
    found: set[str] = set()
    while time.monotonic() < deadline_s:
        found = {name for name in topics_of(bootstrap) if name.startswith(prefix)}
        if found == expected:
            return
    raise AssertionError(f"{found} and not {expected}")


def three_at_once(address: str, client_id: str, version: int, name: str) -> tuple[list[int], int]:
    """The codes and the throttle time of a request for three topics.

    Those that were admitted exist.
    """
    names = [f"{name}-{number}" for number in range(3)]
    with wire_client(address, client_id=client_id) as client:
        response = create(client, version, *((name, 1) for name in names))
    assert [topic.name for topic in response.topics] == names
    seen(address, {topic.name for topic in response.topics if not topic.error_code}, name)
    return [topic.error_code for topic in response.topics], response.throttle_time_ms


@pytest.mark.parametrize(("version", "codes", "wait_ms"), [(5, [0] * 3, 27_000), (7, [0, 89, 89], 7_000)])
def test_three_creates_get_what_a_broker_gives_them(
    new: Held, kafka4: Kafka, unique_name: str, version: int, codes: list[int], wait_ms: int
) -> None:
    broker = f"kafka://{kafka4.bootstrap}"
    store_quotas(broker, {Entity.of(client_id=f"{unique_name}-b"): {"controller_mutation_rate": RATE}})
    new.limit(f"{unique_name}-d")
    theirs = three_at_once(kafka4.bootstrap, f"{unique_name}-b", version, f"{unique_name}-b")
    ours = three_at_once(new.bootstrap, f"{unique_name}-d", version, f"{unique_name}-d")
    assert ours[0] == theirs[0] == codes
    # What was waited for the controller is not in the throttle time.
    assert wait_ms - 5_000 < ours[1] <= wait_ms
    assert wait_ms - 5_000 < theirs[1] <= wait_ms


@pytest.mark.parametrize("version", [0, 4, 6, 7])
def test_old_brokers_and_old_versions_are_held_as_well(old: Held, unique_name: str, version: int) -> None:
    old.limit(unique_name)
    with wire_client(old.bootstrap, client_id=unique_name) as client:
        first = create(client, 7, (f"{unique_name}-first", 1))
        assert first.throttle_time_ms == 0
        response = create(client, version, (f"{unique_name}-first", 1), (f"{unique_name}-next", 1))
        late = QUOTA_EXCEEDED if version >= 6 else 0
    assert [topic.error_code for topic in response.topics] == [36, late], "what exists costs nothing"
    seen(old.bootstrap, {f"{unique_name}-first"} | ({f"{unique_name}-next"} if late == 0 else set()), unique_name)


@pytest.mark.measuring
def test_partitions_added_and_topics_deleted_are_counted_by_what_the_broker_has(new: Held, unique_name: str) -> None:
    a, b = f"{unique_name}-a", f"{unique_name}-b"
    with wire_client(new.bootstrap, client_id="setup") as client:
        create(client, 7, (a, 1), (b, 1))
    seen(new.bootstrap, {a, b}, unique_name)
    new.limit(unique_name, 1.0)
    with wire_client(new.bootstrap, client_id=unique_name) as client:
        kind = request_of(CREATE_PARTITIONS, 3).CreatePartitionsTopic
        wanted = [kind(version=3, name=name, count=count, assignments=None) for name, count in ((a, 5), (b, 2))]
        grown = client.ask(CREATE_PARTITIONS, 3, topics=wanted, timeout_ms=10_000, validate_only=False)
        assert [result.error_code for result in grown.results] == [0, QUOTA_EXCEEDED]
        assert 1 <= grown.throttle_time_ms <= 1000
        deleted = client.ask(DELETE_TOPICS, 5, topic_names=[a, b], timeout_ms=10_000)
        assert [result.error_code for result in deleted.responses] == [0, QUOTA_EXCEEDED]
        assert re.search(r"controller_mutation_rate of client-id \S+ is exceeded", deleted.responses[1].error_message)
        assert 1 <= deleted.throttle_time_ms <= 5000
    seen(new.bootstrap, {b}, unique_name)


def test_kafka_python_sees_the_error_and_what_was_admitted_exists(new: Held, unique_name: str) -> None:
    new.limit(unique_name)
    admin = KafkaAdminClient(bootstrap_servers=new.bootstrap, client_id=unique_name)
    try:
        admin.create_topics([PythonTopic(f"{unique_name}-a", num_partitions=1, replication_factor=1)])
        with pytest.raises(KafkaError) as raised:
            admin.create_topics([PythonTopic(f"{unique_name}-b", num_partitions=1, replication_factor=1)])
        assert "ThrottlingQuotaExceeded" in f"{type(raised.value).__name__} {raised.value}"
    finally:
        admin.close()
    seen(new.bootstrap, {f"{unique_name}-a"}, unique_name)


def test_the_java_client_repeats_what_was_refused_until_it_is_done(new: Held, kafka4: Kafka, unique_name: str) -> None:
    source = str(Path(__file__).parents[3] / "support" / "java" / "CreateTopic.java")
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1"]
    command = java_command(kafka4.jars, source, [new.bootstrap, unique_name, f"{unique_name}-next"], options=options)
    new.limit(unique_name, 1.0)
    refused = new.counter("mutation_refusals")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as java:
        assert java.stdout is not None
        if java.stdout.readline() != "ready\n":
            said = java.communicate(timeout=TIMEOUT_S)[1]
            assert "jdk.compiler" in said, said
            pytest.skip("needs a JDK: this Java can't run a source file")
        with wire_client(new.bootstrap, client_id=unique_name) as client:
            create(client, 7, (f"{unique_name}-burst", 8))
        out, err = java.communicate("go\n", timeout=TIMEOUT_S)
    assert out == f"created {unique_name}-next\n", err
    assert new.counter("mutation_refusals") > refused, "5 s of debt"
    seen(new.bootstrap, {f"{unique_name}-burst", f"{unique_name}-next"}, unique_name)


def test_kafkas_own_tool_which_does_not_repeat_shows_what_was_exceeded(
    new: Held, kafka4: Kafka, tmp_path: Path, unique_name: str
) -> None:
    properties = tmp_path / "admin.properties"
    properties.write_text(f"client.id={unique_name}\n")
    new.limit(unique_name, 0.01)
    with wire_client(new.bootstrap, client_id=unique_name) as client:
        create(client, 7, (f"{unique_name}-burst", 1))
    arguments = ["--bootstrap-server", new.bootstrap, "--command-config", str(properties)]
    arguments += ["--create", "--topic", f"{unique_name}-next", "--partitions", "1", "--replication-factor", "1"]
    tool = kafka4.run_tool("org.apache.kafka.tools.TopicCommand", arguments)
    assert f"controller_mutation_rate of client-id {unique_name} is exceeded (0.01 partitions/s)" in tool.stdout, tool


@pytest.mark.measuring
def test_librdkafka_is_admitted_and_muted(new: Held, unique_name: str) -> None:
    new.limit(unique_name, 1.0)
    started_s = time.monotonic()
    admin = AdminClient({"bootstrap.servers": new.bootstrap, "client.id": unique_name})
    wanted = [NewTopic(f"{unique_name}-{number}", num_partitions=3, replication_factor=1) for number in range(2)]
    for future in admin.create_topics(wanted).values():
        future.result(TIMEOUT_S)
    (row,) = (row for row in new.daemon.status().throttles if row.client_id == unique_name)
    assert (row.quota, row.times) == ("controller_mutation_rate", 1)
    assert 0 < row.total_ms <= 3000, "6 of a burst of 3, at 1 per second"
    grown = admin.create_partitions([NewPartitions(f"{unique_name}-0", 4)])
    grown[f"{unique_name}-0"].result(TIMEOUT_S)
    assert time.monotonic() - started_s >= row.total_ms / 1000


def test_topics_made_by_asking_for_them_are_charged(new: Held, unique_name: str) -> None:
    new.limit(unique_name, 0.25)
    before = new.counter("mutation_partitions")
    producer = KafkaProducer(bootstrap_servers=new.bootstrap, client_id=unique_name)
    try:
        producer.send(unique_name, b"x").get(TIMEOUT_S)
    finally:
        producer.close()
    assert new.counter("mutation_partitions") - before == 1
    (row,) = (row for row in new.daemon.status().throttles if row.client_id == unique_name)
    assert row.quota == "controller_mutation_rate"
    assert 0 < row.total_ms <= 1000, "1 of a burst of 0.75, at 0.25 per second"


def test_topics_that_may_not_be_made_by_asking_are_not(kafka3: Kafka, tmp_path: Path, unique_name: str) -> None:
    with (
        held(tmp_path, kafka3, "--auto-create", "forbid") as daemon,
        wire_client(daemon.bootstrap, client_id=unique_name) as client,
    ):
        for version in (0, 1, 3, 4, 9, 12):
            kind = request_of(METADATA, version).MetadataRequestTopic
            fields = {"allow_auto_topic_creation": True} if version >= 4 else {}
            for _ in range(2):
                told = client.ask(METADATA, version, topics=[kind(version=version, name=unique_name)], **fields)
                assert [(topic.name, topic.error_code) for topic in told.topics] == [(unique_name, 3)]
            assert unique_name not in topics_of(daemon.bootstrap)
