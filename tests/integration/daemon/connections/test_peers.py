"""Peers of a running daemon that misbehave: one log line, that connection closed, the others unharmed."""

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.brokers.fake_broker import (
    FakeBroker,
    answer_each,
    answer_question,
    connected,
    fake_broker,
    is_closed,
    receive_frame,
)
from tests.support.brokers.java_process import free_port
from tests.support.daemon.pinged import PING, ping, throttling_broker
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota
from tests.support.frames.enforcement import (
    fetch,
    fetch_response,
    framed,
    produce,
    request,
)
from tests.support.processes.figures import resident_bytes

from kafka_quotas.core.model.entity import Entity

APP = Entity.of(client_id="app")


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_broker(answer_each) as running:
        yield running


@pytest.fixture
def daemon(broker: FakeBroker, tmp_path: Path) -> Iterator[DaemonProcess]:
    with running_daemon(tmp_path, upstream=broker.address, options=["--quota-window-num", "3"]) as running:
        yield running


@pytest.mark.parametrize(
    ("rubbish", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50), "TLS"),
        (b"\x80\x00\x00\x00" + bytes(30), "-2147483648"),
        (struct.pack(">i", 2**31 - 1) + bytes(30), "2147483647"),
        (bytes(64), "0 bytes"),
        (os.urandom(4096), "can't be handled"),
    ],
    ids=["http", "tls", "negative", "2GiB", "zeros", "random"],
)
def test_a_client_that_sends_rubbish(daemon: DaemonProcess, rubbish: bytes, said: str) -> None:
    with connected(daemon.bootstrap) as healthy, connected(daemon.bootstrap) as bad:
        ping(healthy)
        bad.sendall(rubbish if said != "can't be handled" else b"\x7f" + rubbish)
        assert is_closed(bad)
        assert said in daemon.wait_for_log("client closed: it sent what can't be handled")
        ping(healthy)
    assert len(daemon.lines("what can't be handled")) == 1
    assert daemon.status().counters["protocol_errors"] == 1


def test_a_client_that_vanishes_in_the_middle_of_a_frame(daemon: DaemonProcess) -> None:
    with connected(daemon.bootstrap) as healthy:
        ping(healthy)
        with connected(daemon.bootstrap) as bad:
            bad.sendall(produce(1, size=100_000)[:5000])
        daemon.wait_for_log("client vanished in the middle of a request")
        daemon.wait_until(lambda status: status.connections == 1)
        ping(healthy)
    assert len(daemon.lines("vanished")) == 1


def test_a_client_that_is_reset_while_it_is_muted(tmp_path: Path) -> None:
    set_quota(tmp_path, APP, producer_byte_rate=100.0)
    with fake_broker(throttling_broker) as broker, running_daemon(tmp_path, upstream=broker.address) as daemon:
        with connected(daemon.bootstrap) as bad:
            bad.sendall(produce(1, size=50_000))
            receive_frame(bad)
            daemon.wait_until(lambda status: bool(status.throttled))
            bad.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        daemon.wait_until(lambda status: status.connections == 0)


def test_an_upstream_that_is_down_and_comes_back(tmp_path: Path) -> None:
    port = free_port()
    with running_daemon(tmp_path, upstream=f"127.0.0.1:{port}") as daemon:
        with connected(daemon.bootstrap) as client:
            client.sendall(PING)
            assert is_closed(client)
        assert "127.0.0.1" in daemon.wait_for_log("upstream can't be connected")
        assert len(daemon.lines("upstream can't be connected")) == 1
        with fake_broker(answer_each, port=port), connected(daemon.bootstrap) as client:
            ping(client)


def test_an_upstream_that_does_not_take_connections(tmp_path: Path) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        waiting = [socket.socket() for _ in range(4)]  # they fill the queue; further connects get no answer
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(deaf.getsockname())
            with running_daemon(tmp_path, upstream=address, options=["--connect-timeout", "0.5"]) as daemon:
                with connected(daemon.bootstrap) as client:
                    client.sendall(PING)
                    assert is_closed(client)
                assert "0.5 s" in daemon.wait_for_log("upstream can't be connected")
        finally:
            for each in waiting:
                each.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"\xff\xff\xff\xff" + bytes(20), "-1 bytes"),
        (framed(struct.pack(">i", 78)), "78 where 77 was due"),
        (framed(b"ab") + bytes(8), "2 bytes"),
        (framed(struct.pack(">i", 77)) + framed(struct.pack(">i", 79)), "nobody asked for"),
    ],
    ids=["length", "correlation", "short", "unasked"],
)
def test_an_upstream_that_answers_rubbish(tmp_path: Path, answer: bytes, said: str) -> None:
    def handler(connection: socket.socket) -> None:
        frame = receive_frame(connection)
        if frame[4:] == PING[4:]:
            connection.sendall(answer)
            is_closed(connection)
        else:
            connection.sendall(framed(frame[8:12]))
            answer_each(connection)

    with fake_broker(handler) as broker, running_daemon(tmp_path, upstream=broker.address) as daemon:
        with connected(daemon.bootstrap) as healthy, connected(daemon.bootstrap) as client:
            healthy.sendall(request(12, 1, 5, b"other"))
            receive_frame(healthy)
            client.sendall(PING)
            assert is_closed(client)
            assert said in daemon.wait_for_log("the upstream sent what can't be handled")
            ping(healthy)
        assert len(daemon.lines("what can't be handled")) == 1


