"""How raw clients reach a cluster: address, TLS and login, from the librdkafka properties of a plan.

Contract: a property means the same to every client of a run. Raw clients ignore a property that only tunes
librdkafka, but for `request.timeout.ms`, and refuse by name a security setting that they can't honour.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_text
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.stores.kafka.properties import KafkaAccess, kafka_access
from kafka_quotas.stores.security.sasl import SaslMechanism, plain_login, scram_login

_PLAIN: Final = "PLAIN"
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_PEM_FILES: Final = {
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.keystore.location": "ssl.keystore.location",
    "ssl.keystore.password": "ssl.keystore.password",
    "ssl.key.password": "ssl.key.password",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
}
"""Kafka's names by librdkafka's, where the value means the same."""
_UNCHECKED_HOST: Final = "none"


def client_access(plan: LoadPlan, entity: ClientLoad) -> KafkaAccess:
    """Return TLS and login for a client of the plan.

    Raises:
        UsageError: If raw clients can't honour one of the security settings.
    """
    properties = plan.properties_of(entity)
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if properties.get("enable.ssl.certificate.verification", "true").strip().lower() == "false":
        raise UsageError(
            "raw clients always verify the broker's certificate", hint="name its authority with -X ssl.ca.location=FILE"
        )
    names = {ours: properties[theirs] for theirs, ours in _PEM_FILES.items() if properties.get(theirs)}
    names |= _own_certificate(properties)
    if properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower() == _UNCHECKED_HOST:
        names["ssl.endpoint.identification.algorithm"] = ""
    is_login = protocol.startswith("SASL_")
    access = kafka_access({**names, "security.protocol": protocol.removeprefix("SASL_") if is_login else protocol})
    return replace(access, login=_login(properties)) if is_login else access


def _own_certificate(properties: Mapping[str, str]) -> dict[str, str]:
    """Return key and certificate from the two PEM files that librdkafka takes."""
    files = {"ssl.key.location": "ssl.keystore.key", "ssl.certificate.location": "ssl.keystore.certificate.chain"}
    found = {}
    for theirs, ours in files.items():
        path = properties.get(theirs)
        if path:
            try:
                found[ours] = read_text(Path(path), "ascii")
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{theirs}: cannot read {path}") from error
    return found


def _login(properties: Mapping[str, str]) -> SaslMechanism:
    mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "").strip().upper()
    user, password = properties.get("sasl.username"), properties.get("sasl.password")
    if mechanism != _PLAIN and mechanism not in _SCRAM:
        raise UsageError(
            f"raw clients don't log in by sasl.mechanism {mechanism or '(missing)'}",
            hint=f"one of {', '.join((_PLAIN, *_SCRAM))}, or --client librdkafka",
        )
    if user is None or password is None:
        raise UsageError("a login needs a user and a password", hint="-X sasl.username=.. -X sasl.password=..")
    return plain_login(user, password) if mechanism == _PLAIN else scram_login(mechanism, user, password)
