"""The TLS side of a listener, in the names of Kafka's broker properties, as a context of Python's `ssl`.

| property | meaning |
|---|---|
| `ssl.keystore.*`, `ssl.key.password` | the listener's own key and chain, as in `client_properties_tls`; needed |
| `ssl.truststore.*` | authorities whose certificates clients may show |
| `ssl.client.auth` | `none` (default), `requested`, `required`: whether clients are asked for a certificate |
| `ssl.enabled.protocols`, `ssl.protocol` | TLSv1.2, TLSv1.3 |
"""

import ssl
from collections.abc import Mapping

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.client_properties_tls import limit_versions, load_key, own_key, trusted_certificates

CLIENT_AUTH = "ssl.client.auth"
_VERIFIED = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
STORE_LOCATIONS = ("ssl.keystore.location", "ssl.truststore.location")
"""The properties that name files."""


def server_tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context of a listener.

    Raises `UsageError` for a property that can't be meant, for a store that can't be used, and where there is no key.
    """
    own = own_key(properties)
    if own is None:
        raise UsageError("a listener with TLS needs a key", hint="ssl.keystore.type=PEM and ssl.keystore.location")
    asked = properties.get(CLIENT_AUTH, "none").strip().lower()
    if asked not in _VERIFIED:
        raise UsageError(f"{CLIENT_AUTH}: {asked} is not supported", hint="none, requested or required")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    limit_versions(context, properties)
    load_key(context, own)
    if _VERIFIED[asked] is not ssl.CERT_NONE:
        trusted = trusted_certificates(properties)
        if trusted is None:
            raise UsageError(f"{CLIENT_AUTH}={asked} needs authorities to trust", hint="ssl.truststore.location")
        context.load_verify_locations(cadata=trusted)
        context.verify_mode = _VERIFIED[asked]
    return context
