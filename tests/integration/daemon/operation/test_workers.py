"""A daemon of several processes is one daemon: one limit, one status, one log of events, one place in the network."""

import json
import os
import signal
import socket
import ssl
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from tests.support.brokers.appended_records import appended, make_topic
from tests.support.brokers.certificates import make_certificates
from tests.support.brokers.fake_broker import FakeBroker, connected, fake_broker, is_closed, receive_frame
from tests.support.brokers.servers import Kafka
from tests.support.daemon.greedy_producer import acknowledgements
from tests.support.daemon.pinged import throttling_broker
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota
from tests.support.frames.enforcement import produce, throttle_of
from tests.support.frames.proxy_header import proxied
from tests.support.load.numbered_load import LibrdkafkaLoad, number_of
from tests.support.processes.awaiting import await_true

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.resolution.effective import QuotaClient
from kafka_quotas.enforcement.control.client import ask_reload, ask_unmute
from kafka_quotas.loadtest.plan.client_verdict import judge

APP = Entity.of(client_id="app")
WORKERS = ("--workers", "2")
LONG_WINDOW = ("--quota-window-num", "3", "--quota-window-size-seconds", "100")
DURATION_S = 41.0
QUOTA = 1_000_000.0


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_broker(throttling_broker) as running:
        yield running


def served_by(daemon: DaemonProcess) -> list[int]:
    return sorted(row.connections for row in daemon.status().workers)


def throttled(client: socket.socket, *, size: int) -> bool:
    client.sendall(produce(1, size=size))
    return throttle_of(receive_frame(client), -4) > 0


def test_connections_are_spread_and_share_bucket_status_metrics_and_log(broker: FakeBroker, tmp_path: Path) -> None:
    set_quota(tmp_path, APP, producer_byte_rate=2_000.0)
    events = tmp_path / "events"
    options = (*WORKERS, *LONG_WINDOW, "--metrics-port", "0", "--event-log", str(events))
    with running_daemon(tmp_path, upstream=broker.address, options=options) as daemon, ExitStack() as stack:
        clients = [stack.enter_context(connected(daemon.bootstrap)) for _ in range(4)]
        assert not throttled(clients[0], size=399_950)
        assert served_by(daemon) == [2, 2]
        for client in clients[1:]:
            await_true(lambda each=client: throttled(each, size=100_000), "in whichever process it is")
        status = daemon.status()
        assert (len(status.workers), status.connections) == (2, 4)
        asked = status.counters["requests"]
        (row,) = status.throttled
        assert row.connections == 3
        text = urllib.request.urlopen(daemon.metrics_url, timeout=240).read().decode()
        assert "kafka_quotas_workers 2.0" in text
        assert "kafka_server_produce_throttles_total 3.0" in text
        (unmuted,) = {each.client_id for each in ask_unmute(daemon.control, QuotaClient(client_id="app")).unmuted}
        assert unmuted == "app"
        daemon.wait_until(lambda status: not status.throttled)
        set_quota(tmp_path, APP, producer_byte_rate=None)
        daemon.wait_until(lambda status: status.store.limits == 0)
        assert ask_reload(daemon.control).limits == 0
        for client in clients:
            client.sendall(produce(2, size=200_000))
            assert throttle_of(receive_frame(client), -4) == 0, "every process follows the store"
    lines = [json.loads(line) for file in events.glob("*.jsonl") for line in file.read_text().splitlines()]
    assert set(Counter(line["connection"] for line in lines)) == {1, 2, 3, 4}
    assert len([line for line in lines if line["quota_type"] == "produce"]) == asked + 4


def test_limits_on_connections_hold_over_all_workers(broker: FakeBroker, tmp_path: Path) -> None:
    options = (*WORKERS, "--max-connections", "3")
    with running_daemon(tmp_path, upstream=broker.address, options=options) as daemon, ExitStack() as stack:
        clients = [stack.enter_context(connected(daemon.bootstrap)) for _ in range(3)]
        with connected(daemon.bootstrap) as fourth:
            fourth.sendall(produce(1))
            daemon.wait_until(lambda status: status.counters["connections_delayed"] == 1)
            assert sum(served_by(daemon)) == 3
            clients[0].close()
            assert throttle_of(receive_frame(fourth), -4) == 0


