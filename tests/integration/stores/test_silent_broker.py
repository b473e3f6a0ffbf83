"""A cluster that lists a broker which can't be reached: it is waited for once, named, and gone on without."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.brokers.servers import Kafka, kafka_4
from tests.support.daemon.process import running_daemon
from tests.support.processes.frozen import frozen
from tests.support.processes.run_cli import run_cli

from kafka_quotas.stores.kafka.broker_client import BrokerClient

pytestmark = pytest.mark.integration
STAYS_LISTED = {"broker.session.timeout.ms": "3600000"}
SILENT = "broker 2 ("
ENTITIES = 1_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Kafka]:
    with kafka_4(brokers=2, quick_start=True, properties=STAYS_LISTED) as kafka:
        yield kafka


@pytest.fixture(scope="module", params=["frozen", "dead"])
def without_second(cluster: Kafka, request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """The cluster while its second broker takes connections and says nothing, or refuses them."""
    second = cluster.servers[1]
    if request.param == "dead":
        second.kill()
        yield cluster
        return
    with frozen(second.pid):
        yield cluster


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[OSError]:
    """Every attempt to ask a broker that came to nothing."""
    failed: list[OSError] = []
    real = BrokerClient.ask

    def ask(self: BrokerClient, *arguments: Any, **options: Any) -> object:
        try:
            return real(self, *arguments, **options)
        except OSError as error:
            failed.append(error)
            raise

    monkeypatch.setattr(BrokerClient, "ask", ask)
    return failed


def bounded(waits: list[OSError]) -> bool:
    """Whether a silent broker was waited for once.

    One that refuses is tried a second time at once.
    """
    silent = [error for error in waits if isinstance(error, TimeoutError)]
    return bool(waits) and len(silent) <= 1 and len(waits) <= 2


def at(kafka: Kafka) -> tuple[str, str]:
    return "--bootstrap-server", kafka.bootstrap


@pytest.mark.parametrize("key", ["producer_byte_rate=1000000", "controller_mutation_rate=5"])
def test_alter_is_done_and_names_who_was_not_read_back(
    without_second: Kafka, unique_name: str, waits: list[OSError], key: str
) -> None:
    code, out, err = run_cli("alter", *at(without_second), "--user", unique_name, "--add-config", key)
    assert code == 0, err
    assert out.startswith(
        f"user {unique_name} in kafka://{without_second.bootstrap}: {key.partition('=')[0]} not set -> "
    )
    (warning,) = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert "not read back" in warning
    assert SILENT in warning
    assert bounded(waits)


def test_effective_quotas_are_answered_from_what_is_known(without_second: Kafka, waits: list[OSError]) -> None:
    question = ("describe", "--effective", "--user", "a", "--client", "b", "--output", "json")
    code, out, err = run_cli(*question, *at(without_second))
    assert code == 0, err
    (warning,) = json.loads(out)["warnings"]
    assert SILENT in warning
    assert "client.quota.callback.class" in warning
    assert bounded(waits)


def test_doctor_finds_the_silent_broker_and_looks_at_the_rest(without_second: Kafka, waits: list[OSError]) -> None:
    code, out, err = run_cli("doctor", *at(without_second), "--output", "json")
    assert code == 0, err
    document = json.loads(out)
    (found,) = [each for each in document["findings"] if each["check"] == "broker-unanswered"]
    assert (found["about"], found["severity"]) == ("broker 2", "warning")
    assert SILENT in found["finding"]
    assert document["not_looked_at"] == []
    assert bounded(waits)


def test_applying_a_thousand_entities_waits_no_oftener_than_one(
    without_second: Kafka, unique_name: str, tmp_path: Path, waits: list[OSError]
) -> None:
    entries = [
        {"entity": {"user": f"{unique_name}-{number}"}, "quotas": {"producer_byte_rate": 1_000_000}}
        for number in range(ENTITIES)
    ]
    file = tmp_path / "quotas.json"
    file.write_text(json.dumps({"entries": entries}))
    code, out, err = run_cli("apply", str(file), *at(without_second), "--output", "json")
    assert code == 0, err
    assert len(json.loads(out)["changes"]) == ENTITIES
    assert [SILENT in line for line in err.splitlines() if line.startswith("warning: ")] == [True]
    assert bounded(waits)


def test_windows_are_read_from_the_brokers_that_answer(without_second: Kafka, waits: list[OSError]) -> None:
    code, out, err = run_cli("throttle", "rate", "--quota", "1MB/s", "--observed", "2MB/s", *at(without_second))
    assert code == 0, err
    assert out
    assert "windows are those of the other brokers" in err
    assert SILENT in err
    assert bounded(waits)


def test_a_daemon_has_the_windows_of_the_brokers_that_answer(without_second: Kafka, tmp_path: Path) -> None:
    with running_daemon(tmp_path, upstream=without_second.bootstrap, options=["--upstream-windows"]) as daemon:
        status = daemon.status()
        assert (status.window_num, status.window_size_seconds) == (3, 1)
        assert daemon.lines("windows are those of the other brokers", "broker 2")


def test_kafkas_own_timeouts_count(
    without_second: Kafka, unique_name: str, tmp_path: Path, waits: list[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed_s: list[float] = []
    real = BrokerClient.ask

    def ask(self: BrokerClient, *arguments: Any, **options: Any) -> object:
        now_s = time.monotonic()
        first_s = min(options["contact_deadline_s"], options["begin_deadline_s"] or options["deadline_s"])
        allowed_s.append(max(first_s - now_s, options["deadline_s"] - now_s - 0.6))
        return real(self, *arguments, **options)

    monkeypatch.setattr(BrokerClient, "ask", ask)
    properties = tmp_path / "client.properties"
    properties.write_text("request.timeout.ms=300\ndefault.api.timeout.ms=900\n")
    change = ("--user", unique_name, "--add-config", "producer_byte_rate=1000000")
    code, _, err = run_cli("alter", *at(without_second), *change, "--command-config", str(properties))
    assert code == 0, err
    assert SILENT in err
    assert max(allowed_s) <= 0.3
    assert bounded(waits)
