"""A running daemon as its operator sees it: started, asked, told by signals, short of something, and ended."""

import re
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.brokers.fake_broker import (
    FakeBroker,
    answer_each,
    connected,
    fake_broker,
    is_closed,
    receive,
    receive_frame,
)
from tests.support.daemon.pinged import PING, ping, throttling_broker
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota, store_url, without
from tests.support.frames.enforcement import (
    framed,
    produce,
    request,
    throttle_of,
)

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.enforcement.proxy.admission import PAUSE_S

APP = Entity.of(client_id="app")


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_broker(answer_each) as running:
        yield running


@pytest.fixture
def daemon(broker: FakeBroker, tmp_path: Path) -> Iterator[DaemonProcess]:
    with running_daemon(tmp_path, upstream=broker.address, options=["--quota-window-num", "3"]) as running:
        yield running


def test_descriptors_that_run_out_and_come_back(daemon: DaemonProcess) -> None:
    used = len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (used + 20, used + 20))
    with connected(daemon.bootstrap) as healthy:
        ping(healthy)
        crowd = [socket.create_connection(healthy.getpeername()) for _ in range(40)]
        try:
            daemon.wait_for_log("Too many open files")
            ping(healthy)
            ping(healthy)
            daemon.wait_for_log("can't accept connections", count=4, timeout_s=240)
            refused = [at_s(line) for line in daemon.lines("can't accept connections")]
            assert all(later - before > 0.9 * PAUSE_S for before, later in pairwise(refused)), "it rests in between"
        finally:
            for each in crowd:
                each.close()
        status = daemon.wait_until(lambda status: status.connections == 1)
        assert status.counters["accept_failures"] >= 4
        with connected(daemon.bootstrap) as late:
            ping(late)


def at_s(line: str) -> float:
    """When a line was logged, in seconds since the epoch."""
    return datetime.fromisoformat(line.split(" ", maxsplit=1)[0]).timestamp()


def test_sigterm_answers_what_was_asked_and_takes_nothing_new(tmp_path: Path) -> None:
    asked, answer = threading.Event(), threading.Event()

    def handler(connection: socket.socket) -> None:
        receive_frame(connection)
        asked.set()
        answer.wait(240)
        connection.sendall(framed(struct.pack(">i", 77)))
        is_closed(connection)

    with fake_broker(handler) as broker, running_daemon(tmp_path, upstream=broker.address) as daemon:
        with connected(daemon.bootstrap) as idle, connected(daemon.bootstrap) as client:
            client.sendall(PING)
            assert asked.wait(240)
            daemon.send(signal.SIGTERM)
            daemon.wait_for_log("daemon draining")
            assert is_closed(idle)
            with pytest.raises(ConnectionRefusedError), connected(daemon.bootstrap):
                pass
            client.sendall(request(12, 1, 78, b"too late"))
            answer.set()
            assert receive(client, 8) == framed(struct.pack(">i", 77))
            assert is_closed(client)
        assert daemon.wait() == 0
        assert "cut_connections=0" in daemon.wait_for_log("daemon stopped")
        assert not daemon.control.exists()


def test_a_drain_ends_after_its_time_and_says_what_it_cut(tmp_path: Path) -> None:
    asked = threading.Event()

    def handler(connection: socket.socket) -> None:
        receive_frame(connection)
        asked.set()
        is_closed(connection)

    options = ["--drain-timeout", "0.2"]
    with fake_broker(handler) as broker, running_daemon(tmp_path, upstream=broker.address, options=options) as daemon:
        with connected(daemon.bootstrap) as client:
            client.sendall(PING)
            assert asked.wait(240)
            daemon.send(signal.SIGTERM)
            assert daemon.wait() == 1
        assert "cut_connections=1" in daemon.wait_for_log("daemon stopped")


def test_ctrl_c_ends_it_with_130(daemon: DaemonProcess) -> None:
    daemon.send(signal.SIGINT)
    assert daemon.wait() == 130


def test_sighup_reads_static_quotas_again_and_keeps_the_old_ones_if_they_are_broken(
    broker: FakeBroker, tmp_path: Path
) -> None:
    static = tmp_path / "static.properties"
    static.write_text("quota.producer.default=1M\n")
    options = ["--static-quotas", str(static)]
    with running_daemon(tmp_path, upstream=broker.address, options=options) as daemon:
        assert daemon.status().store.limits == 1
        static.write_text('quota.producer.default=2M\nquota.consumer.override="a:1M,b:2M"\n')
        daemon.send(signal.SIGHUP)
        daemon.wait_until(lambda status: status.store.limits == 3)
        static.write_text("quota.producer.default=nonsense\n")
        daemon.send(signal.SIGHUP)
        daemon.wait_for_log("quotas can't be read again")
        assert daemon.status().store.limits == 3


def test_a_lost_store_stays_in_force_and_its_age_is_shown(
    daemon: DaemonProcess, broker: FakeBroker, tmp_path: Path
) -> None:
    set_quota(tmp_path, APP, producer_byte_rate=1000.0)
    daemon.wait_until(lambda status: status.store.limits == 1)
    database = tmp_path / "quotas.db"
    content = database.read_bytes()
    rubbish = tmp_path / "rubbish"
    rubbish.write_bytes(b"this is no database " * 1000)
    rubbish.replace(database)
    daemon.send(signal.SIGHUP)
    lost = daemon.wait_until(lambda status: status.store.trouble is not None and status.store.age_ms > 100)
    assert lost.store.limits == 1
    assert len(daemon.lines("store can't be read")) == 1
    rubbish.write_bytes(content)
    rubbish.replace(database)
    assert daemon.wait_until(lambda status: status.store.trouble is None).store.limits == 1
    daemon.wait_for_log("store is reached again")


