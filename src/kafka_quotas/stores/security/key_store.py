"""Key and trust stores of Kafka's properties: PEM, PKCS12 or JKS, recognized by the content of the file.

Java reads a PKCS12 file where the properties declare JKS, and the other way round, so the declared type has no effect
here. A type other than the three is refused by its name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_document
from kafka_quotas.stores.security.jks import is_jks, read_jks

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END [^-]*-----\n?", re.DOTALL)
_TYPES = ("PEM", "PKCS12", "JKS")
_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_DER_SEQUENCE = b"\x30"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStore:
    """The content of a key or trust store, in PEM form."""

    trusted: tuple[str, ...] = ()
    """Certificates to trust."""
    key_and_chain: str = field(default="", repr=False)
    """The client's key with its chain, "" for none."""
    key_password: str | None = field(default=None, repr=False)
    """The password of the key, None where it is not encrypted."""


def read_key_store(properties: Mapping[str, str], kind: str) -> KeyStore | None:
    """Return the store of a kind (`keystore` or `truststore`) that the properties name, None for none.

    Raises:
        UsageError: The file can't be read, its type is not supported, or its password is wrong.
    """
    location = f"ssl.{kind}.location"
    if not properties.get(location):
        return None
    declared = properties.get(f"ssl.{kind}.type", "").strip()
    if declared and declared.upper() not in _TYPES:
        raise UsageError(f"ssl.{kind}.type: {declared} is not supported", hint=f"it is one of {', '.join(_TYPES)}")
    path = Path(properties[location]).expanduser()
    try:
        content = read_document(path)
    except OSError as error:
        raise UsageError(f"{location}: cannot read {path}: {error.strerror or error}") from error
    password = properties.get(f"ssl.{kind}.password") or None
    try:
        return _read(content, password, properties.get("ssl.key.password") or None)
    except UsageError as error:
        raise UsageError(f"{location}: {path} {error.message}", hint=error.hint) from error


def _read(content: bytes, password: str | None, key_password: str | None) -> KeyStore:
    """Return the content of a file, with exceptions that lack its name."""
    if b"-----BEGIN " in content:
        text = content.decode("ascii", "replace")
        trusted = tuple(_CERTIFICATE.findall(text))
        return KeyStore(trusted=trusted, key_and_chain=text, key_password=key_password or password or "")
    if is_jks(content):
        trusted, key = read_jks(content, password, key_password)
        return KeyStore(trusted=trusted, key_and_chain=key)
    if content.startswith(_JCEKS_MAGIC):
        raise UsageError(
            "is a JCEKS file, which is not supported", hint="keytool -importkeystore converts it to PKCS12"
        )
    if content.startswith(_DER_SEQUENCE):
        from kafka_quotas.stores.security.pkcs12 import read_pkcs12  # noqa: PLC0415 - loads cryptography

        trusted, key = read_pkcs12(content, password)
        return KeyStore(trusted=trusted, key_and_chain=key)
    raise UsageError("is neither a PEM, PKCS12 nor JKS file")
