"""TLS contexts of Python's `ssl` from Kafka's client properties, and from broker properties for listeners.

| client property | meaning |
|---|---|
| `ssl.truststore.location`, or `ssl.truststore.certificates` (PEM) | authorities to trust instead of the system's |
| `ssl.keystore.location`, or `ssl.keystore.key` with `ssl.keystore.certificate.chain` (PEM) | the client's own |
| `ssl.truststore.password`, `ssl.keystore.password`, `ssl.key.password` | the passwords of these stores |
| `ssl.endpoint.identification.algorithm` | `https` (default) checks the host name; empty does not |
| `ssl.enabled.protocols`, `ssl.protocol` | TLSv1.2, TLSv1.3 |

Contract: the broker's certificate is always verified. A key is never written to a disk.

| property of a listener | meaning |
|---|---|
| `ssl.keystore.*`, `ssl.key.password` | the listener's own key and chain, as for a client; needed |
| `ssl.truststore.*` | authorities whose certificates clients may show |
| `ssl.client.auth` | `none` (default), `requested`, `required`: whether clients are asked for a certificate |
| `ssl.enabled.protocols`, `ssl.protocol` | TLSv1.2, TLSv1.3 |
"""

import os
import ssl
from collections.abc import Mapping

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.security.key_store import KeyStore, read_key_store

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NEWEST_ONLY = ("", "TLS", "TLSv1.3")


def tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS context of a client."""
    context = ssl.create_default_context(cadata=_trusted_certificates(properties))
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https")
    context.check_hostname = algorithm.strip().lower() == "https"
    _limit_versions(context, properties)
    own = _own_key(properties)
    if own is not None:
        _load_key(context, own)
    return context


def _trusted_certificates(properties: Mapping[str, str]) -> str | None:
    store = read_key_store(properties, "truststore")
    if store is None:
        return properties.get("ssl.truststore.certificates") or None
    if not store.trusted:
        raise UsageError("ssl.truststore.location holds no certificate to trust")
    return "".join(store.trusted)


def _own_key(properties: Mapping[str, str]) -> KeyStore | None:
    store = read_key_store(properties, "keystore")
    if store is not None and not store.key_and_chain:
        raise UsageError("ssl.keystore.location holds no key", hint="or its password is missing: ssl.keystore.password")
    if store is not None:
        return store
    inline = properties.get("ssl.keystore.key"), properties.get("ssl.keystore.certificate.chain")
    if not all(inline):
        return None
    text = "\n".join(piece for piece in inline if piece)
    return KeyStore(key_and_chain=text, key_password=properties.get("ssl.key.password") or "")


def _load_key(context: ssl.SSLContext, own: KeyStore) -> None:
    # Python\'s ssl reads keys from files alone, so this one is in memory only.
    try:
        with os.fdopen(os.memfd_create("key", os.MFD_CLOEXEC), "w", encoding="ascii", errors="replace") as file:
            file.write(own.key_and_chain)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=own.key_password or "")
    except (ssl.SSLError, OSError) as error:
        raise UsageError(
            "the client's key or certificate can't be used", hint="check ssl.keystore.* and ssl.key.password"
        ) from error


def _limit_versions(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    enabled = [name.strip() for name in properties.get("ssl.enabled.protocols", "").split(",") if name.strip()]
    versions = sorted(_VERSIONS[name] for name in enabled if name in _VERSIONS)
    if enabled and not versions:
        raise UsageError(f"ssl.enabled.protocols: {','.join(enabled)} is not supported", hint="TLSv1.2 or TLSv1.3")
    protocol = properties.get("ssl.protocol", "").strip()
    if protocol not in (*_NEWEST_ONLY, "TLSv1.2"):
        raise UsageError(f"ssl.protocol: {protocol} is not supported", hint="TLSv1.2 or TLSv1.3")
    if protocol == "TLSv1.2":
        versions = [_VERSIONS[protocol]]
    if versions:
        context.minimum_version, context.maximum_version = versions[0], versions[-1]


_CLIENT_AUTH = "ssl.client.auth"
_VERIFIED = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
STORE_LOCATIONS = ("ssl.keystore.location", "ssl.truststore.location")


def server_tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS context of a listener, which needs a key."""
    own = _own_key(properties)
    if own is None:
        raise UsageError("a listener with TLS needs a key", hint="ssl.keystore.type=PEM and ssl.keystore.location")
    asked = properties.get(_CLIENT_AUTH, "none").strip().lower()
    if asked not in _VERIFIED:
        raise UsageError(f"{_CLIENT_AUTH}: {asked} is not supported", hint="none, requested or required")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _limit_versions(context, properties)
    _load_key(context, own)
    if _VERIFIED[asked] is not ssl.CERT_NONE:
        trusted = _trusted_certificates(properties)
        if trusted is None:
            raise UsageError(f"{_CLIENT_AUTH}={asked} needs authorities to trust", hint="ssl.truststore.location")
        context.load_verify_locations(cadata=trusted)
        context.verify_mode = _VERIFIED[asked]
    return context
