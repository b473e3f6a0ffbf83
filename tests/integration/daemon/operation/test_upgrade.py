"""A daemon that is replaced while it runs: no client is refused, and nothing that was measured is forgotten."""

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from tests.support.brokers.appended_records import appended, make_topic
from tests.support.brokers.fake_broker import FakeBroker, connected, fake_broker, is_closed, receive_frame
from tests.support.brokers.servers import Kafka
from tests.support.daemon.pinged import throttling_broker
from tests.support.daemon.process import running_daemon, set_quota
from tests.support.frames.enforcement import produce, throttle_of
from tests.support.load.numbered_load import LibrdkafkaLoad, number_of
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.enforcement.control.server import UPGRADE_REQUEST
from kafka_quotas.enforcement.upgrade.messages import STATE, packed, receive, receive_offer, receive_sockets

APP = Entity.of(client_id="app")
WINDOW = ("--quota-window-num", "3")


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_broker(throttling_broker) as running:
        yield running


@contextmanager
def upgrading(control: Path) -> Iterator[socket.socket]:
    """The connection of a successor that has just asked."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(str(control))
        sock.sendall(UPGRADE_REQUEST)
        yield sock


def test_a_throttled_client_stays_throttled_and_its_bucket_goes_to_the_successor(
    broker: FakeBroker, tmp_path: Path
) -> None:
    set_quota(tmp_path, APP, producer_byte_rate=20_000.0)
    options = (
        *WINDOW,
        "--quota-window-size-seconds",
        "10",
        "--metrics-port",
        "0",
        "--state-file",
        str(tmp_path / "state"),
    )
    with (
        running_daemon(tmp_path, upstream=broker.address, options=options) as old,
        connected(old.bootstrap) as muted,
        connected(old.bootstrap) as idle,
    ):
        muted.sendall(produce(1, size=460_000))
        assert throttle_of(receive_frame(muted), -4) == 3000
        muted.sendall(produce(2, size=100))
        with running_daemon(tmp_path, upstream=broker.address, options=options, command="upgrade") as new:
            assert (new.bootstrap, new.metrics_url) == (old.bootstrap, old.metrics_url)
            assert is_closed(idle), "nothing holds it"
            (bucket,) = new.status().buckets
            assert bucket.observed > 0
            assert old.status().pid == new.pid, "the control socket leads to the new one"
            with connected(new.bootstrap) as again:
                # Alone it is within the limit, as 20 s have room for 400 kB; what was charged counts for as long.
                again.sendall(produce(3, size=390_000))
                assert throttle_of(receive_frame(again), -4) > 0, "what it was charged is not forgotten"
            assert is_closed(muted), "its throttle time is over"
            assert old.wait() == 0
            assert old.lines("daemon draining", "signal=upgrade", "connections=2")
            waited_s = at_s(old.wait_for_log("daemon stopped")) - at_s(old.wait_for_log("client throttled"))
            assert waited_s > 2.9
            assert new.wait_for_log("upgrade complete")
            assert new.control.is_socket()
            assert (tmp_path / "state").exists()
        assert not new.control.exists()


def test_successors_that_fail_leave_the_daemon_as_it_was(broker: FakeBroker, tmp_path: Path) -> None:
    with running_daemon(tmp_path, upstream=broker.address) as daemon:
        with upgrading(daemon.control) as sock:
            offer = receive_offer(sock)
            (taken,) = receive_sockets(sock, len(offer.roles))
            with taken, upgrading(daemon.control) as second:
                assert b"takes its place already" in second.recv(1000)
            sock.sendall(packed(STATE))
            assert json.loads(receive(sock))["buckets"] == []
            with connected(daemon.bootstrap) as early:  # waits in the backlog
                sock.close()
                daemon.wait_for_log("upgrade given up")
                early.sendall(produce(1))
                assert throttle_of(receive_frame(early), -4) == 0
        with upgrading(daemon.control) as sock:
            receive_sockets(sock, len(receive_offer(sock).roles))[0].close()
            sock.sendall(packed("rubbish"))
            daemon.wait_for_log("upgrade given up", "'rubbish'")
        port = daemon.bootstrap.rpartition(":")[2]
        code, _, _ = run_cli(
            *("daemon", "upgrade", "--upstream", broker.address, "--listen", "127.0.0.1:0", "--control"),
            *(str(daemon.control), "--store", f"local:{tmp_path / 'quotas.db'}", "--metrics-port", port),
        )
        assert code == 1
        daemon.wait_for_log("upgrade given up", count=3)
        with connected(daemon.bootstrap) as client:
            client.sendall(produce(1))
            assert throttle_of(receive_frame(client), -4) == 0
        assert daemon.status().pid == daemon.pid


def test_an_upgrade_without_a_daemon_says_so(tmp_path: Path) -> None:
    code, _, said = run_cli(
        *("daemon", "upgrade", "--upstream", "127.0.0.1:1", "--listen", "127.0.0.1:0"),
        *("--control", str(tmp_path / "none.sock"), "--store", f"local:{tmp_path / 'quotas.db'}"),
    )
    assert code == 1
    assert "no daemon answers" in said
    assert "daemon run" in said


def at_s(line: str) -> float:
    """When a line was logged, in seconds since the epoch."""
    return datetime.fromisoformat(line.split(" ", maxsplit=1)[0]).timestamp()


class Knocking:
    """Connections to an address, one after the other, until `end`."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._ended = threading.Event()
        self.made = 0
        self.refused: list[OSError] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._ended.wait(0.005):
            try:
                with socket.create_connection(self._address, timeout=60):
                    self.made += 1
            except OSError as error:
                self.refused.append(error)


def test_under_load_no_record_is_lost_or_doubled_and_no_connection_refused(
    kafka4: Kafka, tmp_path: Path, unique_name: str
) -> None:
    set_quota(tmp_path, Entity.of(client_id=unique_name), producer_byte_rate=300_000.0)
    options = (*WINDOW, "--state-file", str(tmp_path / "state"))
    with running_daemon(tmp_path, upstream=kafka4.bootstrap, options=options) as first:
        make_topic(first.bootstrap, unique_name)
        load = LibrdkafkaLoad(first.bootstrap, unique_name, unique_name)
        try:
            load.goes_on()
            knocking = Knocking(first.bootstrap)
            load.goes_on(400)
            with running_daemon(tmp_path, upstream=kafka4.bootstrap, options=options, command="upgrade") as second:
                assert first.wait() == 0
                load.goes_on(400)
                knocking.end()
                assert second.status().counters["connections_accepted"] > 0
                load.stop()
                records = appended(kafka4.bootstrap, unique_name)
        finally:
            load.give_up()
    found = Counter(number_of(record.value)[1] for record in records)
    assert load.failures == []
    assert knocking.made > 0
    assert [str(each) for each in knocking.refused] == []
    assert [number for number, times in found.items() if times > 1] == []
    assert Counter(load.acknowledged) - found == Counter()