def test_workers_serve_tls_of_clients_whose_addresses_a_load_balancer_gives(broker: FakeBroker, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    listener = tmp_path / "listener.properties"
    lines = ("security.protocol=SSL", "ssl.keystore.type=PEM", f"ssl.keystore.location={tmp_path / 'server.pem'}")
    listener.write_text("\n".join((*lines, "proxy.protocol.trusted=127.0.0.1", "max.connections.per.ip=1")))
    context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))

    def client(ip: str) -> ssl.SSLSocket:
        plain = stack.enter_context(connected(daemon.bootstrap))
        plain.sendall(proxied(ip))
        return stack.enter_context(context.wrap_socket(plain, server_hostname="localhost"))

    options = (*WORKERS, "--listener-config", str(listener))
    with running_daemon(tmp_path, upstream=broker.address, options=options) as daemon, ExitStack() as stack:
        for ip in ("192.0.2.1", "192.0.2.2"):
            served = client(ip)
            served.sendall(produce(1, size=100_000))
            assert throttle_of(receive_frame(served), -4) == 0
        assert served_by(daemon) == [1, 1]
        with pytest.raises(OSError):
            client("192.0.2.2")
        assert daemon.status().counters["connections_refused"] == 1


def test_a_worker_that_is_killed_is_replaced_and_what_was_charged_stays(broker: FakeBroker, tmp_path: Path) -> None:
    set_quota(tmp_path, APP, producer_byte_rate=2_000.0)
    options = (*WORKERS, *LONG_WINDOW, "--state-file", str(tmp_path / "state"))
    with running_daemon(tmp_path, upstream=broker.address, options=options) as daemon:
        with connected(daemon.bootstrap) as client, connected(daemon.bootstrap) as other:
            client.sendall(produce(1, size=399_950))
            assert throttle_of(receive_frame(client), -4) == 0
            await_true(lambda: throttled(other, size=100), "the other process has heard of it")
            before = daemon.status().workers
            for row in before:
                os.kill(row.pid, signal.SIGKILL)
            assert is_closed(client)
            assert is_closed(other)
        daemon.wait_until(lambda status: [row.starts for row in status.workers] == [2, 2])
        daemon.wait_for_log("a worker has ended", "exit_code=-9", count=2)
        with connected(daemon.bootstrap) as again:
            again.sendall(produce(1, size=100_000))
            assert throttle_of(receive_frame(again), -4) > 0, "its process started with what all had measured"
        assert daemon.status().counters["connections_accepted"] == 3
    state = json.loads((tmp_path / "state").read_text())
    assert [(row["quota_type"], row["snapshot"]["name"]) for row in state["buckets"]][:1] == [("produce", ["", "app"])]


def test_a_worker_that_hangs_is_ended_and_replaced(broker: FakeBroker, tmp_path: Path) -> None:
    with running_daemon(tmp_path, upstream=broker.address, options=WORKERS) as daemon:
        with connected(daemon.bootstrap) as client:
            daemon.wait_until(lambda status: sum(row.connections for row in status.workers) == 1)
            (busy,) = (row for row in daemon.status().workers if row.connections)
            os.kill(busy.pid, signal.SIGSTOP)
            daemon.wait_for_log("a worker has said nothing", f"pid={busy.pid}")
            assert is_closed(client)
        daemon.wait_until(lambda status: sorted(row.starts for row in status.workers) == [1, 2])
        with connected(daemon.bootstrap) as again:
            again.sendall(produce(1))
            assert throttle_of(receive_frame(again), -4) == 0


def test_workers_end_with_a_daemon_that_is_killed(broker: FakeBroker, tmp_path: Path) -> None:
    with running_daemon(tmp_path, upstream=broker.address, options=WORKERS) as daemon:
        pids = [row.pid for row in daemon.status().workers]
        daemon.kill()
        for pid in pids:
            await_true(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "it has ended")
    control = tmp_path / "control.sock"
    with running_daemon(tmp_path, upstream=broker.address, options=WORKERS) as again:
        assert again.control == control