def test_metrics_tell_of_a_state_that_can_not_be_saved_and_of_brokers_that_are_gone(
    broker: FakeBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "states"
    folder.mkdir()
    options = ["--state-file", str(folder / "daemon.state"), "--metrics-port", "0"]
    with running_daemon(tmp_path, upstream=broker.address, options=options) as daemon:
        daemon.wait_until(lambda status: status.counters["state_saves"] > 0)
        metrics = scraped(daemon)
        assert metrics["kafka_quotas_ready"] == 1
        assert metrics["kafka_quotas_state_save_failures_total"] == 0
        assert metrics["kafka_quotas_state_age_seconds"] < metrics["kafka_quotas_uptime_seconds"]
        folder.rename(tmp_path / "elsewhere")
        daemon.wait_until(lambda status: status.counters["state_save_failures"] > 0)
        broker.close()
        daemon.wait_until(lambda _: scraped(daemon)["kafka_quotas_ready"] == 0)
        assert scraped(daemon)["kafka_quotas_state_save_failures_total"] > 0


def scraped(daemon: DaemonProcess) -> dict[str, float]:
    """The metrics of a daemon that have no labels."""
    with urllib.request.urlopen(daemon.metrics_url, timeout=240) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.split(" ") for line in lines if re.match(r"\w+ ", line))}


def test_status_and_metrics_tell_who_is_throttled_by_which_quota(tmp_path: Path) -> None:
    set_quota(tmp_path, APP, producer_byte_rate=1000.0)
    options = ["--quota-window-num", "3", "--metrics-port", "0"]
    with (
        fake_broker(throttling_broker) as broker,
        running_daemon(tmp_path, upstream=broker.address, options=options) as daemon,
        connected(daemon.bootstrap) as client,
    ):
        client.sendall(produce(1, size=62_004))
        throttle_ms = throttle_of(receive_frame(client), -4)
        assert throttle_ms == 60_000
        status = daemon.wait_until(lambda status: bool(status.throttled))
        (row,) = status.throttled
        assert (row.quota, row.entity, row.user, row.client_id) == (
            "producer_byte_rate",
            "client-id app",
            "ANONYMOUS",
            "app",
        )
        assert (row.limit, row.connections, row.throttle_ms) == (1000.0, 1, 60_000)
        assert 0 < row.remaining_ms <= 60_000
        assert 1000 < row.observed <= 31_000
        text = urllib.request.urlopen(daemon.metrics_url, timeout=240).read().decode()
        assert "kafka_server_produce_queue_size 1.0" in text
        assert "kafka_server_produce_throttle_time_ms_total 60000.0" in text
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(daemon.metrics_url.replace("/metrics", "/other"), timeout=240)
        assert missing.value.code == 404
        missing.value.close()
        assert stat.S_IMODE(daemon.control.stat().st_mode) == 0o600
        # A limit that is lifted frees nobody from a throttle time already set, as at a broker.
        set_quota(tmp_path, APP, producer_byte_rate=None)
        assert daemon.wait_until(lambda status: status.store.limits == 0).throttled


def test_a_quota_set_while_clients_are_connected_reaches_them(tmp_path: Path) -> None:
    with (
        fake_broker(throttling_broker) as broker,
        running_daemon(tmp_path, upstream=broker.address) as daemon,
        connected(daemon.bootstrap) as client,
    ):
        client.sendall(produce(1, size=100_000))
        assert throttle_of(receive_frame(client), -4) == 0
        set_quota(tmp_path, APP, producer_byte_rate=1000.0)
        daemon.wait_until(lambda status: status.store.limits == 1)
        client.sendall(produce(2, size=100_000))
        assert throttle_of(receive_frame(client), -4) > 0


def test_it_works_with_asyncios_own_event_loop(tmp_path: Path) -> None:
    set_quota(tmp_path, APP, producer_byte_rate=1000.0)
    environment = without("uvloop", tmp_path)
    with (
        fake_broker(throttling_broker) as broker,
        running_daemon(tmp_path, upstream=broker.address, environment=environment) as daemon,
    ):
        assert daemon.status().event_loop == "asyncio"
        with connected(daemon.bootstrap) as client:
            client.sendall(produce(1, size=20_000) + produce(2, size=100))
            assert throttle_of(receive_frame(client), -4) > 0
        with connected(daemon.bootstrap) as bad:
            bad.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert is_closed(bad)


@pytest.mark.parametrize("text", ["[" * 100_000, None], ids=["nested", "a device"])
def test_a_state_file_without_end_is_logged_and_every_bucket_starts_empty(tmp_path: Path, text: str | None) -> None:
    state = tmp_path / "daemon.state"
    if text is None:
        state.symlink_to("/dev/zero")
    else:
        state.write_text(text, encoding="ascii")
    options = ["--state-file", str(state)]
    with (
        fake_broker(answer_each) as broker,
        running_daemon(tmp_path, upstream=broker.address, options=options) as daemon,
        connected(daemon.bootstrap) as client,
    ):
        ping(client)
        line = daemon.wait_for_log("state can't be restored; every bucket starts empty")
        assert ("nested too deep" if text else "no regular file") in line


def test_the_state_is_read_before_a_port_opens(tmp_path: Path) -> None:
    state = tmp_path / "daemon.state"
    state.write_text("garbage", encoding="ascii")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "kafka_quotas", "daemon", "run", "--upstream", "127.0.0.1:1"]
        places = ["--listen", address, "--store", store_url(tmp_path), "--state-file", str(state)]
        set_quota(tmp_path, APP, producer_byte_rate=1.0)
        done = subprocess.run([*command, *places], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.index("state can't be restored") < done.stderr.index("error: ")
    assert address.rpartition(":")[2] in done.stderr, "the port that is taken"
