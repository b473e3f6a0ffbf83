"""A daemon and those who want more of it than they may have: what is held, for how long, and what the broker sees."""

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.brokers.certificates import make_certificates
from tests.support.brokers.fake_broker import (
    TIMEOUT_S,
    answer_each,
    connected,
    fake_broker,
    is_closed,
    receive,
    receive_frame,
)
from tests.support.brokers.fake_cluster import FakeCluster, fake_cluster, node_at
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota
from tests.support.frames.enforcement import CLIENT_ID, produce, request
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.model.entity import Entity

CROWD = 40
ASKING = 2
"""Descriptors of those who ask for the status, which may be open for a moment longer."""
HEARTBEAT = request(12, 0, 7, b"", client_id="")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster(range(1, 4)) as running:
        yield running


def config(folder: Path, *lines: str) -> list[str]:
    path = folder / "listener.properties"
    path.write_text("\n".join(lines))
    return ["--listener-config", str(path)]


REACHED = ("a broker takes connections",)
"""What the log has once the daemon's own connection at its start is over."""


@contextmanager
def crowd(daemon: DaemonProcess) -> Iterator[None]:
    """Some connections that say nothing."""
    with ExitStack() as stack:
        for _ in range(CROWD):
            stack.enter_context(connected(daemon.bootstrap))
        yield


def descriptors(daemon: DaemonProcess) -> int:
    return sum(1 for _ in Path(f"/proc/{daemon.pid}/fd").iterdir())


def test_the_broker_sees_nothing_of_those_who_only_connect(tmp_path: Path) -> None:
    with fake_broker(answer_each) as broker, running_daemon(tmp_path, upstream=broker.address) as daemon:
        daemon.wait_for_log(*REACHED)
        with crowd(daemon):
            with connected(daemon.bootstrap) as rubbish:
                rubbish.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert is_closed(rubbish)
            daemon.wait_until(lambda status: status.counters["connections_accepted"] == CROWD + 1)
            assert broker.accepted <= 1, "that of the daemon's start"
            with connected(daemon.bootstrap) as client:
                client.sendall(HEARTBEAT[:3])
                client.sendall(HEARTBEAT[3:])
                assert receive_frame(client)[4:8] == HEARTBEAT[8:12]
            assert broker.accepted == 2
        daemon.wait_until(lambda status: status.connections == 0)
        assert broker.accepted == 2


def test_what_a_client_sends_and_leaves_at_once_still_gets_to_the_broker(tmp_path: Path) -> None:
    got, done = bytearray(), threading.Event()

    def take(connection: socket.socket) -> None:
        while piece := connection.recv(65536):
            got.extend(piece)
        if got:
            done.set()

    with fake_broker(take) as broker, running_daemon(tmp_path, upstream=broker.address) as daemon:
        with connected(daemon.bootstrap) as client:
            client.sendall(HEARTBEAT * 500)
        assert done.wait(TIMEOUT_S)
    assert bytes(got) == HEARTBEAT * 500


@pytest.mark.parametrize("line", ["proxy.protocol.trusted=127.0.0.1", "broker.host.pattern=b-$(nodeId).kafka.example"])
def test_silent_connections_hold_no_more_places_than_there_are(cluster: FakeCluster, tmp_path: Path, line: str) -> None:
    make_certificates(tmp_path)
    tls = ("security.protocol=SSL", "ssl.keystore.type=PEM", f"ssl.keystore.location={tmp_path / 'server.pem'}")
    lines = (line, "max.connections=2", *(tls if "pattern" in line else ()))
    options = [*config(tmp_path, *lines), "--connect-timeout", "60"]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        before = descriptors(daemon)
        with crowd(daemon):
            daemon.wait_until(lambda status: status.counters["connections_delayed"] == 1)
            assert daemon.status().counters["connections_accepted"] == 3, "two have places, one waits, the rest queue"
            assert descriptors(daemon) <= before + 3 + ASKING
        daemon.wait_until(lambda status: status.connections == 0 and status.counters["connections_failed"] == CROWD)
        assert descriptors(daemon) <= before + ASKING


def test_silent_connections_of_one_address_count_for_it_where_tls_says_which_broker_is_meant(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    make_certificates(tmp_path)
    lines = (
        "security.protocol=SSL",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={tmp_path / 'server.pem'}",
        "broker.host.pattern=broker-$(nodeId).kafka.example",
        "max.connections.per.ip=2",
    )
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=config(tmp_path, *lines)) as daemon:
        with connected(daemon.bootstrap), connected(daemon.bootstrap):
            daemon.wait_until(lambda status: status.counters["connections_accepted"] == 2)
            with connected(daemon.bootstrap) as third:
                assert is_closed(third)
            host, port = daemon.bootstrap.split(":")
            other = socket.create_connection((host, int(port)), TIMEOUT_S, source_address=("127.0.0.2", 0))
            context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
            context.check_hostname = False
            with context.wrap_socket(other, server_hostname="kafka.example") as client:
                assert node_at(client) == 1
        assert daemon.status().counters["connections_refused"] == 1


def test_the_daemon_has_no_more_connections_in_all_than_it_may(cluster: FakeCluster, tmp_path: Path) -> None:
    options = ["--max-connections", "2"]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        daemon.wait_for_log("daemon listening", "max_connections=2")
        with (
            connected(daemon.bootstrap) as early,
            connected(daemon.bootstrap) as first,
            connected(daemon.bootstrap) as late,
        ):
            assert node_at(early) == node_at(first) == 1
            daemon.wait_until(lambda status: status.counters["connections_delayed"] == 1)
            late.sendall(HEARTBEAT)
            first.close()
            assert receive_frame(late), "it is served when another has left"


