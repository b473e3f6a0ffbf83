"""TLS contexts of Python's `ssl` from Kafka's client properties, and from broker properties for listeners.

Contract: the broker's certificate is always verified. On Linux a key is never written to a disk. Stores are PEM, PKCS12
or JKS, recognized by their content, as Java reads a PKCS12 file if the properties declare JKS, and the other way round.
JKS has certificates in the clear and keys under a scheme of its own. It takes nothing but SHA-1, and the one Python
library for it is hardly maintained, so it is parsed here. The ciphers of PKCS12 come from `cryptography`, an optional
extra. Listeners take `ssl.client.auth` and a broker's stores.

**Source:** `sun.security.provider.JavaKeyStore` and `KeyProtector` (JDK 17).
"""

import base64
import hashlib
import hmac
import os
import re
import ssl
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.extras import install_extra
from kafka_quotas.core.formats.documents import read_document

_MAGIC: Final = b"\xfe\xed\xfe\xed"
_JKS_VERSIONS: Final = (1, 2)
_OWN, _TRUSTED = 1, 2
_DIGEST_LENGTH: Final = 20
_WHITENER: Final = b"Mighty Aphrodite"
_SEQUENCE, _OCTETS = 0x30, 0x04
_BROKEN: Final = "is a broken JKS file"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStore:
    """The content of a key or trust store, in PEM form."""

    trusted: tuple[str, ...] = ()
    key_and_chain: str = field(default="", repr=False)
    """The first key with its chain, "" for none."""
    key_password: str | None = field(default=None, repr=False)


def read_jks(content: bytes, password: str | None, key_password: str | None) -> KeyStore:
    """Return the content of a JKS file, of which the first certificate of each key is trusted too.

    Without the store's password the file is not checked for changes, as in Java. That of the key may be the same.
    """
    if password is not None:
        body, digest = content[:-_DIGEST_LENGTH], content[-_DIGEST_LENGTH:]
        expected = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(expected, digest):
            raise UsageError("has another password, or was changed", hint="check ssl.keystore.password and its like")
    try:
        return _entries(_Reader(content[len(_MAGIC) : -_DIGEST_LENGTH]), key_password or password)
    except IndexError as error:
        raise UsageError(_BROKEN) from error


def _entries(reader: "_Reader", key_password: str | None) -> KeyStore:
    version, count = reader.number(), reader.number()
    if version not in _JKS_VERSIONS:
        raise UsageError(_BROKEN)
    trusted: list[str] = []
    keys: list[str] = []
    for _ in range(count):
        tag = reader.number()
        reader.block(2)  # the alias
        reader.exactly(8)  # when it was made
        if tag == _OWN:
            protected = reader.block()
            chain = [reader.certificate(version) for _ in range(reader.number())]
            trusted += chain[:1]
            if not keys and key_password is not None:
                keys.append(_pem("PRIVATE KEY", _opened(protected, key_password)) + "".join(chain))
        elif tag == _TRUSTED:
            trusted.append(reader.certificate(version))
        else:
            raise UsageError(_BROKEN)
    return KeyStore(trusted=tuple(trusted), key_and_chain="".join(keys))


def _opened(protected: bytes, password: str) -> bytes:
    """Return the decrypted key (PKCS#8), which is mixed with a stream of chained digests of the password."""
    # An EncryptedPrivateKeyInfo is SEQUENCE { SEQUENCE { algorithm }, OCTETS }.
    outer, _ = _der_value(protected, 0, _SEQUENCE)
    _, end = _der_value(outer, 0, _SEQUENCE)
    sealed, _ = _der_value(outer, end, _OCTETS)
    secret = password.encode("utf-16-be")
    digest, mixed, check = sealed[:_DIGEST_LENGTH], sealed[_DIGEST_LENGTH:-_DIGEST_LENGTH], sealed[-_DIGEST_LENGTH:]
    stream = b""
    while len(stream) < len(mixed):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        stream += digest
    key = bytes(left ^ right for left, right in zip(mixed, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), check):
        raise UsageError("has a key under another password", hint="check ssl.key.password")
    return key


def _der_value(der: bytes, offset: int, tag: int) -> tuple[bytes, int]:
    if der[offset] != tag:
        raise UsageError(_BROKEN)
    length, start = der[offset + 1], offset + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[offset + 2 : start])
    return der[start : start + length], start + length


def _pem(label: str, der: bytes) -> str:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}-----END {label}-----\n"


