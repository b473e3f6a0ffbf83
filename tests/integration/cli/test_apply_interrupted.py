"""apply on real servers and as a process: nothing is lost or hidden if a store goes away, and drift is corrected."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.support.brokers.probes import kafka_brokers
from tests.support.brokers.servers import Kafka
from tests.support.processes.awaiting import await_true
from tests.support.processes.run_cli import run_cli

from kafka_quotas.commands.quotas.alter import FIRST_CHUNK
from kafka_quotas.core.model.entity import EVERYTHING, Entity
from kafka_quotas.stores import open_store
from kafka_quotas.stores.kafka import cluster_client as kafka_connection
from kafka_quotas.stores.kafka.store import KafkaStore
from kafka_quotas.stores.local import LocalStore
from kafka_quotas.stores.store import Alteration
from kafka_quotas.stores.zookeeper.session import ZooKeeperSession

COUNT = 3 * FIRST_CHUNK
Call = Callable[..., object]


@pytest.fixture
def quotas(tmp_path: Path) -> str:
    """A file of more users than an apply sends at once, with names that have to be told apart."""
    entries = [{"entity": {"user": f"u,={n}\n"}, "quotas": {"producer_byte_rate": 1000 + n}} for n in range(COUNT)]
    path = tmp_path / "quotas.json"
    path.write_text(json.dumps(entries), encoding="utf-8")
    return str(path)


def before_call(
    monkeypatch: pytest.MonkeyPatch, kind: type, method: str, number: int, act: Callable[[object], None]
) -> None:
    """Has `act` called once, with the object, before the call of that number of one of its methods."""
    original: Call = getattr(kind, method)
    calls = iter(range(1, 10**9))

    def counted(self: object, *arguments: object, **named: object) -> object:
        if next(calls) == number:
            act(self)
        return original(self, *arguments, **named)

    monkeypatch.setattr(kind, method, counted)


def run(tmp_path: Path, *argv: str) -> tuple[int, str, str]:
    return run_cli(*argv, environment={"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal.jsonl")})


def failed_users(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("failed: ")]


def test_a_broker_killed_in_the_middle_is_told_and_running_it_again_finishes_the_job(
    mortal_kafka4: Kafka, quotas: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"kafka://{mortal_kafka4.bootstrap}"
    (server,) = mortal_kafka4.servers
    with monkeypatch.context() as patched:
        patched.setattr(kafka_connection, "_NOTHING_LISTENS_S", 2.0)
        before_call(patched, KafkaStore, "alter", 2, lambda _: server.kill())
        code, _, err = run(tmp_path, "apply", quotas, "--store", url)
    assert code == 1
    assert len(failed_users(err)) == COUNT - FIRST_CHUNK, "every entity that was not done is listed"
    assert "can't be reached" in err

    server.start_again()
    server.wait_ready(lambda: kafka_brokers(mortal_kafka4.bootstrap) == 1)
    code, out, _ = run(tmp_path, "diff", quotas, "--store", url, "--output", "json")
    assert code == 0
    assert len(json.loads(out)["changes"]) == COUNT - FIRST_CHUNK, "what was told as done is done, and nothing else"
    assert run(tmp_path, "apply", quotas, "--store", url)[0] == 0
    assert run(tmp_path, "diff", quotas, "--store", url, "--exit-code")[0] == 0


def test_a_disk_that_fills_up_in_the_middle_loses_nothing(quotas: str, tmp_path: Path) -> None:
    """The first chunk is there before.

    The file may then grow by less than the rest needs.
    """
    url, environment = (
        f"local:{tmp_path / 'quotas.db'}",
        {**os.environ, "KAFKA_QUOTAS_JOURNAL": str(tmp_path / "j.jsonl")},
    )
    assert run(tmp_path, "apply", quotas, "--store", url)[0] == 0
    larger = [{"entity": {"client-id": f"c{n}"}, "quotas": {"consumer_byte_rate": n + 1}} for n in range(COUNT * 10)]
    path = tmp_path / "larger.json"
    path.write_text(json.dumps([*json.loads(Path(quotas).read_text()), *larger]), encoding="utf-8")
    limit = (tmp_path / "quotas.db").stat().st_size + 64 * 1024
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    program = f"import sys; {limited}; from kafka_quotas.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "apply", str(path), "--store", url]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 1
    assert failed_users(done.stderr)
    assert "Traceback" not in done.stderr
    assert run(tmp_path, "diff", quotas, "--store", url, "--exit-code")[0] == 0, "what was there is there"
    assert run(tmp_path, "apply", str(path), "--store", url)[0] == 0
    assert run(tmp_path, "diff", str(path), "--store", url, "--exit-code")[0] == 0


def test_a_hundred_thousand_entities(tmp_path: Path) -> None:
    url = f"local:{tmp_path / 'quotas.db'}"
    wanted = [
        Alteration(entity=Entity.of(user=f"u{n}"), changes={"request_percentage": n + 0.5}) for n in range(100_000)
    ]
    with closing(open_store(url)) as store:
        assert all(result.error is None for result in store.alter(wanted))
        assert len(store.describe(EVERYTHING)) == len(wanted)
    code, out, _ = run(tmp_path, "describe", "--user", "u77777", "--store", url, "--output", "json")
    assert (code, "77777.5" in out) == (0, True)


@pytest.mark.parametrize("number", [1, 150])
def test_a_zookeeper_session_that_expires_in_the_middle_costs_nothing(
    zookeeper_chroot: str, quotas: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    ended: list[int] = []

    def expire(session: object) -> None:
        """Ends the session at the server, as it does by itself with one it has not heard of for too long."""
        client = session._connected()  # type: ignore[attr-defined]
        ended.append(client.client_id[0])
        other = KazooClient(zookeeper_chroot.removeprefix("zk://").partition("/")[0], client_id=client.client_id)
        other.start()
        other.stop()
        other.close()

    with monkeypatch.context() as patched:
        before_call(patched, ZooKeeperSession, "commit", number, expire)
        code, _, err = run(tmp_path, "apply", quotas, "--store", zookeeper_chroot)
    assert ended
    assert (code, failed_users(err)) == (0, [])
    assert run(tmp_path, "diff", quotas, "--store", zookeeper_chroot, "--exit-code")[0] == 0


DEADLINE_S = 240.0
ALICE = Entity.of(user="alice")


def test_drift_is_corrected_and_told_until_sigterm(tmp_path: Path) -> None:
    quotas = tmp_path / "q.yaml"
    quotas.write_text("- {entity: {user: alice}, quotas: {producer_byte_rate: 7}}\n")
    log = tmp_path / "log"
    command = [
        sys.executable, "-m", "kafka_quotas", "apply", str(quotas), "--store", f"local:{tmp_path / 'q.db'}",
        "--watch", "1", "--metrics", "127.0.0.1:0",
    ]  # fmt: skip
    environment = os.environ | {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal.jsonl")}
    store = LocalStore(tmp_path / "q.db")
    with log.open("w") as stderr, subprocess.Popen(command, stderr=stderr, env=environment) as process:
        try:
            await_true(lambda: "round 1: changed 1 quota" in log.read_text(), "the first round is over")
            store.alter([Alteration(entity=ALICE, changes={"producer_byte_rate": 99.0})])
            await_true(lambda: store.describe(EVERYTHING)[0].quotas["producer_byte_rate"] == 7.0, "drift is corrected")
            await_true(
                lambda: "changed 1 quota" in log.read_text().partition("round 1: changed 1 quota")[2],
                "drift is logged",
            )
            served = re.search(r"metrics at (http://127\.0\.0\.1:\d+/metrics)", log.read_text())
            assert served is not None
            with urllib.request.urlopen(served[1], timeout=240) as answer:
                assert b"kafka_quotas_drift_corrected 2.0\n" in answer.read()
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
            store.close()


@pytest.fixture(params=["kafka4", "zookeeper"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a real store."""
    if request.param == "zookeeper":
        return str(request.getfixturevalue("zookeeper_chroot"))
    return f"kafka://{request.getfixturevalue('kafka4').bootstrap}"


