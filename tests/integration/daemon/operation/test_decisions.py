"""The control socket of a running daemon as other programs use it: Python, the command, other users."""

import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.brokers.fake_broker import FakeBroker, connected, fake_broker, receive_frame
from tests.support.daemon.decision_desk import Desk
from tests.support.daemon.pinged import throttling_broker
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota
from tests.support.frames.enforcement import produce, throttle_of
from tests.support.processes.run_cli import run_cli

from kafka_quotas import Decision, DecisionClient, DecisionError, DecisionRequest
from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.control import server
from kafka_quotas.enforcement.control.server import ControlError, ControlServer
from kafka_quotas.enforcement.decisions import Operation

APP = Entity.of(client_id="app")
WINDOW = ["--quota-window-num", "3"]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_broker(throttling_broker) as started:
        yield started


@pytest.fixture
def daemon(broker: FakeBroker, tmp_path: Path) -> Iterator[DaemonProcess]:
    set_quota(tmp_path, APP, producer_byte_rate=1000.0)
    with running_daemon(tmp_path, upstream=broker.address, options=WINDOW) as started:
        yield started


def test_programs_and_clients_of_the_proxy_share_their_quotas(daemon: DaemonProcess) -> None:
    with DecisionClient(daemon.control) as program, connected(daemon.bootstrap) as client:
        assert program.check("produce", 200_000, client_id="app").delay_ms == 198_000
        assert program.record("produce", 200_000, client_id="app").delay_ms == 198_000
        client.sendall(produce(1, size=1004))
        assert throttle_of(receive_frame(client), -4) > 100_000
        back = program.unrecord("produce", 200_000, client_id="app")
        assert (back.delay_ms, back.quota, back.entity) == (0, "producer_byte_rate", "client-id app")
        assert program.check("produce", client_id="app").delay_ms == 0
        several = [
            DecisionRequest(Operation.CHECK, QuotaType.PRODUCE, 200_000, client_id=name) for name in ("app", "other")
        ]
        answers = program.ask_all([*several, several[0]._replace(broker=99)])
        assert [isinstance(answer, Decision) and answer.delay_ms > 0 for answer in answers] == [True, False, False]
        assert isinstance(answers[2], DecisionError)
        with pytest.raises(DecisionError, match="no broker 99"):
            program.record("produce", 1, broker=99)


def test_programs_share_the_limits_of_addresses_and_topics(broker: FakeBroker, tmp_path: Path) -> None:
    set_quota(tmp_path, Entity.of(ip="192.0.2.7"), connection_creation_rate=1.0)
    policy = tmp_path / "policy.toml"
    policy.write_text("[thresholds]\ntotal = 1000\ntopics = { orders = 100 }\n")
    with running_daemon(tmp_path, upstream=broker.address, options=["--policy", str(policy), *WINDOW]) as daemon:
        with DecisionClient(daemon.control) as program:
            made = [program.record("connection", 1, ip="192.0.2.7").delay_ms for _ in range(50)]
            assert made[0] == 0
            assert made[-1] > 0
            decision = program.record("topic", 5000, topic="orders")
            assert (decision.delay_ms, decision.entity, decision.limit) == (0, "topic orders", 100.0)
            with pytest.raises(DecisionError, match="ip is the address"):
                program.check("connection", 1)
            with pytest.raises(DecisionError, match="type is one of"):
                program.check("dance")
        asked = ["daemon", "decide", "check", "--control", str(daemon.control), "--output", "json"]
        code, out, _ = run_cli(*asked, "--type", "topic", "--topic", "orders", "--amount", "1kB")
        assert (code, json.loads(out)["quota"]["key"]) == (0, "bytes.in.per.sec.threshold")
        code, out, _ = run_cli(*asked, "--type", "connection", "--ip", "192.0.2.7", "--amount", "1")
        assert (code, json.loads(out)["quota"]["entity"]) == (0, {"ip": "192.0.2.7"})
        code, _, err = run_cli(*asked, "--type", "dance")
        assert code == 2
        assert "connection, topic" in err


