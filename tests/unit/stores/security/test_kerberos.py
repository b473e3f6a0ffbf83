"""Who logs in by Kerberos, from Kafka's properties and from librdkafka's."""

import sys

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.kafka.broker_client import kafka_access
from kafka_quotas.stores.security.kerberos import SERVICE_NAME, KerberosIdentity, kerberos_identity
from kafka_quotas.stores.security.librdkafka import refuse_without_kerberos

SERVICE = {SERVICE_NAME: "kafka"}
KEYTAB = {"useKeyTab": "true", "keyTab": "/k", "principal": "a@R"}


@pytest.mark.parametrize(
    ("properties", "options", "identity"),
    [
        (SERVICE, {}, KerberosIdentity(service="kafka")),
        ({}, {"serviceName": "kafka"}, KerberosIdentity(service="kafka")),
        (SERVICE, KEYTAB, KerberosIdentity(service="kafka", principal="a@R", keytab="/k")),
        (SERVICE, {**KEYTAB, "useKeyTab": "false"}, KerberosIdentity(service="kafka", principal="a@R")),
        (SERVICE, {"useTicketCache": "true", "ticketCache": "/c"}, KerberosIdentity(service="kafka", cache="/c")),
        (
            {**SERVICE, "sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "a@R"},
            {},
            KerberosIdentity(service="kafka", principal="a@R", keytab="/k"),
        ),
    ],
)
def test_names_who_logs_in(properties: dict[str, str], options: dict[str, str], identity: KerberosIdentity) -> None:
    assert kerberos_identity(properties, options) == identity


@pytest.mark.parametrize(
    ("properties", "options", "problem"),
    [
        ({}, {}, "sasl.kerberos.service.name is missing"),
        (SERVICE, {"serviceName": "other"}, "name two services"),
        (SERVICE, {"useKeyTab": "true", "principal": "a@R"}, "sasl.jaas.config has no keyTab"),
        (SERVICE, {"useKeyTab": "true", "keyTab": "/k"}, "sasl.jaas.config has no principal"),
        ({**SERVICE, "sasl.kerberos.keytab": "/k"}, {}, "sasl.jaas.config has no principal"),
    ],
)
def test_refuses_what_is_missing_or_contradicts(
    properties: dict[str, str], options: dict[str, str], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        kerberos_identity(properties, options)


def test_without_the_library_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(UsageError, match="GSSAPI needs the library gssapi, not installed here") as error:
        kafka_access({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", **SERVICE})
    assert "libkrb5-dev" in (error.value.hint or "")


def test_a_daemon_does_not_start_with_a_login_that_librdkafkas_wheel_lacks() -> None:
    refuse_without_kerberos({"sasl.mechanism": "SCRAM-SHA-256"})
    with pytest.raises(UsageError, match="this librdkafka is built without it"):
        refuse_without_kerberos({"sasl.mechanisms": "GSSAPI"})
