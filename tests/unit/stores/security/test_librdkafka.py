"""Logins by Kafka's own names as librdkafka wants them."""

import time
from pathlib import Path

import pytest

from kafka_quotas.core.errors import StoreRefusedError, UsageError
from kafka_quotas.stores.security.librdkafka import librdkafka_properties
from kafka_quotas.stores.security.sasl import ENDPOINT

LOGIN = "sasl.jaas.config"
SASL = {"security.protocol": "SASL_PLAINTEXT"}
PASSWORD = 'a.LoginModule required username="alice" password="s3cret";'
KEYTAB = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="a@R";'


@pytest.mark.parametrize(
    "properties",
    [
        {"sasl.mechanism": "PLAIN", LOGIN: PASSWORD},  # no SASL: librdkafka says what it makes of it
        {**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "alice"},
        {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"},
        {**SASL, "sasl.kerberos.service.name": "kafka", "linger.ms": 5},
    ],
)
def test_properties_by_its_own_names_stay(properties: dict[str, object]) -> None:
    assert librdkafka_properties(properties) == properties


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_passwords(mechanism: str) -> None:
    found = librdkafka_properties({**SASL, "sasl.mechanism": mechanism, LOGIN: PASSWORD})
    assert found == {**SASL, "sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": "s3cret"}


def test_a_keytab() -> None:
    found = librdkafka_properties(
        {**SASL, "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka", LOGIN: KEYTAB}
    )
    named = {"service.name": "kafka", "keytab": "/k", "principal": "a@R"}
    own = {f"sasl.kerberos.{name}": value for name, value in named.items()}
    assert found == {**SASL, "sasl.mechanism": "GSSAPI", **own}


@pytest.mark.parametrize("extension", ["", "unsecuredLoginExtension_team=x"])
def test_tokens(extension: str) -> None:
    login = f"a.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=alice {extension};"
    found = librdkafka_properties(
        {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.scope": "s", LOGIN: login}
    )
    fetch = found.pop("oauth_cb")
    assert found == {**SASL, "sasl.mechanism": "OAUTHBEARER"}
    token, ends_s, *more = fetch("")
    assert token.count(".") == 2
    assert ends_s > time.time()
    assert more == (["", {"team": "x"}] if extension else [])


def test_a_token_that_can_not_be_renewed_is_used_until_the_broker_refuses_it(tmp_path: Path) -> None:
    file = tmp_path / "token.jwt"
    login = {**SASL, "sasl.mechanism": "OAUTHBEARER", LOGIN: "a.Module required;", ENDPOINT: file.as_uri()}
    with pytest.raises(StoreRefusedError, match="cannot read a token"):
        librdkafka_properties(login)
    file.write_text("first")
    fetch = librdkafka_properties(login)["oauth_cb"]
    file.write_text("second")
    assert [fetch("")[0] for _ in range(2)] == ["first", "second"]
    file.unlink()
    token, ends_s = fetch("")
    assert token == "second"
    assert time.time() < ends_s < time.time() + 60


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"sasl.mechanism": "PLAIN", LOGIN: "a.Module required username=alice;"}, "has no password"),
        ({"sasl.mechanism": "PLAIN", LOGIN: 'a.Module required password="s3'}, "a quote that is not closed"),
        ({"sasl.mechanism": "GSSAPI", LOGIN: KEYTAB}, "sasl.kerberos.service.name is missing"),
    ],
)
def test_a_wrong_login_is_refused_without_its_secret(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as error:
        librdkafka_properties({**SASL, **properties})
    assert "s3" not in f"{error.value.message} {error.value.hint}"