def test_names_that_are_no_text_are_one_client_on_every_way_in_and_break_no_metrics(
    broker: FakeBroker, tmp_path: Path
) -> None:
    set_quota(tmp_path, Entity.of(client_id=None), producer_byte_rate=1000.0)
    options = [*WINDOW, "--metrics-port", "0", "--state-file", str(tmp_path / "state"), "--metrics-client", "a\ufffdb"]
    for _ in range(2):  # the second time from the state file
        with running_daemon(tmp_path, upstream=broker.address, options=options) as daemon:
            with socket.socket(socket.AF_UNIX) as lines:
                lines.settimeout(240)
                lines.connect(str(daemon.control))
                lines.sendall(b'{"op":"record","type":"produce","amount":2000,"client_id":"a\\ud800b"}\n')
                assert json.loads(lines.recv(65536))["ok"] is True
            with DecisionClient(daemon.control) as program:
                program.record("produce", 2000, client_id="a\udcffb")
            with connected(daemon.bootstrap) as client:
                client.sendall(produce(1, client_id="aXb").replace(b"aXb", b"a\xffb"))
                receive_frame(client)
            rows = {row.client_id for row in daemon.status().buckets}
            assert rows == {"a\ufffdb"}
            text = urllib.request.urlopen(daemon.metrics_url, timeout=240).read().decode()
            assert 'client_id="a\ufffdb"' in text


def test_the_command_asks_too(daemon: DaemonProcess) -> None:
    asked = ["daemon", "decide", "record", "--client", "app", "--amount", "200kB", "--control", str(daemon.control)]
    code, out, _ = run_cli(*asked, "--output", "json")
    data = json.loads(out)
    assert code == 0
    assert data["delay_ms"] == 198_000
    assert data["quota"]["entity"] == {"client-id": "app"}
    code, out, _ = run_cli(*asked)
    assert "producer_byte_rate" in out
    code, _, err = run_cli("daemon", "decide", "dance", "--control", str(daemon.control))
    assert code == 2
    assert "dance" in err
    code, _, err = run_cli("daemon", "decide", "check", "--type", "request", "--amount", "x")
    assert code == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_served_only_if_he_was_named(broker: FakeBroker, tmp_path: Path) -> None:
    code = """import contextlib, socket, sys
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect(sys.argv[1])
    with contextlib.suppress(BrokenPipeError):  # sent away already, the answer is there
        sock.sendall(b'{"op":"check","type":"produce"}\\n')
    print(sock.makefile().readline())
"""
    place = Path("/tmp") / f"kafka-quotas-test-{os.getpid()}"
    place.mkdir(mode=0o755)
    try:
        for options, expected in (([], "may not ask"), (["--control-user", "65534"], "delay_ms")):
            control = ["--control", str(place / "c.sock"), "--control-mode", "0666", *options]
            with running_daemon(tmp_path, upstream=broker.address, options=control) as daemon:
                assert stat.S_IMODE(daemon.control.stat().st_mode) == 0o666
                done = subprocess.run(
                    ["/usr/bin/env", "python3", "-c", code, str(daemon.control)],
                    user=65534,
                    capture_output=True,
                    text=True,
                    timeout=240,
                    check=False,
                    env={"PATH": "/usr/bin:/bin"},
                )
                assert expected in done.stdout, done
    finally:
        shutil.rmtree(place)


def test_what_is_no_line_of_json_ends_with_an_error_and_others_go_on(daemon: DaemonProcess) -> None:
    with DecisionClient(daemon.control) as healthy:
        for rubbish in (b"\0KQ\2", b"\0\0\0\0", b"\0KQ\1\xff\xff\xff\xff", b"{" * 1_100_000):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(240)
                sock.connect(str(daemon.control))
                with suppress(BrokenPipeError):  # sent away before all was said; the answer is there
                    sock.sendall(rubbish)
                with sock.makefile("rb") as lines:
                    assert b'"ok": false' in lines.readline()
        assert healthy.check("produce").delay_ms == 0


def test_a_client_says_what_it_did_not_find(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="no daemon answers"):
        DecisionClient(tmp_path / "absent")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "other"))
        other.listen()
        done = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys, kafka_quotas; kafka_quotas.DecisionClient(sys.argv[1])",
                other.getsockname(),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        taken, _ = other.accept()
        assert taken.recv(4096).endswith(b"}\n")
        taken.sendall(b"HTTP\n")
        taken.close()
        _, err = done.communicate(timeout=240)
        assert ProtocolError.__name__ in err


def test_a_reload_keeps_connections_and_what_was_measured(broker: FakeBroker, tmp_path: Path) -> None:
    static = tmp_path / "static.properties"
    static.write_text("quota.producer.default=1000\n")
    with (
        running_daemon(tmp_path, upstream=broker.address, options=["--static-quotas", str(static), *WINDOW]) as daemon,
        connected(daemon.bootstrap) as client,
        DecisionClient(daemon.control) as program,
    ):
        assert program.record("produce", 200_000, client_id="app").delay_ms == 198_000
        static.write_text("quota.producer.default=2000\n")
        code, out, _ = run_cli("daemon", "reload", "--control", str(daemon.control), "--output", "json")
        assert (code, json.loads(out)["changed"]) == (0, 1)
        assert 90_000 < program.check("produce", client_id="app").delay_ms < 100_000
        static.write_text("quota.producer.default=nonsense\n")
        code, _, err = run_cli("daemon", "reload", "--control", str(daemon.control))
        assert code == 1
        assert "nonsense" in err
        client.sendall(produce(1, size=1004))
        assert 50_000 < throttle_of(receive_frame(client), -4) < 100_000


