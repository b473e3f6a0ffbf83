"""How a Kafka cluster is to be spoken to, out of Kafka's client properties.

`security.protocol` is PLAINTEXT (default), SSL, SASL_PLAINTEXT or SASL_SSL; what belongs to TLS and to SASL is listed
in `client_properties_tls`, `client_properties_sasl` and `client_properties_oauth`; `client.id` is the client-id of the
requests. Other properties are ignored, `bootstrap.servers` among them: the store's address says it; those that can't be
honoured and should be are refused by name.

Which of Kafka's client properties can't be honoured: silently left out they would change who is trusted, or asked.

Properties that only tune a Java client (`retries`, `send.buffer.bytes` and the like) are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.security.sasl import SaslMechanism

if TYPE_CHECKING:
    import ssl

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
"""Properties that are not supported, with the values that mean no more than leaving them out."""
_PREFIXES = {"ssl.": ("SSL", "SASL_SSL"), "sasl.": ("SASL_PLAINTEXT", "SASL_SSL")}


def refuse_unsupported(properties: Mapping[str, str], *, protocol: str) -> None:
    """Nothing, where every property that counts with this `security.protocol` can be honoured.

    Raises `UsageError` with the name of the first that can't.
    """
    for name, usual in _USUAL.items():
        value = properties.get(name, "").strip()
        protocols = next((found for prefix, found in _PREFIXES.items() if name.startswith(prefix)), (protocol,))
        if value and value not in usual and protocol in protocols:
            hint = f"it may be {' or '.join(usual)}" if usual else "leave it out, or use Kafka's own tools"
            raise UsageError(f"{name} is not supported", hint=hint)


_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAccess:
    """The client-id of our requests, TLS over connections (None: plaintext), and how to log in (None: not at all)."""

    client_id: str
    tls: "ssl.SSLContext | None" = None
    login: SaslMechanism | None = None


def kafka_access(properties: Mapping[str, str]) -> KafkaAccess:
    """The access that client properties ask for.

    Raises `UsageError` for a property that can't be meant or is not supported.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise UsageError(f"security.protocol: {protocol} is unknown", hint=f"it is one of {', '.join(_PROTOCOLS)}")
    refuse_unsupported(properties, protocol=protocol)
    login, tls = None, None
    if protocol.startswith("SASL_"):
        from kafka_quotas.stores.security.sasl import sasl_login  # noqa: PLC0415 - most clusters need none

        login = sasl_login(properties)
    if protocol.endswith("SSL"):
        from kafka_quotas.stores.security.tls import tls_context  # noqa: PLC0415 - loads ssl

        tls = tls_context(properties)
    return KafkaAccess(client_id=properties.get("client.id", "").strip() or "kafka-quotas", tls=tls, login=login)
