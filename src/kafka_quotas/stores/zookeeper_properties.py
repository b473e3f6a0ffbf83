"""ZooKeeper connection settings out of client properties.

| property | meaning |
|---|---|
| `zookeeper.auth` | `SCHEME:CREDENTIAL` as for ZooKeeper's own `addauth`, for instance `digest:alice:secret` |
| `zookeeper.sasl.jaas.config` | a JAAS login with `DigestLoginModule`: SASL by DIGEST-MD5 |
| `zookeeper.ssl.client.enable` | `true`: TLS |
| `zookeeper.ssl.truststore.location` | PEM file with the authorities to trust, beside the system's |
| `zookeeper.ssl.keystore.location` | PEM file with the client's certificate and key |
| `zookeeper.ssl.keystore.password` | password of that key |
| `zookeeper.ssl.endpoint.identification.algorithm` | `https` (default) checks the host name; empty does not |

The `ssl` names are those of Kafka's `--zk-tls-config-file`. Other properties are ignored.
"""

import ssl
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.jaas import parse_jaas
from kafka_quotas.stores.pem import pem_file

AUTH: Final = "zookeeper.auth"
SASL_LOGIN: Final = "zookeeper.sasl.jaas.config"
_SSL: Final = "zookeeper.ssl."


def kazoo_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of kazoo's client that client properties ask for.

    Raises `UsageError` for a property that can't be meant, and for a key store that is not PEM.
    """
    arguments: dict[str, Any] = {}
    if properties.get(AUTH):
        arguments["auth_data"] = [_credential(properties[AUTH])]
    if properties.get(SASL_LOGIN):
        arguments["sasl_options"] = _sasl_options(properties[SASL_LOGIN])
    if properties.get(f"{_SSL}client.enable", "").strip().lower() == "true":
        arguments |= _tls_arguments(properties)
    return arguments


def tls_context(arguments: Mapping[str, Any]) -> ssl.SSLContext | None:
    """The TLS context that kazoo makes of these arguments, None without TLS."""
    if not arguments.get("use_ssl"):
        return None
    context = ssl.create_default_context()
    context.check_hostname = arguments["check_hostname"]
    if "ca" in arguments:
        context.load_verify_locations(arguments["ca"])
    if "certfile" in arguments:
        try:
            context.load_cert_chain(arguments["certfile"], password=arguments["keyfile_password"] or "")
        except ssl.SSLError as error:
            raise UsageError(
                f"{_SSL}keystore.location: the key or certificate can't be used",
                hint=f"check the file and {_SSL}keystore.password",
            ) from error
    return context


def _credential(text: str) -> tuple[str, str]:
    """The scheme and the credential of an `addauth`."""
    scheme, _, credential = text.strip().partition(":")
    if not scheme or not credential or (scheme == "digest" and ":" not in credential):
        raise UsageError(f"{AUTH} is no SCHEME:CREDENTIAL", hint="for example digest:alice:secret")
    return scheme, credential


def _sasl_options(text: str) -> dict[str, str]:
    """The SASL options of a JAAS login."""
    login = parse_jaas(text, property_name=SASL_LOGIN)
    if not login.module.endswith("DigestLoginModule"):
        raise UsageError(
            f"{SASL_LOGIN}: {login.module} is not supported",
            hint="use org.apache.zookeeper.server.auth.DigestLoginModule",
        )
    if find_spec("puresasl") is None:
        raise UsageError(f"{SASL_LOGIN} needs pure-sasl", hint="install it: pip install 'kafka-quotas[sasl]'")
    return {
        "mechanism": "DIGEST-MD5",
        "username": login.option("username", property_name=SASL_LOGIN),
        "password": login.option("password", property_name=SASL_LOGIN),
    }


def _tls_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """The TLS arguments; the server's certificate is always verified."""
    algorithm = properties.get(f"{_SSL}endpoint.identification.algorithm", "https")
    arguments: dict[str, Any] = {
        "use_ssl": True,
        "verify_certs": True,
        "check_hostname": algorithm.strip().lower() == "https",
    }
    if properties.get(f"{_SSL}truststore.location"):
        name = f"{_SSL}truststore.location"
        arguments["ca"] = str(pem_file(properties[name], property_name=name))
    if properties.get(f"{_SSL}keystore.location"):
        name = f"{_SSL}keystore.location"
        key_store = str(pem_file(properties[name], property_name=name))
        arguments |= {"certfile": key_store, "keyfile": key_store}
        arguments["keyfile_password"] = properties.get(f"{_SSL}keystore.password") or None
    return arguments
