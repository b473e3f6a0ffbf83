"""Logins by GSSAPI: a KDC of Debian's packages, and a real broker that takes nothing else."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support.brokers.java_process import java
from tests.support.brokers.kerberos_realm import (
    PACKAGES,
    KerberosRealm,
    kerberized_kafka,
    kerberos_realm,
    missing_programs,
)
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.errors import StoreRefusedError
from kafka_quotas.core.model.entity import EVERYTHING
from kafka_quotas.loadtest import TopicAdmin
from kafka_quotas.stores import open_store
from kafka_quotas.stores.address import StoreSettings
from kafka_quotas.wire import NewTopic

GSSAPI = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
}
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosRealm]:
    if missing_programs():
        pytest.skip(f"no KDC on this machine: apt-get install {PACKAGES.replace(',', '').replace(' and', '')}")
    if find_spec("gssapi") is None:
        pytest.skip("the extra gssapi is not installed: apt-get install libkrb5-dev, pip install gssapi")
    with kerberos_realm(tmp_path_factory.mktemp("realm")) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def broker(realm: KerberosRealm) -> Iterator[str]:
    if java() is None:
        pytest.skip("needs Java to start a real server, and there is no java on the path")
    with ExitStack() as stack:
        yield stack.enter_context(kerberized_kafka(realm))


def keytab_login(realm: KerberosRealm, user: str, *, key_of: str | None = None) -> dict[str, str]:
    keytab = realm.keytabs[key_of or user]
    return {**GSSAPI, "sasl.jaas.config": f'{MODULE} useKeyTab=true keyTab="{keytab}" principal="{user}@KAFKA.TEST";'}


def described(broker: str, properties: Mapping[str, str]) -> object:
    settings = StoreSettings(client_properties=properties, timeout_s=30)
    with closing(open_store(f"kafka://{broker}", settings=settings)) as store:
        return store.describe(EVERYTHING)


def test_a_keytab_logs_in_and_leaves_the_users_tickets_alone(realm: KerberosRealm, broker: str) -> None:
    for user in ("alice", "bob", "alice"):
        assert described(broker, keytab_login(realm, user)) == []
    assert not Path(os.environ["KRB5CCNAME"].removeprefix("FILE:")).exists()


def test_tickets_of_a_cache_log_in(
    realm: KerberosRealm, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "tickets"
    realm.run("kinit", "-c", str(cache), "-k", "-t", str(realm.keytabs["bob"]), "bob")
    assert (
        described(broker, {**GSSAPI, "sasl.jaas.config": f'{MODULE} useTicketCache=true ticketCache="{cache}";'}) == []
    )
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    assert described(broker, GSSAPI) == []


@pytest.mark.parametrize(
    ("user", "key_of", "changes", "problem"),
    [
        ("alice", "bob", {}, "no ticket for alice@KAFKA.TEST by the key in .*bob.keytab"),
        ("nobody", "bob", {}, "no ticket for nobody@KAFKA.TEST by the key in .*bob.keytab"),
        ("bob", "bob", {"sasl.kerberos.service.name": "kafak"}, "Server kafak/localhost@KAFKA.TEST not found"),
        ("bob", "bob", {"sasl.jaas.config": ""}, "No Kerberos credentials available"),
        ("bob", "bob", {"sasl.jaas.config": f"{MODULE} ticketCache=/no/such;"}, "No credentials cache found"),
    ],
)
def test_a_login_that_fails_says_why(
    realm: KerberosRealm, broker: str, user: str, key_of: str, changes: dict[str, str], problem: str
) -> None:
    with pytest.raises(StoreRefusedError, match=f"no login by Kerberos: {problem}"):
        described(broker, {**keytab_login(realm, user, key_of=key_of), **changes})


def test_a_broker_by_another_name_is_none_that_has_a_ticket(realm: KerberosRealm, broker: str) -> None:
    with pytest.raises(StoreRefusedError, match=r"Server kafka/127\.0\.0\.1@KAFKA.TEST not found"):
        described(broker.replace("localhost", "127.0.0.1"), keytab_login(realm, "bob"))


@pytest.mark.measuring
def test_raw_clients_of_a_load_test_log_in_and_librdkafkas_wheel_says_what_it_lacks(
    realm: KerberosRealm, broker: str, tmp_path: Path, unique_name: str
) -> None:
    properties = keytab_login(realm, "bob")
    with closing(TopicAdmin(broker, settings=StoreSettings(client_properties=properties, timeout_s=30))) as admin:
        admin.make([NewTopic(unique_name, 1, 1)])
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def produced(client: str) -> tuple[int, str, str]:
        return run_cli(
            *("load-test", "produce", "--bootstrap-server", broker, "--topic", unique_name, "--client", client),
            *("--rate", "100kB/s", "--quota", "1MB/s", "--warmup", "1s", "--duration", "3s", "--output", "json"),
            *("--no-read-back", "--config", str(file)),
            environment={"KAFKA_QUOTAS_COMMAND_CONFIG": str(file)},
        )

    code, out, err = produced("raw")
    assert code == 0, err
    records = json.loads(out)["entities"][0]["records"]
    # A load ends at its time, and a slow machine's last record is without an answer then.
    assert records["acked"] + records["unfinished"] == records["sent"] > 100
    assert records["unfinished"] < 10
    code, _, err = produced("librdkafka")
    assert code == 2
    assert "No provider for SASL mechanism GSSAPI" in err
    assert "hint: the wheel of confluent-kafka has no Kerberos: produce by --client raw --no-read-back" in err