def test_rubbish_that_waited_for_a_response_is_the_clients(tmp_path: Path) -> None:
    set_quota(tmp_path, APP, consumer_byte_rate=1_000_000.0)
    sent = threading.Event()

    def handler(connection: socket.socket) -> None:
        answer_question(connection)
        receive_frame(connection)
        sent.wait(60)
        connection.sendall(fetch_response(1))
        is_closed(connection)

    with fake_broker(handler) as broker, running_daemon(tmp_path, upstream=broker.address) as daemon:
        with connected(daemon.bootstrap) as bad:
            bad.sendall(fetch(1) + framed(struct.pack(">hhih", 12, 0, 2, 1000)))
            sent.set()
            assert is_closed(bad)
        line = daemon.wait_for_log("client closed: it sent what can't be handled")
        assert "client id" in line
        assert line.split()[1] == "warning", line
        assert not daemon.lines("the upstream sent")


def test_an_upstream_that_closes_with_requests_unanswered(tmp_path: Path) -> None:
    def handler(connection: socket.socket) -> None:
        receive_frame(connection)

    with fake_broker(handler) as broker, running_daemon(tmp_path, upstream=broker.address) as daemon:
        with connected(daemon.bootstrap) as client:
            client.sendall(PING)
            assert is_closed(client)
        assert "unanswered=1" in daemon.wait_for_log("upstream closed the connection")


def test_the_last_requests_of_a_client_that_is_gone_still_reach_the_broker(tmp_path: Path) -> None:
    received: list[bytes] = []
    ended = threading.Event()

    def handler(connection: socket.socket) -> None:
        answer_question(connection)
        while piece := connection.recv(65536):
            received.append(piece)
        ended.set()

    data = b"".join(produce(n, size=40_000, acks=0) for n in range(50))
    with fake_broker(handler) as broker, running_daemon(tmp_path, upstream=broker.address) as daemon:
        with connected(daemon.bootstrap) as client:
            client.sendall(data)
        assert ended.wait(240)
    assert b"".join(received) == data


def test_memory_stays_bounded_when_the_broker_does_not_read(tmp_path: Path) -> None:
    release = threading.Event()

    def handler(connection: socket.socket) -> None:
        release.wait(240)
        answer_each(connection)

    with fake_broker(handler) as broker, running_daemon(tmp_path, upstream=broker.address) as daemon:
        before = resident_bytes(daemon.pid)
        with connected(daemon.bootstrap) as client:
            client.settimeout(1.0)
            piece = bytes(1 << 20)
            sent = 0
            client.sendall(produce(1, size=90_000_000)[:1000])
            with suppress(TimeoutError):
                while sent < 80_000_000:
                    sent += client.send(piece)
            assert sent < 40_000_000
            assert resident_bytes(daemon.pid) - before < 8_000_000
            release.set()


def test_memory_stays_bounded_when_the_client_does_not_read(tmp_path: Path) -> None:
    blocked = threading.Event()

    def handler(connection: socket.socket) -> None:
        receive_frame(connection)
        connection.sendall(framed(struct.pack(">i", 77)))
        receive_frame(connection)
        connection.settimeout(1.0)
        size = 500_000_000
        connection.sendall(fetch_response(1, size=size // 1000)[:0] + struct.pack(">iii", size, 1, 0))
        try:
            while True:
                connection.sendall(bytes(1 << 20))
        except TimeoutError:
            blocked.set()

    with fake_broker(handler) as broker, running_daemon(tmp_path, upstream=broker.address) as daemon:
        before = resident_bytes(daemon.pid)
        with connected(daemon.bootstrap, receive_buffer=65536) as client:
            ping(client)  # the broker serves it: its Fetch needs no proof of that
            client.sendall(fetch(1))
            assert blocked.wait(240)
            assert resident_bytes(daemon.pid) - before < 8_000_000