class _Reader(BytesIO):
    """A reader of Java's big-endian data, which raises an `IndexError` past its end."""

    def exactly(self, length: int) -> bytes:
        """Return the next bytes."""
        found = self.read(length)
        if len(found) < length:
            raise IndexError
        return found

    def number(self) -> int:
        """Return the next four bytes as a number."""
        return int.from_bytes(self.exactly(4))

    def block(self, length_bytes: int = 4) -> bytes:
        """Return the bytes after their length."""
        return self.exactly(int.from_bytes(self.exactly(length_bytes)))

    def certificate(self, version: int) -> str:
        """Return the next certificate in PEM form, which its type precedes from version 2 on."""
        if version > 1:
            self.block(2)
        return _pem("CERTIFICATE", self.block())


def _read_pkcs12(content: bytes, password: str | None) -> KeyStore:
    """Return the content of a file, trusting all certificates that do not sign its own."""
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12  # noqa: PLC0415 - optional
    except ImportError as error:
        raise UsageError(
            "is a PKCS12 file, which takes the library cryptography to read",
            hint=f"{install_extra('pkcs12', 'cryptography')}, or convert it: "
            "openssl pkcs12 -in FILE -out FILE.pem -nodes",
        ) from error
    try:
        store: Any = load_pkcs12(content, password.encode() if password is not None else None)
    except ValueError as error:
        raise UsageError(
            "can't be opened as PKCS12", hint="check its password: ssl.keystore.password or ssl.truststore.password"
        ) from error
    own = [store.cert] if store.cert is not None else []
    chain, others = _split(own, list(store.additional_certs))
    key = _key_pem(store.key) if store.key is not None and own else ""
    trusted = tuple(_certificate_pem(each) for each in (*own, *others))
    chained = key and key + "".join(_certificate_pem(each) for each in (*own, *chain))
    return KeyStore(trusted=trusted, key_and_chain=chained)


def _split(own: list[Any], others: list[Any]) -> tuple[list[Any], list[Any]]:
    chain: list[Any] = []
    last = own[0] if own else None
    while last is not None and last.certificate.issuer != last.certificate.subject:
        last = next((each for each in others if each.certificate.subject == last.certificate.issuer), None)
        if last is not None:
            others.remove(last)
            chain.append(last)
    return chain, others


def _certificate_pem(holder: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - optional

    text: bytes = holder.certificate.public_bytes(Encoding.PEM)
    return text.decode()


def _key_pem(key: Any) -> str:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - optional
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text.decode()


_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END [^-]*-----\n?", re.DOTALL)
_TYPES = ("PEM", "PKCS12", "JKS")
_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_DER_SEQUENCE = b"\x30"


def read_key_store(properties: Mapping[str, str], kind: str) -> KeyStore | None:
    """Return the store of a kind (`keystore` or `truststore`) that the properties name, None for none."""
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
    if b"-----BEGIN " in content:
        text = content.decode("ascii", "replace")
        trusted = tuple(_CERTIFICATE.findall(text))
        return KeyStore(trusted=trusted, key_and_chain=text, key_password=key_password or password or "")
    if content.startswith(_MAGIC):
        return read_jks(content, password, key_password)
    if content.startswith(_JCEKS_MAGIC):
        raise UsageError(
            "is a JCEKS file, which is not supported", hint="keytool -importkeystore converts it to PKCS12"
        )
    if content.startswith(_DER_SEQUENCE):
        return _read_pkcs12(content, password)
    raise UsageError("is neither a PEM, PKCS12 nor JKS file")


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
    try:
        with _key_file() as file:
            file.write(own.key_and_chain)
            file.flush()
            path = f"/proc/self/fd/{file.fileno()}" if sys.platform == "linux" else file.name
            context.load_cert_chain(path, password=own.key_password or "")
    except (ssl.SSLError, OSError) as error:
        raise UsageError(
            "the client's key or certificate can't be used", hint="check ssl.keystore.* and ssl.key.password"
        ) from error


def _key_file() -> IO[str]:
    """Open a file for a key, as Python's ssl reads keys from files alone.

    On Linux it is in memory only; elsewhere it is the user's own, and gone when it is closed.
    """
    if sys.platform == "linux":
        return os.fdopen(os.memfd_create("key", os.MFD_CLOEXEC), "w", encoding="ascii", errors="replace")
    else:  # noqa: RET505 - mypy takes what is after a check of the platform for unreachable
        return tempfile.NamedTemporaryFile("w", encoding="ascii", errors="replace")


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
