"""A daemon in front of a cluster of which a part is gone: bootstrap servers, ports of brokers, readiness."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.brokers.appended_records import make_topic
from tests.support.brokers.certificates import make_certificates
from tests.support.brokers.fake_broker import connected, is_closed, receive_frame
from tests.support.brokers.fake_cluster import FakeCluster, brokers_told, fake_cluster, named_client, node_at
from tests.support.brokers.servers import Kafka
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota
from tests.support.frames.enforcement import CLIENT_ID, produce

from kafka_quotas.commands.testbed.daemon_process import free_ports
from kafka_quotas.core.model.entity import Entity


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster(range(1, 4)) as running:
        yield running


def all_of(cluster: FakeCluster, *node_ids: int) -> str:
    return ",".join(cluster.brokers[node_id].address for node_id in node_ids)


def ready(daemon: DaemonProcess) -> tuple[int, dict[str, object]]:
    """The status code and the content of /readyz."""
    try:
        with urllib.request.urlopen(daemon.metrics_url.replace("/metrics", "/readyz"), timeout=240) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def bootstrapped(daemon: DaemonProcess) -> int:
    """The node that answers at the bootstrap listener."""
    with connected(daemon.bootstrap) as client:
        return node_at(client)


def test_clients_bootstrap_while_any_upstream_answers(cluster: FakeCluster, tmp_path: Path) -> None:
    options = ["--upstream", cluster.brokers[3].address, "--metrics-port", "0", "--connect-timeout", "2"]
    with running_daemon(tmp_path, upstream=all_of(cluster, 1, 2), options=options) as daemon:
        for gone, left in ((None, 1), (1, 2), (2, 3)):
            if gone is not None:
                cluster.brokers[gone].close()
            for _ in range(4):
                assert bootstrapped(daemon) == left
            assert ready(daemon)[0] == 200
        cluster.brokers[3].close()
        with pytest.raises(ConnectionError):
            bootstrapped(daemon)
        daemon.wait_for_log("upstream can't be connected")
        code, content = ready(daemon)
        assert (code, content["upstream_reachable"]) == (503, False)


def test_a_broker_that_is_met_only_in_metadata_keeps_a_daemon_ready(cluster: FakeCluster, tmp_path: Path) -> None:
    options = ["--metrics-port", "0"]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        told = brokers_told(daemon.bootstrap)
        cluster.brokers[1].close()
        assert ready(daemon)[0] == 200
        with connected(told[2]) as client:
            assert node_at(client) == 2


def test_what_comes_over_the_bootstrap_listener_is_charged_to_the_broker_it_gets_to(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    set_quota(tmp_path, Entity.of(client_id=CLIENT_ID), producer_byte_rate=1000.0)
    with running_daemon(tmp_path, upstream=all_of(cluster, 1, 2)) as daemon:
        told = brokers_told(daemon.bootstrap)
        cluster.brokers[1].close()
        bootstrapped(daemon)
        for address in (daemon.bootstrap, told[2]):
            with connected(address) as client:
                client.sendall(produce(1, size=50_000))
                receive_frame(client)
                daemon.wait_until(lambda status: bool(status.throttled))
        assert {row.broker for row in daemon.status().buckets} == {"2"}


def test_a_connection_whose_bootstrap_server_ends_before_its_first_request_gets_to_the_next_one(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    set_quota(tmp_path, Entity.of(client_id=CLIENT_ID), producer_byte_rate=1000.0)
    events = tmp_path / "events"
    options = ["--event-log", str(events)]
    with running_daemon(tmp_path, upstream=all_of(cluster, 1, 2), options=options) as daemon:
        brokers_told(daemon.bootstrap)
        with connected(daemon.bootstrap) as client:
            daemon.wait_until(lambda status: status.connections == 1)
            cluster.brokers[1].close()
            assert node_at(client) == 2
            assert [row.connections for row in daemon.status().listeners if row.broker == "2"] == [1, 0]
            client.sendall(produce(1, size=50_000))
            receive_frame(client)
            daemon.wait_until(lambda status: [row.broker for row in status.throttled] == ["2"])
        assert daemon.status().counters["upstream_connect_failures"] == 1
        assert daemon.status().counters["connections_failed"] == 0
    charged = [json.loads(line) for file in events.glob("*.jsonl") for line in file.read_text().splitlines()]
    assert {line["broker_id"] for line in charged if line["bytes"] > 40_000} == {2}


def test_ports_of_brokers_are_the_same_after_a_restart_and_on_a_replica(cluster: FakeCluster, tmp_path: Path) -> None:
    first = free_ports(5)
    listen = ["--listen", f"127.0.0.1:{first}"]
    seen = []
    for upstream in (all_of(cluster, 1), all_of(cluster, 3, 2)):
        with running_daemon(tmp_path, upstream=upstream, options=listen) as daemon:
            seen.append(brokers_told(daemon.bootstrap))
        cluster.addresses = dict(reversed(cluster.addresses.items()))  # the others are met first
    expected = {node_id: f"127.0.0.1:{first + 1 + node_id}" for node_id in (1, 2, 3)}
    assert seen == [expected, expected]


def test_a_range_that_is_too_small_is_told_with_the_way_out(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.addresses = {1001: cluster.addresses[1], 2: cluster.addresses[2]}
    first = free_ports(10)
    options = ["--port-range", f"{first}-{first + 5}"]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        for _ in range(2):
            with pytest.raises(ConnectionError):
                brokers_told(daemon.bootstrap)
        line = daemon.wait_for_log("clients can't be sent to a broker")
        assert f"broker 1001 has no port: {first} + 1001 is {first + 1001}" in line
        assert "--broker-address 1001=PORT" in line
        assert len(daemon.lines("clients can't be sent to a broker")) == 1
        assert not daemon.lines("the upstream sent"), "the ports are the daemon's affair"
    options += ["--broker-address", f"1001=kafka.example:{first + 7}"]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        expected = {1001: f"kafka.example:{first + 7}", 2: f"127.0.0.1:{first + 2}"}
        assert brokers_told(daemon.bootstrap) == expected


def test_a_broker_with_a_given_address_takes_clients_before_anybody_bootstrapped(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    first = free_ports(3)
    options = ["--broker-address", f"2-3={first}", "--broker-address", f"1={first + 2}"]
    cluster.brokers[1].close()
    with running_daemon(tmp_path, upstream=all_of(cluster, 1, 2), options=options) as daemon:
        with connected(f"127.0.0.1:{first + 1}") as early:
            assert node_at(early) == 2, "a bootstrap server is behind it as long as nobody knows broker 3's address"
            told = brokers_told("", sock=early)
            assert told[3] == f"127.0.0.1:{first + 1}"
            daemon.wait_for_log("broker found", "broker=3")
            assert is_closed(early)
        with connected(told[3]) as client:
            assert node_at(client) == 3
        assert not daemon.lines("broker moved")


def test_hosts_may_be_given_to_brokers_that_share_a_port(cluster: FakeCluster, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    port = free_ports(1)
    path = tmp_path / "listener.properties"
    path.write_text(
        f"security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location={tmp_path / 'server.pem'}\n"
        f"broker.host.pattern=broker-$(nodeId).kafka.example\nbroker.addresses=2=special.kafka.example:{port}\n"
    )
    options = ["--listen", f"127.0.0.1:{port}", "--listener-config", str(path)]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        with named_client(daemon.bootstrap, tmp_path, "special.kafka.example") as early:
            assert node_at(early) == 1
        with named_client(daemon.bootstrap, tmp_path, "kafka.example") as client:
            told = brokers_told("", sock=client)
        expected = {1: "broker-1", 2: "special", 3: "broker-3"}
        assert told == {node: f"{name}.kafka.example:{port}" for node, name in expected.items()}
        with named_client(daemon.bootstrap, tmp_path, "special.kafka.example") as client:
            assert node_at(client) == 2


def test_real_brokers_keep_their_ports_and_are_bootstrapped_from_while_one_is_left(
    kafka4_cluster: Kafka, tmp_path: Path
) -> None:
    servers = kafka4_cluster.bootstrap.split(",")
    topic = "kept-ports"
    make_topic(servers[0], topic, partitions=4)
    first = free_ports(5)
    options = ["--listen", f"127.0.0.1:{first}", "--metrics-port", "0"]
    told = []
    for upstream in (servers, servers[::-1]):
        with running_daemon(tmp_path, upstream=",".join(upstream), options=options) as daemon:
            told.append(metadata(daemon.bootstrap))
            write_and_read(daemon.bootstrap, topic)
    assert told[0] == told[1] == {node: f"127.0.0.1:{first + 1 + node}" for node in told[0]}
    assert len(told[0]) == 2
    dead = f"127.0.0.1:{free_ports(1)}"
    with running_daemon(tmp_path, upstream=f"{dead},{servers[1]}", options=options) as daemon:
        assert metadata(daemon.bootstrap) == told[0]
        assert ready(daemon)[0] == 200
        write_and_read(daemon.bootstrap, topic)


def metadata(bootstrap: str) -> dict[int, str]:
    """HOST:PORT by node id, as librdkafka is told."""
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=240).brokers
    return {node_id: f"{broker.host}:{broker.port}" for node_id, broker in brokers.items()}


def write_and_read(bootstrap: str, topic: str) -> None:
    """Write a record to every partition, and read them all."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    failed: list[object] = []
    for partition in range(4):
        producer.produce(topic, b"x", partition=partition, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(240) == 0
    assert failed == [None] * 4
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
    try:
        seen = {message.partition() for message in consumer.consume(4, timeout=240)}
        while len(seen) < 4:
            message = consumer.poll(240)
            assert message is not None, seen
            seen.add(message.partition())
    finally:
        consumer.close()
