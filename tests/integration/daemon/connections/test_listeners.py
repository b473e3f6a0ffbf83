"""The daemon's listeners: who comes in from where, how many and how fast, and which broker they get to."""

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.brokers.certificates import make_certificates
from tests.support.brokers.fake_broker import TIMEOUT_S, connected, is_closed, receive_frame
from tests.support.brokers.fake_cluster import FakeCluster, brokers_told, fake_cluster, named_client, node_at
from tests.support.brokers.java_process import free_port
from tests.support.daemon.process import running_daemon, set_quota
from tests.support.frames.enforcement import CLIENT_ID, produce
from tests.support.frames.proxy_header import proxied
from tests.support.processes.run_cli import run_cli

from kafka_quotas.commands.testbed.daemon_process import free_ports
from kafka_quotas.core.model.entity import Entity

CROWD = 150


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster(range(1, 4)) as running:
        yield running


def config(folder: Path, *lines: str, name: str = "listener") -> Path:
    path = folder / f"{name}.properties"
    path.write_text("\n".join(lines))
    return path


def test_the_address_of_a_client_comes_from_the_load_balancer_in_front(cluster: FakeCluster, tmp_path: Path) -> None:
    set_quota(tmp_path, Entity.of(ip="192.0.2.1"), connection_creation_rate=1.0)
    options = ["--listener-config", str(config(tmp_path, "proxy.protocol.trusted=127.0.0.1"))]
    options += ["--quota-window-num", "2", "--quota-window-size-seconds", "1"]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        for cut in (0, 5, 16, 20):
            with connected(daemon.bootstrap) as client:
                head = proxied("192.0.2.2")
                client.sendall(head[:cut])
                client.sendall(head[cut:])
                assert node_at(client) == 1
        crowd = [connected_from("127.0.0.1", daemon.bootstrap) for _ in range(40)]
        try:
            for each in crowd:
                each.sendall(proxied("192.0.2.1"))
            refused = sum(is_ended(each) for each in crowd)
        finally:
            for each in crowd:
                each.close()
        assert refused >= 1, "40 at once, and one a second is the limit"
        assert daemon.status().counters["connections_throttled"] == refused
        with connected(daemon.bootstrap) as client:
            client.sendall(bytes(40))
            assert is_closed(client)
        assert "PROXY protocol" in daemon.wait_for_log("client closed before it was served")


def test_who_may_not_say_whose_connection_it_is_does_not_get_in(cluster: FakeCluster, tmp_path: Path) -> None:
    options = ["--listener-config", str(config(tmp_path, "proxy.protocol.trusted=10.0.0.0/8"))]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        with connected(daemon.bootstrap) as client:
            client.sendall(proxied("192.0.2.1"))
            assert is_closed(client)
        assert "127.0.0.1 may not say" in daemon.wait_for_log("client closed before it was served")


def test_an_address_that_connects_too_fast_is_sent_away_late_and_others_are_not(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    set_quota(tmp_path, Entity.of(ip=None), connection_creation_rate=5.0)
    options = ["--quota-window-num", "3", "--quota-window-size-seconds", "1"]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        started = time.monotonic()
        crowd = [connected_from("127.0.0.1", daemon.bootstrap) for _ in range(CROWD)]
        try:
            status = daemon.wait_until(lambda status: status.counters["connections_accepted"] == CROWD)
            throttled = status.counters["connections_throttled"]
            elapsed_s = time.monotonic() - started
            assert throttled >= CROWD - 10 - 5 * elapsed_s - 1, "2 s worth of connections fit at once"
            assert throttled > 0
            ended = sum(is_ended(each) for each in crowd)
            assert ended == throttled
        finally:
            for each in crowd:
                each.close()
        with connected_from("127.0.0.2", daemon.bootstrap) as other:
            assert node_at(other) == 1
        daemon.wait_until(lambda status: status.connections == 0)


def is_ended(sock: socket.socket) -> bool:
    """Whether the daemon ends a connection unserved: those that it serves stay open and answer."""
    try:
        return node_at(sock) != 1
    except ConnectionError:
        return True


def connected_from(ip: str, address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), TIMEOUT_S, source_address=(ip, 0))


