"""How to connect to a Kafka cluster, from Kafka's client properties.

`security.protocol` is PLAINTEXT (default), SSL, SASL_PLAINTEXT or SASL_SSL. `security.tls`, `security.sasl` and
`security.oauthbearer` list the properties of TLS and SASL. `client.id` is the client-id of the requests.

A property that can't be honoured is refused by name where leaving it out would change who is trusted or asked. Other
properties are ignored: `bootstrap.servers`, as the store's address has the servers, and those that only tune a Java
client (`retries`, `send.buffer.bytes` and the like).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_quotas.core.errors import UsageError

if TYPE_CHECKING:
    import ssl

    from kafka_quotas.stores.security.sasl import SaslMechanism

_USUAL: Mapping[str, tuple[str, ...]] = {
    "config.providers": (),
    "security.providers": (),
    "ssl.engine.factory.class": (),
    "ssl.provider": (),
    "ssl.cipher.suites": (),
    "ssl.keymanager.algorithm": ("SunX509", "PKIX"),
    "ssl.trustmanager.algorithm": ("PKIX", "SunX509"),
    "sasl.login.class": (),
    "sasl.client.callback.handler.class": (),
}
"""Properties that are not supported, with the values that are equivalent to leaving them out."""
_PREFIXES = {"ssl.": ("SSL", "SASL_SSL"), "sasl.": ("SASL_PLAINTEXT", "SASL_SSL")}


_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAccess:
    """How to connect to the brokers of a cluster."""

    client_id: str
    tls: "ssl.SSLContext | None" = None
    """TLS over connections, None for plaintext."""
    login: "SaslMechanism | None" = None


def kafka_access(properties: Mapping[str, str]) -> KafkaAccess:
    """Return the access that client properties ask for."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise UsageError(f"security.protocol: {protocol} is unknown", hint=f"it is one of {', '.join(_PROTOCOLS)}")
    _refuse_unsupported(properties, protocol=protocol)
    login, tls = None, None
    if protocol.startswith("SASL_"):
        from kafka_quotas.stores.security.sasl import sasl_login  # noqa: PLC0415 - most clusters need none

        login = sasl_login(properties)
    if protocol.endswith("SSL"):
        from kafka_quotas.stores.security.tls import tls_context  # noqa: PLC0415 - loads ssl

        tls = tls_context(properties)
    return KafkaAccess(client_id=properties.get("client.id", "").strip() or "kafka-quotas", tls=tls, login=login)


def _refuse_unsupported(properties: Mapping[str, str], *, protocol: str) -> None:
    for name, usual in _USUAL.items():
        value = properties.get(name, "").strip()
        protocols = next((found for prefix, found in _PREFIXES.items() if name.startswith(prefix)), (protocol,))
        if value and value not in usual and protocol in protocols:
            hint = f"it may be {' or '.join(usual)}" if usual else "leave it out, or use Kafka's own tools"
            raise UsageError(f"{name} is not supported", hint=hint)
