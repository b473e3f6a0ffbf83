"""An apply whose store goes away, or whose session expires, in the middle: nothing is lost and nothing hidden."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.support.brokers.probes import kafka_brokers
from tests.support.brokers.servers import Kafka
from tests.support.processes.run_cli import run_cli

from kafka_quotas.commands.quotas.alter import FIRST_CHUNK
from kafka_quotas.core.model.entity import EVERYTHING, Entity
from kafka_quotas.stores import open_store
from kafka_quotas.stores.kafka import cluster_client as kafka_connection
from kafka_quotas.stores.kafka.store import KafkaStore
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