def test_a_listener_is_full_until_somebody_leaves_and_an_address_until_then_refused(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    lines = ("max.connections=3", "max.connections.per.ip=2")
    options = ["--listener-config", str(config(tmp_path, *lines))]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        first, second = (connected_from("127.0.0.1", daemon.bootstrap) for _ in range(2))
        assert node_at(first) == node_at(second) == 1
        with connected_from("127.0.0.1", daemon.bootstrap) as third:
            assert is_closed(third)
        assert daemon.status().counters["connections_refused"] == 1
        other = connected_from("127.0.0.2", daemon.bootstrap)
        assert node_at(other) == 1
        with connected_from("127.0.0.3", daemon.bootstrap) as late:
            daemon.wait_until(lambda status: status.counters["connections_delayed"] == 1)
            first.close()
            assert node_at(late) == 1
        second.close()
        other.close()
        daemon.wait_until(lambda status: status.connections == 0)


def test_a_listeners_limits_follow_its_file_and_what_needs_a_restart_is_said(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    path = config(tmp_path, "max.connections=1")
    options = ["--listener-config", str(path)]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        reload = ("daemon", "reload", "--control", str(daemon.control))
        with connected(daemon.bootstrap) as first, connected(daemon.bootstrap) as late:
            assert node_at(first) == 1
            daemon.wait_until(lambda status: status.counters["connections_delayed"] == 1)
            path.write_text("max.connections=1\nport.range=20000-20001\n")
            code, _, err = run_cli(*reload)
            assert code == 1
            assert "port.range can't change while the daemon runs" in err
            path.write_text("max.connections=2\n")
            code, out, _ = run_cli(*reload)
            assert (code, str(path) in out) == (0, True), out
            assert node_at(late) == node_at(first) == 1


def test_connections_beyond_the_rate_of_a_listener_wait_and_are_served(cluster: FakeCluster, tmp_path: Path) -> None:
    options = ["--listener-config", str(config(tmp_path, "max.connection.creation.rate=4"))]
    options += ["--quota-window-num", "2", "--quota-window-size-seconds", "1"]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        started = time.monotonic()
        crowd = [connected_from("127.0.0.1", daemon.bootstrap) for _ in range(12)]
        try:
            assert [node_at(each) for each in crowd] == [1] * 12
        finally:
            for each in crowd:
                each.close()
        assert time.monotonic() - started > 1.0, "4 to 8 at once, the others at 4 a second"
        assert daemon.status().counters["connections_delayed"] > 0


def test_in_shadow_mode_nobody_is_kept_out_and_all_is_counted(cluster: FakeCluster, tmp_path: Path) -> None:
    set_quota(tmp_path, Entity.of(ip=None), connection_creation_rate=1.0)
    lines = ("max.connection.creation.rate=1", "max.connections=1", "max.connections.per.ip=1")
    options = ["--mode", "shadow", "--listener-config", str(config(tmp_path, *lines))]
    options += ["--quota-window-num", "2", "--quota-window-size-seconds", "1"]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        crowd = [connected_from("127.0.0.1", daemon.bootstrap) for _ in range(30)]
        try:
            assert [node_at(each) for each in crowd] == [1] * 30
            counters = daemon.status().counters
        finally:
            for each in crowd:
                each.close()
    assert counters["connections_delayed"] == 29
    assert counters["connections_throttled"] > 0
    assert counters["connections_throttled"] + counters["connections_refused"] == 29


def test_two_listeners_share_the_quotas_of_each_broker(cluster: FakeCluster, tmp_path: Path) -> None:
    set_quota(tmp_path, Entity.of(client_id=CLIENT_ID), producer_byte_rate=1000.0)
    port = free_ports(5)
    lines = (f"listen=127.0.0.1:{port}", f"upstream={cluster.brokers[1].address}", "principal=partner")
    options = ["--listener", str(config(tmp_path, *lines, name="partners"))]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        other = f"127.0.0.1:{port}"
        told = [brokers_told(address)[1] for address in (daemon.bootstrap, other)]
        assert told[1] == f"127.0.0.1:{port + 2}"
        with connected(daemon.bootstrap) as client:
            client.sendall(produce(1, size=100_000))
            receive_frame(client)
            first = daemon.wait_until(lambda status: bool(status.throttled)).throttled
            with connected(other) as partner:
                partner.sendall(produce(1, size=100))
                receive_frame(partner)
                rows = daemon.wait_until(lambda status: sum(row.connections for row in status.throttled) == 2).throttled
        assert {row.broker for row in (*first, *rows)} == {"1"}
        listeners = {(row.broker, row.listen) for row in daemon.status().listeners}
        assert {("1", daemon.bootstrap), ("1", other), ("1", told[0]), ("1", told[1])} <= listeners
        assert len(listeners) == 8


def test_an_alias_of_a_broker_gets_no_buckets_of_its_own(cluster: FakeCluster, tmp_path: Path) -> None:
    set_quota(tmp_path, Entity.of(client_id=CLIENT_ID), producer_byte_rate=1000.0)
    port = cluster.brokers[1].port
    with running_daemon(tmp_path, upstream=f"localhost:{port}") as daemon:
        with connected(daemon.bootstrap) as early:
            told = brokers_told(daemon.bootstrap, sock=early)
            assert told[1] != daemon.bootstrap
            daemon.wait_until(lambda status: all(row.broker in "123" for row in status.listeners))
        for address in (daemon.bootstrap, told[1]):
            with connected(address) as client:
                client.sendall(produce(1, size=50_000))
                receive_frame(client)
                daemon.wait_until(lambda status: bool(status.throttled))
        status = daemon.status()
        assert {row.broker for row in status.buckets} == {"1"}
        assert len(status.listeners) == 4


def test_a_broker_whose_id_is_given_is_that_broker_whatever_its_address(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.addresses[1] = ("broker-1.invalid", 9092)
    options = ["--listener-config", str(config(tmp_path, "upstream.node.id=1"))]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        assert daemon.status().listeners[0].broker == "1"
        brokers_told(daemon.bootstrap)
        assert [row.broker for row in daemon.status().listeners] == ["1", "1", "2", "3"]


def test_brokers_join_move_and_leave_while_clients_are_connected(cluster: FakeCluster, tmp_path: Path) -> None:
    joined = cluster.addresses.pop(3)
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address) as daemon:
        told = brokers_told(daemon.bootstrap)
        assert set(told) == {1, 2}
        with connected(told[2]) as staying, connected(told[1]) as other:
            assert (node_at(staying), node_at(other)) == (2, 1)
            cluster.addresses[3] = joined
            now = brokers_told(daemon.bootstrap)
            assert {node: now[node] for node in told} == told
            with connected(now[3]) as client:
                assert node_at(client) == 3
            cluster.addresses[2] = cluster.addresses[3]  # broker 2 moves to where broker 3 was
            assert brokers_told(daemon.bootstrap) == now
            daemon.wait_for_log("broker moved", "broker=2")
            with connected(told[2]) as client:
                assert node_at(client) == 3
            assert is_closed(staying), "connections to the old address end after a while"
            assert node_at(other) == 1
            del cluster.addresses[3]
            assert set(brokers_told(daemon.bootstrap)) == {1, 2}
            assert daemon.status().counters["connections_failed"] == 0


def test_brokers_have_host_names_on_one_port_with_tls(cluster: FakeCluster, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    lines = (
        "security.protocol=SSL",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={tmp_path / 'server.pem'}",
        "broker.host.pattern=broker-$(nodeId).kafka.example",
    )
    options = ["--listener-config", str(config(tmp_path, *lines))]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        port = daemon.bootstrap.rpartition(":")[2]
        with named_client(daemon.bootstrap, tmp_path, "kafka.example") as client:
            told = brokers_told("", sock=client)
        assert told == {node: f"broker-{node}.kafka.example:{port}" for node in (1, 2, 3)}
        for node in (3, 1, 2):
            with named_client(daemon.bootstrap, tmp_path, f"broker-{node}.kafka.example") as client:
                assert node_at(client) == node
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            named_client(daemon.bootstrap, tmp_path, "broker-9.kafka.example"),
        ):
            pass
        assert "no broker 9" in daemon.wait_for_log("client closed before it was served")
        with connected(daemon.bootstrap) as plain:
            plain.sendall(bytes(20))
            assert is_closed(plain)
        assert "doesn't speak TLS" in daemon.wait_for_log("client closed before it was served", count=2)


def test_brokers_have_addresses_of_their_own_on_one_port(cluster: FakeCluster, tmp_path: Path) -> None:
    port = free_port()
    options = ["--listen", f"127.0.0.1:{port}"]
    options += ["--listener-config", str(config(tmp_path, "broker.host.pattern=127.0.1.$(nodeId)"))]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        told = brokers_told(daemon.bootstrap)
        assert told == {node: f"127.0.1.{node}:{port}" for node in (1, 2, 3)}
        for node, address in told.items():
            with connected(address) as client:
                assert node_at(client) == node