def test_topics_over_their_thresholds_stay_rejected_by_new_workers(
    kafka4: Kafka, tmp_path: Path, unique_name: str
) -> None:
    set_quota(tmp_path, Entity.of(topic=unique_name), **{"bytes.in.per.sec.threshold": 1.0})
    set_quota(tmp_path, Entity.of(broker=None), **{"total.bytes.in.per.sec.threshold": 1000.0})
    with running_daemon(tmp_path, upstream=kafka4.bootstrap, options=WORKERS) as daemon:
        make_topic(daemon.bootstrap, unique_name)

        def is_rejected() -> bool:
            return produced(daemon.bootstrap, unique_name) == KafkaError.POLICY_VIOLATION

        await_true(is_rejected, "the rate of the topic is over its threshold")
        before = daemon.status()
        for row in before.workers:
            os.kill(row.pid, signal.SIGKILL)
        daemon.wait_until(lambda status: [row.starts for row in status.workers] == [2, 2])
        assert is_rejected(), "by a process that has taken in nothing yet"


def produced(bootstrap: str, topic: str) -> int:
    """Produce one record in a connection of its own, and return the error code of its acknowledgement."""
    codes: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce(
        topic, bytes(100_000), on_delivery=lambda error, _: codes.append(0 if error is None else error.code())
    )
    assert producer.flush(240) == 0
    return codes[0]


@pytest.mark.measuring
def test_two_workers_hold_one_quota_as_one_process_does(kafka4: Kafka, tmp_path: Path, unique_name: str) -> None:
    """Beside each other in the same run, for a busy machine is slow for both."""
    names = (unique_name, f"{unique_name}-control")
    with ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        daemons = []
        for name, workers in zip(names, (WORKERS, ()), strict=True):
            folder = tmp_path / name
            folder.mkdir()
            set_quota(folder, Entity.of(client_id=name), producer_byte_rate=QUOTA)
            options = (*workers, "--quota-window-num", "3", "--quota-window-size-seconds", "1")
            daemons.append(stack.enter_context(running_daemon(folder, upstream=kafka4.bootstrap, options=options)))
            make_topic(daemons[-1].bootstrap, name)
        running = [
            [
                pool.submit(
                    acknowledgements,
                    daemon.bootstrap,
                    name,
                    name,
                    duration_s=DURATION_S,
                    properties={"batch.size": "20000", "linger.ms": "1", "max.in.flight": "1"},
                )
                for _ in range(4)
            ]
            for daemon, name in zip(daemons, names, strict=True)
        ]
        daemons[0].wait_until(lambda status: bool(status.throttled))
        assert all(row.connections for row in daemons[0].status().workers)
        acks = [[ack for each in some for ack in each.result()] for some in running]
    # By whole throttle cycles of a second or two, for a fixed span of time would cut some off at either end.
    ours, theirs = (judge(sorted(some), quota=QUOTA, window_ms=3000) for some in acks)
    assert ours.ratio == pytest.approx(theirs.ratio, rel=0.06), (ours.evidence, theirs.evidence)


def test_numbered_records_outlast_a_killed_worker(kafka4: Kafka, tmp_path: Path, unique_name: str) -> None:
    set_quota(tmp_path, Entity.of(client_id=unique_name), producer_byte_rate=300_000.0)
    options = (*WORKERS, "--quota-window-num", "3", "--state-file", str(tmp_path / "state"))
    with running_daemon(tmp_path, upstream=kafka4.bootstrap, options=options) as daemon:
        make_topic(daemon.bootstrap, unique_name)
        load = LibrdkafkaLoad(daemon.bootstrap, unique_name, unique_name)
        try:
            load.goes_on()
            busiest = max(daemon.status().workers, key=lambda row: row.connections)
            os.kill(busiest.pid, signal.SIGKILL)
            daemon.wait_for_log("a worker has ended")
            load.goes_on(200)
            load.stop()
            records = appended(kafka4.bootstrap, unique_name)
        finally:
            load.give_up()
    found = Counter(number_of(record.value)[1] for record in records)
    assert load.failures == []
    assert [number for number, times in found.items() if times > 1] == []
    assert Counter(load.acknowledged) - found == Counter()
