"""An apply whose store goes away, or whose session expires, in the middle: nothing is lost and nothing hidden."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.support.java_process import java
from tests.support.probes import kafka_brokers
from tests.support.run_cli import run_cli
from tests.support.servers import Kafka, kafka_4

from kafka_quotas.commands.apply import FIRST_CHUNK
from kafka_quotas.stores import kafka_connection
from kafka_quotas.stores.kafka import KafkaStore
from kafka_quotas.stores.zookeeper_session import ZooKeeperSession

COUNT = 3 * FIRST_CHUNK
Call = Callable[..., object]


@pytest.fixture
def quotas(tmp_path: Path) -> str:
    """A file of more users than an apply sends at once, with names that have to be told apart."""
    entries = [{"entity": {"user": f"u,={n}\n"}, "quotas": {"producer_byte_rate": 1000 + n}} for n in range(COUNT)]
    path = tmp_path / "quotas.json"
    path.write_text(json.dumps(entries), encoding="utf-8")
    return str(path)


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    """A broker for one test, which it may kill."""
    if java() is None:
        pytest.skip("needs Java to start a real server, and there is no java on the path")
    with kafka_4() as broker:
        yield broker


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
    kafka: Kafka, quotas: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"kafka://{kafka.bootstrap}"
    (server,) = kafka.servers
    with monkeypatch.context() as patched:
        patched.setattr(kafka_connection, "_NOTHING_LISTENS_S", 2.0)
        before_call(patched, KafkaStore, "alter", 2, lambda _: server.kill())
        code, _, err = run(tmp_path, "apply", quotas, "--store", url)
    assert code == 1
    assert len(failed_users(err)) == COUNT - FIRST_CHUNK, "every entity that was not done is listed"
    assert "can't be reached" in err

    server.start_again()
    server.wait_ready(lambda: kafka_brokers(kafka.bootstrap) == 1)
    code, out, _ = run(tmp_path, "diff", quotas, "--store", url, "--output", "json")
    assert code == 0
    assert len(json.loads(out)["changes"]) == COUNT - FIRST_CHUNK, "what was told as done is done, and nothing else"
    assert run(tmp_path, "apply", quotas, "--store", url)[0] == 0
    assert run(tmp_path, "diff", quotas, "--store", url, "--exit-code")[0] == 0


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
