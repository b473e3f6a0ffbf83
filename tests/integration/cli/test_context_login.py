"""A context logs in at a real broker, and `revert` finds the way back in by itself."""

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.brokers.broker_properties import USERS
from tests.support.brokers.servers import Kafka
from tests.support.processes.run_cli import refused, run_cli

from kafka_quotas.cli.framework.store_choice import choose_store
from kafka_quotas.cli.options.stores import store_followed
from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores import open_store
from kafka_quotas.stores.address import parse_store_url

RATE = "producer_byte_rate"


@pytest.fixture
def secured(kafka4: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kafka:
    """A broker whose SASL listener is the context `secured`."""
    if not kafka4.sasl_bootstrap:
        pytest.skip("the external broker has no SASL listener that is known")
    for name in ("CONFIG", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    (tmp_path / "password").write_text(USERS["admin"] + "\n")
    code, _, err = run_cli(
        *("context", "set", "secured", "--bootstrap-server", kafka4.sasl_bootstrap, "--use"),
        *("--username", "admin", "--password-file", str(tmp_path / "password")),
        *("--property", "security.protocol=SASL_PLAINTEXT", "--property", "sasl.mechanism=SCRAM-SHA-256"),
    )
    assert code == 0, err
    return kafka4


def stored(name: str) -> list[object]:
    code, out, err = run_cli("describe", "--user", name, "--output", "json")
    assert code == 0, err
    return [entry["quotas"] for entry in json.loads(out)["entries"]]


def test_alter_and_revert_log_in_as_the_context_says(secured: Kafka, unique_name: str) -> None:
    code, out, err = run_cli("alter", "--user", unique_name, "--add-config", f"{RATE}=50000")
    line = f"user {unique_name} in kafka://{secured.sasl_bootstrap} (context secured): {RATE} not set -> 50 kB/s\n"
    assert (code, out, err) == (0, line, "")
    assert stored(unique_name) == [{RATE: 50000}]
    run_cli("context", "use", "--none")  # the store is in the journal, its login in the context of that store
    code, _, err = run_cli("revert", "last", "--yes")
    assert (code, f" of kafka://{secured.sasl_bootstrap}: kafka-quotas revert " in err) == (2, True)
    code, _, err = run_cli("revert", err.split()[-1], "--yes")
    assert (code, err) == (0, "")
    run_cli("context", "use", "secured")
    assert stored(unique_name) == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_told_without_telling_it(secured: Kafka, mechanism: str) -> None:
    command = f"{sys.executable} -c \"print('hunter2')\""
    mechanism_property = f"sasl.mechanism={mechanism}"
    run_cli("context", "set", "secured", "--password-command", command, "--property", mechanism_property)
    err = refused("describe", "--verbose", code=1)
    assert err.splitlines()[-2] == f"error: kafka://{secured.sasl_bootstrap} refused the credentials"
    assert "hunter2" not in err


def test_the_id_of_the_cluster_tells_whether_two_addresses_are_one_store(
    secured: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str], unique_name: str
) -> None:
    """A daemon follows the plaintext listener, and the context names the one with a login."""
    run_cli("alter", "--user", unique_name, "--add-config", f"{RATE}=50000")
    choice = choose_store(store=None, environment={})
    assert str(choice.address) == f"kafka://{secured.sasl_bootstrap}"
    assert store_followed(choice, f"kafka://{secured.bootstrap}") is choice
    assert capsys.readouterr().err == ""
    with pytest.raises(UsageError, match=r"the daemon takes its limits from local:/q\.db, not from kafka://"):
        store_followed(choice, "local:/q.db")
    unknown = "kafka://127.0.0.1:1"
    assert store_followed(choice, unknown) is choice
    assert f"whether that is the cluster of kafka://{secured.sasl_bootstrap} is not known" in capsys.readouterr().err
    run_cli("revert", "last", "--yes")


def test_a_zookeeper_store_has_the_id_of_its_cluster(kafka3: Kafka) -> None:
    addresses = [parse_store_url(f"kafka://{kafka3.bootstrap}"), parse_store_url(kafka3.zookeeper_url)]
    ids = []
    for address in addresses:
        with closing(open_store(address)) as store:
            ids.append(store.cluster_id())
    of_brokers, of_zookeeper = ids
    assert of_brokers is not None
    assert of_brokers == of_zookeeper