def test_a_client_that_asks_without_end_is_left_unread(tmp_path: Path) -> None:
    got: list[int] = []
    go_on, done = threading.Event(), threading.Event()

    def hold(connection: socket.socket) -> None:
        receive(connection, 100 * len(HEARTBEAT))
        go_on.wait(TIMEOUT_S)
        connection.settimeout(0.5)
        with suppress(TimeoutError):
            got.append(len(connection.recv(65536)))
        done.set()

    options = config(tmp_path, "max.in.flight.requests.per.connection=100")
    with (
        fake_broker(hold) as broker,
        running_daemon(tmp_path, upstream=broker.address, options=options) as daemon,
        connected(daemon.bootstrap) as client,
    ):
        client.settimeout(1.0)
        with pytest.raises(TimeoutError):
            client.sendall(HEARTBEAT * 1_000_000)
        go_on.set()
        assert done.wait(TIMEOUT_S)
    assert got == [], "100 requests are under way, and not one more"


def test_an_idle_connection_is_closed_and_a_throttled_one_is_not(cluster: FakeCluster, tmp_path: Path) -> None:
    set_quota(tmp_path, Entity.of(client_id=CLIENT_ID), producer_byte_rate=1000.0)
    options = [*config(tmp_path, "connections.max.idle.ms=500"), "--quota-window-num", "2"]
    with (
        running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon,
        connected(daemon.bootstrap) as silent,
        connected(daemon.bootstrap) as muted,
    ):
        muted.sendall(produce(1, size=1_000_000))
        receive_frame(muted)
        daemon.wait_until(lambda status: bool(status.throttled))
        with connected(daemon.bootstrap) as idle:
            idle.sendall(HEARTBEAT)
            receive_frame(idle)
            assert is_closed(idle)
        assert is_closed(silent)
        status = daemon.wait_until(lambda status: status.counters["connections_expired"] == 2)
        assert [row.client_id for row in status.throttled] == [CLIENT_ID]
        assert status.connections == 1


def test_a_throttle_time_is_ended_by_hand(cluster: FakeCluster, tmp_path: Path) -> None:
    set_quota(tmp_path, Entity.of(client_id=CLIENT_ID), producer_byte_rate=1000.0)
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address) as daemon:
        control = ("--control", str(daemon.control))
        with connected(daemon.bootstrap) as client:
            client.sendall(produce(1, size=1_000_000) + produce(2, size=100))
            receive_frame(client)
            daemon.wait_until(lambda status: bool(status.throttled))
            code, out, _ = run_cli("daemon", "unmute", "--client", "nobody", *control)
            assert code == 0
            assert "nobody of that name is throttled" in out
            set_quota(tmp_path, Entity.of(client_id=CLIENT_ID), producer_byte_rate=None)
            daemon.wait_for_log("quotas applied", "changed=1", count=2)
            code, out, _ = run_cli("daemon", "unmute", "--client", CLIENT_ID, "--output", "json", *control)
            assert code == 0
            assert f'"client_id": "{CLIENT_ID}"' in out
            assert receive_frame(client)[4:8] == struct.pack(">i", 2)
            daemon.wait_for_log("throttle time ended by hand", f"client_id={CLIENT_ID}")
        assert daemon.status().throttled == ()


def test_an_api_that_is_denied_closes_its_connection_and_no_other(tmp_path: Path) -> None:
    options = config(tmp_path, "apis.deny=Produce")
    with (
        fake_broker(answer_each) as broker,
        running_daemon(tmp_path, upstream=broker.address, options=options) as daemon,
    ):
        daemon.wait_for_log(*REACHED)
        with connected(daemon.bootstrap) as other, connected(daemon.bootstrap) as client:
            other.sendall(HEARTBEAT)
            client.sendall(produce(1, size=100))
            assert is_closed(client)
            assert receive_frame(other)
        assert "API 0 is not served here" in daemon.wait_for_log("client closed: it sent what can't be handled")
        assert broker.accepted == 2, "that of the daemon's start, and the other client's"


def test_any_address_means_those_of_both_families(cluster: FakeCluster, tmp_path: Path) -> None:
    options = ["--listen", "[::]:0", "--metrics-port", "[::]:0"]
    with running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon:
        port = int(daemon.bootstrap.rpartition(":")[2])
        metrics = int(daemon.metrics_url.rpartition(":")[2].partition("/")[0])
        for host in ("::1", "127.0.0.1"):
            with socket.create_connection((host, port), TIMEOUT_S) as client:
                assert node_at(client) == 1
            with socket.create_connection((host, metrics), TIMEOUT_S) as scraper:
                scraper.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
                assert scraper.recv(12) == b"HTTP/1.1 200"


def test_a_request_that_announces_much_and_never_comes_holds_nobody_up_for_long(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    set_quota(tmp_path, Entity.of(client_id=CLIENT_ID), controller_mutation_rate=1000.0)
    options = ["--queued-max-request-bytes", "1MiB"]
    large = request(3, 1, 9, (9000).to_bytes(4, "big") + (b"\x00\xc8" + b"t" * 200) * 9000)
    with (
        running_daemon(tmp_path, upstream=cluster.brokers[1].address, options=options) as daemon,
        connected(daemon.bootstrap) as slow,
        connected(daemon.bootstrap) as waiting,
    ):
        # Until the broker has answered a client the daemon gathers nothing of it, and the other would have room first.
        slow.sendall(HEARTBEAT)
        receive_frame(slow)
        slow.sendall(large[:100_000])
        daemon.wait_until(lambda status: status.counters["request_bytes"] >= len(HEARTBEAT) + 100_000)
        waiting.sendall(large)
        assert receive_frame(waiting)[4:8] == large[8:12], "it has its turn"
        daemon.wait_for_log("holds room for a request", "client=")
        assert is_closed(slow)
