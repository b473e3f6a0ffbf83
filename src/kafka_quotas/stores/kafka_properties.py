"""Connection settings of kafka-python out of Kafka's client properties.

`security.protocol` is PLAINTEXT (default), SSL, SASL_PLAINTEXT or SASL_SSL; what belongs to TLS and to SASL is listed
in `client_properties_tls`, `client_properties_sasl` and `client_properties_oauth`; `client.id` is the client-id of the
requests. Other properties are ignored, `bootstrap.servers` among them: the store's address says it; those that can't be
honoured and should be are refused by name.
"""

from collections.abc import Mapping
from typing import Any, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.client_properties import refuse_unsupported
from kafka_quotas.stores.client_properties_sasl import sasl_arguments
from kafka_quotas.stores.client_properties_tls import tls_context

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def kafka_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of kafka-python's clients that client properties ask for.

    Raises `UsageError` for a property that can't be meant or is not supported.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise UsageError(f"security.protocol: {protocol} is unknown", hint=f"it is one of {', '.join(_PROTOCOLS)}")
    refuse_unsupported(properties, protocol=protocol)
    arguments: dict[str, Any] = {
        "security_protocol": protocol,
        "client_id": properties.get("client.id", "").strip() or "kafka-quotas",
    }
    if protocol.startswith("SASL_"):
        arguments |= sasl_arguments(properties)
    if protocol.endswith("SSL"):
        arguments["ssl_context"] = tls_context(properties)
    return arguments
