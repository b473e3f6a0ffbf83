"""ZooKeeper connection settings out of client properties.

| property | meaning |
|---|---|
| `zookeeper.auth` | `SCHEME:CREDENTIAL` as for ZooKeeper's own `addauth`, for instance `digest:alice:secret` |
| `zookeeper.sasl.jaas.config` | a JAAS login with `DigestLoginModule`: SASL by DIGEST-MD5 |
| `zookeeper.ssl.client.enable` | `true`: TLS |
| `zookeeper.ssl.truststore.location` | the authorities to trust instead of the system's: PEM, PKCS12 or JKS |
| `zookeeper.ssl.keystore.location` | the client's certificate and key, in one of these forms |
| `zookeeper.ssl.truststore.password`, `zookeeper.ssl.keystore.password` | the passwords of these stores |
| `zookeeper.ssl.enabled.protocols`, `zookeeper.ssl.protocol` | TLSv1.2, TLSv1.3 |
| `zookeeper.ssl.endpoint.identification.algorithm` | `https` (default) checks the host name; empty does not |

The `ssl` names are those of Kafka's `--zk-tls-config-file`. Other properties are ignored.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.extras import require_extra
from kafka_quotas.stores.security.jaas import parse_jaas

if TYPE_CHECKING:
    import ssl

AUTH: Final = "zookeeper.auth"
SASL_LOGIN: Final = "zookeeper.sasl.jaas.config"
_ZOOKEEPER: Final = "zookeeper."
_SSL: Final = "zookeeper.ssl."
_NOT_SUPPORTED: Final = ("cipher.suites", "crl.enable", "ocsp.enable")


def kazoo_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of kazoo's client that client properties ask for."""
    arguments: dict[str, Any] = {}
    if properties.get(AUTH):
        arguments["auth_data"] = [_credential(properties[AUTH])]
    if properties.get(SASL_LOGIN):
        arguments["sasl_options"] = _sasl_options(properties[SASL_LOGIN])
    return arguments


def zookeeper_tls(properties: Mapping[str, str]) -> "ssl.SSLContext | None":
    """Return the TLS context that client properties ask for, which verifies servers, None without TLS."""
    if properties.get(f"{_SSL}client.enable", "").strip().lower() != "true":
        return None
    for name in _NOT_SUPPORTED:
        if properties.get(f"{_SSL}{name}", "").strip().lower() not in ("", "false"):
            raise UsageError(f"{_SSL}{name} is not supported", hint="leave it out")
    from kafka_quotas.stores.security.tls import tls_context  # noqa: PLC0415 - loads ssl

    as_of_kafka = {name.removeprefix(_ZOOKEEPER): value for name, value in properties.items() if name.startswith(_SSL)}
    try:
        return tls_context(as_of_kafka)
    except UsageError as error:
        raise UsageError(_named(error.message), hint=error.hint and _named(error.hint)) from error


def _named(text: str) -> str:
    """Return a text about Kafka's properties with the ZooKeeper names, which differ in their prefix alone."""
    return re.sub(r"(?<![.\w])ssl\.", _SSL, text)


def _credential(text: str) -> tuple[str, str]:
    scheme, _, credential = text.strip().partition(":")
    if not scheme or not credential or (scheme == "digest" and ":" not in credential):
        raise UsageError(f"{AUTH} is not SCHEME:CREDENTIAL", hint="for example digest:alice:secret")
    return scheme, credential


def _sasl_options(text: str) -> dict[str, str]:
    login = parse_jaas(text, property_name=SASL_LOGIN)
    if not login.module.endswith("DigestLoginModule"):
        raise UsageError(
            f"{SASL_LOGIN}: {login.module} is not supported",
            hint="use org.apache.zookeeper.server.auth.DigestLoginModule",
        )
    require_extra("sasl", "puresasl", needed_by=f"{SASL_LOGIN} needs")
    return {
        "mechanism": "DIGEST-MD5",
        "username": login.option("username", property_name=SASL_LOGIN),
        "password": login.option("password", property_name=SASL_LOGIN),
    }