def test_a_reload_reads_the_tables_of_the_configuration_file_again(broker: FakeBroker, tmp_path: Path) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text("[enforcement]\nmode = 'kafka'\n[policy]\n[[policy.entity]]\nclient_id = 'app'\nexempt = true\n")
    set_quota(tmp_path, APP, producer_byte_rate=1000.0)
    options = ["--config", str(file), *WINDOW]
    with (
        running_daemon(tmp_path, upstream=broker.address, options=options) as daemon,
        DecisionClient(daemon.control) as program,
    ):
        assert program.record("produce", 200_000, client_id="app").delay_ms == 0, "exempt by the table"
        file.write_text("[enforcement]\nmode = 'kafka'\n[policy]\n")
        code, out, _ = run_cli("daemon", "reload", "--control", str(daemon.control), "--output", "json")
        assert (code, json.loads(out)["files"]) == (0, [f"{file}#policy"])
        assert program.record("produce", 200_000, client_id="app").delay_ms > 100_000


def test_a_killed_daemon_remembers_what_was_charged(broker: FakeBroker, tmp_path: Path) -> None:
    set_quota(tmp_path, APP, producer_byte_rate=1000.0)
    set_quota(tmp_path, Entity.of(ip="192.0.2.7"), connection_creation_rate=1.0)
    state = tmp_path / "state.json"
    options = ["--state-file", str(state), "--quota-window-num", "100"]
    with running_daemon(tmp_path, upstream=broker.address, options=options) as first:
        with DecisionClient(first.control) as program:
            assert program.record("produce", 400_000, client_id="app").delay_ms > 200_000
            assert program.record("connection", 99, ip="192.0.2.7").delay_ms == 0
        deadline = first.wait_until(lambda _: state.exists() and '"produce"' in state.read_text())
        assert deadline.pid == first.pid
        first.send(signal.SIGKILL)
        first.wait()
    with running_daemon(tmp_path, upstream=broker.address, options=options) as second:
        assert "buckets=1 connections=" in second.wait_for_log("state restored")
        with DecisionClient(second.control) as program:
            assert program.record("connection", 99, ip="192.0.2.7").delay_ms > 0
        with connected(second.bootstrap) as client:
            client.sendall(produce(1, size=1004))
            assert throttle_of(receive_frame(client), -4) > 100_000


TIMEOUT_S = 60.0
CHECK = json.dumps({"op": "check", "type": "produce", "client_id": "app"}).encode() + b"\n"


async def answer(path: Path) -> tuple[dict[str, object], asyncio.StreamWriter]:
    """The response to a request on a connection of its own, which stays open."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(CHECK)
    return json.loads(await reader.readline()), writer


def test_a_connection_too_many_is_refused_and_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    path = tmp_path / "control.sock"

    async def test() -> None:
        control = ControlServer(path, Desk().desk)
        await control.start()
        kept = []
        for _ in range(2):
            answered, connection = await answer(path)
            assert answered["ok"], answered
            kept.append(connection)
        for _ in range(3):
            reader, surplus = await asyncio.open_unix_connection(path)
            assert json.loads(await reader.read()) == {"ok": False, "error": "too many connections"}
            surplus.close()
        kept.pop().close()
        answered = {"ok": False}
        while not answered["ok"]:  # until the daemon has noticed the end of the other
            answered, connection = await answer(path)
            kept.append(connection)
        await control.close()
        for connection in kept:
            connection.close()

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_S))


def test_a_peer_that_sends_many_lines_at_once_keeps_no_other_waiting(tmp_path: Path) -> None:
    path, lines, desk = tmp_path / "control.sock", 5000, Desk()
    decided = 0

    def decide(request: DecisionRequest) -> Decision | DecisionError:
        nonlocal decided
        decided += 1
        return desk.decider.decide(request)

    async def test() -> None:
        control = ControlServer(path, replace(desk.desk, decide=decide))
        await control.start()
        reader, many = await asyncio.open_unix_connection(path)
        many.write(CHECK * lines)
        answered, other = await answer(path)
        assert answered["ok"], answered
        assert decided < lines / 10, decided
        for _ in range(lines):
            assert json.loads(await reader.readline())["ok"]
        await control.close()
        many.close()
        other.close()

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_S))