def test_a_refused_entity_is_listed_and_a_plan_is_refused_once_the_store_has_changed(
    url: str, unique_name: str, tmp_path: Path
) -> None:
    def run(*argv: str) -> tuple[int, str, str]:
        journal = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal.jsonl")}
        return run_cli(*argv, "--store", url, environment=journal)

    def file(text: str) -> str:
        path = tmp_path / "q.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    user = f"- {{entity: {{user: {unique_name}}}, quotas: {{producer_byte_rate: %s}}}}\n"
    nobody = f"- {{entity: {{ip: {unique_name}.invalid}}, quotas: {{connection_creation_rate: 5}}}}\n"
    code, _, err = run("apply", file(user % 1000 + nobody))
    assert code == 1
    failures = [line for line in err.splitlines() if line.startswith("failed: ")]
    assert len(failures) == 1
    assert f"{unique_name}.invalid" in failures[0]
    assert run("diff", file(user % 1000), "--exit-code")[0] == 0

    plan = str(tmp_path / "plan.json")
    code, out, _ = run("diff", file(user % 2000), "--out", plan, "--output", "json")
    assert code == 0
    assert [(change["old"], change["new"]) for change in json.loads(out)["changes"]] == [(1000, 2000)]
    assert run("alter", "--user", unique_name, "--add-config", "producer_byte_rate=3000")[0] == 0
    code, _, err = run("apply", plan)
    assert code == 1
    assert err.startswith("error: the store has changed since the plan was made: producer_byte_rate of user")
    assert run("apply", file(user % "null"), "--prune-limit", "100")[0] == 0
