"""Clients of a load test that log in by Kafka's own properties, of which librdkafka knows none."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.brokers.servers import Kafka
from tests.support.processes.run_cli import run_cli

from kafka_quotas.loadtest import TopicAdmin
from kafka_quotas.stores.address import StoreSettings
from kafka_quotas.wire import NewTopic

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.mark.parametrize("client", ["raw", "librdkafka"])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_login_entry_is_taken_by_either_kind_of_client(
    kafka4: Kafka, tmp_path: Path, unique_name: str, client: str, mechanism: str
) -> None:
    with closing(TopicAdmin(kafka4.bootstrap, settings=StoreSettings())) as admin:
        admin.make([NewTopic(unique_name, 1, 1)])
    properties = kafka4.client_properties("admin", mechanism=mechanism)
    if mechanism == "OAUTHBEARER":
        properties["sasl.jaas.config"] = f"{MODULE} unsecuredLoginStringClaim_sub=admin;"
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    _, out, err = run_cli(
        *("load-test", "produce", "--bootstrap-server", kafka4.sasl_bootstrap, "--topic", unique_name),
        *("--client", client, "--rate", "100kB/s", "--quota", "1MB/s", "--warmup", "1s", "--duration", "2s"),
        *("--config", str(file), "--output", "json"),
        environment={"KAFKA_QUOTAS_COMMAND_CONFIG": str(file)},
    )
    # Not the verdict on its rate, which two seconds do not prove beside other tests.
    (entity,) = json.loads(out)["entities"]
    assert entity["records"]["acked"] > 0, err
    assert (entity["records"]["failed"], entity["delivery"]["state"]) == ({}, "met"), err


def test_a_token_that_is_not_there_ends_the_run_before_it_begins(kafka4: Kafka, tmp_path: Path) -> None:
    token = tmp_path / "token.jwt"
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE};",
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
    }
    options = [f"-X{name}={value}" for name, value in properties.items()]
    code, _, err = run_cli(
        *("load-test", "produce", "--bootstrap-server", kafka4.sasl_bootstrap, "--topic", "t", *options)
    )
    assert code == 1
    assert err.splitlines()[-1].startswith("error: sasl.oauthbearer.token.endpoint.url: cannot read a token from")
