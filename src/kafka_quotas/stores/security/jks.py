"""JKS, the key store format of Java before PKCS12: certificates in the clear, keys under a scheme of its own.

The format takes nothing but SHA-1, and the one Python library for it is hardly maintained, so it is parsed here.
**Source:** `sun.security.provider.JavaKeyStore` and `KeyProtector` (JDK 17).
"""

import base64
import hashlib
import hmac
import struct
from typing import Final

from kafka_quotas.core.errors import UsageError

_MAGIC: Final = b"\xfe\xed\xfe\xed"
_VERSIONS: Final = (1, 2)
_KEY, _CERTIFICATE = 1, 2
_DIGEST_LENGTH: Final = 20
_WHITENER: Final = b"Mighty Aphrodite"
_SEQUENCE, _OCTETS = 0x30, 0x04
_BROKEN: Final = "is a broken JKS file"


PemContent = tuple[tuple[str, ...], str]
"""The content of a key store in PEM form: the certificates to trust, and the first key with its chain ("" for none)."""


def is_jks(content: bytes) -> bool:
    """Return whether a file is in this format."""
    return content.startswith(_MAGIC)


def read_jks(content: bytes, password: str | None, key_password: str | None) -> PemContent:
    """Return the content of a file: its key, and as trusted its certificates and the first of each key.

    Without the store's password the file is not checked for changes, as in Java. That of the key may be the same.

    Raises:
        UsageError: A password is wrong, or the file is broken. The message lacks the name of the file.
    """
    if password is not None:
        _check_digest(content, password)
    try:
        return _entries(_Reader(content, offset=len(_MAGIC)), key_password or password)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise UsageError(_BROKEN) from error


def _check_digest(content: bytes, password: str) -> None:
    body, digest = content[:-_DIGEST_LENGTH], content[-_DIGEST_LENGTH:]
    expected = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + body, usedforsecurity=False).digest()
    if not hmac.compare_digest(expected, digest):
        raise UsageError("has another password, or was changed", hint="check ssl.keystore.password and its like")


def _entries(reader: "_Reader", key_password: str | None) -> PemContent:
    version, count = reader.number(), reader.number()
    if version not in _VERSIONS:
        raise UsageError(_BROKEN)
    trusted: list[str] = []
    keys: list[str] = []
    for _ in range(count):
        tag = reader.number()
        reader.text()  # the alias
        reader.skip(8)  # when it was made
        if tag == _KEY:
            protected = reader.block()
            chain = [reader.certificate(version) for _ in range(reader.number())]
            trusted += chain[:1]
            if not keys and key_password is not None:
                keys.append(pem("PRIVATE KEY", _opened(protected, key_password)) + "".join(chain))
        elif tag == _CERTIFICATE:
            trusted.append(reader.certificate(version))
        else:
            raise UsageError(_BROKEN)
    return tuple(trusted), "".join(keys)


def _opened(protected: bytes, password: str) -> bytes:
    """Return the decrypted key (PKCS#8), which is mixed with a stream of chained digests of the password."""
    sealed = _octets_of_encrypted_key(protected)
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


def _octets_of_encrypted_key(der: bytes) -> bytes:
    """Return the octets of an `EncryptedPrivateKeyInfo`: SEQUENCE { SEQUENCE { algorithm }, OCTETS }."""
    outer, _ = _der_value(der, 0, _SEQUENCE)
    _, end = _der_value(outer, 0, _SEQUENCE)
    return _der_value(outer, end, _OCTETS)[0]


def _der_value(der: bytes, offset: int, tag: int) -> tuple[bytes, int]:
    """Return the value of a DER element of the tag, and the offset of its end."""
    if der[offset] != tag:
        raise UsageError(_BROKEN)
    length, start = der[offset + 1], offset + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[offset + 2 : start])
    return der[start : start + length], start + length


def pem(label: str, der: bytes) -> str:
    """Return a DER value in PEM form."""
    return f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}-----END {label}-----\n"


class _Reader:
    """A reader of Java's big-endian data, which raises a `struct.error` or an `IndexError` past its end."""

    def __init__(self, content: bytes, *, offset: int) -> None:
        self._content = content[:-_DIGEST_LENGTH]
        self._offset = offset

    def skip(self, length: int) -> bytes:
        """Return the next bytes."""
        start, self._offset = self._offset, self._offset + length
        if self._offset > len(self._content):
            raise IndexError
        return self._content[start : self._offset]

    def number(self) -> int:
        """Return the next four bytes as a number."""
        (value,) = struct.unpack(">I", self.skip(4))
        return int(value)

    def block(self) -> bytes:
        """Return the bytes after a length of four bytes."""
        return self.skip(self.number())

    def text(self) -> str:
        """Return the text after a length of two bytes."""
        (length,) = struct.unpack(">H", self.skip(2))
        return self.skip(length).decode("utf-8", "replace")

    def certificate(self, version: int) -> str:
        """Return the next certificate in PEM form, which its type precedes from version 2 on."""
        if version > 1:
            self.text()
        return pem("CERTIFICATE", self.block())
