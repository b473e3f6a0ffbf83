"""Connection settings of kafka-python out of Kafka's client properties.

| property | meaning |
|---|---|
| `security.protocol` | PLAINTEXT (default), SSL, SASL_PLAINTEXT or SASL_SSL |
| `sasl.mechanism` | PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 |
| `sasl.jaas.config` | the login with `username` and `password` |
| `ssl.truststore.location`, `ssl.truststore.certificates` | authorities to trust instead of the system's, PEM |
| `ssl.keystore.location`, or `ssl.keystore.key` with `ssl.keystore.certificate.chain` | the client's own, PEM |
| `ssl.key.password` | password of that key |
| `ssl.endpoint.identification.algorithm` | `https` (default) checks the host name; empty does not |
| `client.id` | the client-id of the requests |

Other properties are ignored, `bootstrap.servers` among them: the store's address says it.
"""

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.jaas import parse_jaas
from kafka_quotas.stores.pem import pem_file

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN: Final = "sasl.jaas.config"


def kafka_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of kafka-python's clients that client properties ask for.

    Raises `UsageError` for a property that can't be meant or is not supported, and for a key store that is not PEM.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise UsageError(f"security.protocol: {protocol} is unknown", hint=f"it is one of {', '.join(_PROTOCOLS)}")
    arguments: dict[str, Any] = {
        "security_protocol": protocol,
        "client_id": properties.get("client.id", "").strip() or "kafka-quotas",
    }
    if protocol.startswith("SASL_"):
        arguments |= _sasl_arguments(properties)
    if protocol.endswith("SSL"):
        arguments["ssl_context"] = _tls_context(properties)
    return arguments


def _sasl_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """The mechanism, user name and password."""
    mechanism = properties.get("sasl.mechanism", "").strip()
    if mechanism not in _MECHANISMS:
        problem = f"sasl.mechanism {mechanism} is not supported" if mechanism else "sasl.mechanism is missing"
        raise UsageError(problem, hint=f"it is one of {', '.join(_MECHANISMS)}")
    if not properties.get(_LOGIN):
        raise UsageError(f"{_LOGIN} is missing", hint="it carries the user name and the password")
    login = parse_jaas(properties[_LOGIN], property_name=_LOGIN)
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": login.option("username", property_name=_LOGIN),
        "sasl_plain_password": login.option("password", property_name=_LOGIN),
    }


def _tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context; the broker's certificate is always verified."""
    context = ssl.create_default_context(cadata=_trusted(properties))
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https")
    context.check_hostname = algorithm.strip().lower() == "https"
    password = properties.get("ssl.key.password") or properties.get("ssl.keystore.password") or None
    inline = properties.get("ssl.keystore.key"), properties.get("ssl.keystore.certificate.chain")
    try:
        if properties.get("ssl.keystore.location"):
            name = "ssl.keystore.location"
            context.load_cert_chain(pem_file(properties[name], property_name=name), password=password or "")
        elif all(inline):
            # Python reads keys from files only; this one is gone as soon as it was read, and nobody else may read it.
            with tempfile.NamedTemporaryFile("w", suffix=".pem", encoding="ascii") as file:
                file.write("\n".join(text for text in inline if text))
                file.flush()
                context.load_cert_chain(Path(file.name), password=password or "")
    except (ssl.SSLError, UnicodeEncodeError) as error:
        raise UsageError(
            "the client's key or certificate can't be used", hint="check ssl.keystore.* and ssl.key.password"
        ) from error
    return context


def _trusted(properties: Mapping[str, str]) -> str | None:
    """The trusted certificates in PEM form, None for those of the system."""
    name = "ssl.truststore.location"
    if properties.get(name):
        return pem_file(properties[name], property_name=name).read_text("ascii", "replace")
    return properties.get("ssl.truststore.certificates") or None
