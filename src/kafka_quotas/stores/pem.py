"""Key and trust stores in PEM form, the one form that Java and Python both read."""

import re
from pathlib import Path

from kafka_quotas.core.errors import UsageError

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END [^-]*-----\n?", re.DOTALL)


def certificates_in(text: str) -> tuple[str, ...]:
    """The certificates in a PEM text, each with its marks."""
    return tuple(_CERTIFICATE.findall(text))


def pem_file(path_text: str, *, property_name: str) -> Path:
    """The path of a PEM file that a property names.

    Raises `UsageError` where the file can't be read, or is a Java key store in another form.
    """
    path = Path(path_text).expanduser()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{property_name}: cannot read {path}: {error.strerror or error}") from error
    if b"-----BEGIN " in content:
        return path
    form = "a JKS file" if content.startswith(_JKS_MAGIC) else "no PEM file"
    raise UsageError(f"{property_name} is {form}: {path}", hint=_conversion_hint(path, content))


def _conversion_hint(path: Path, content: bytes) -> str:
    """The commands that turn a store of another form into PEM."""
    to_pem = f"openssl pkcs12 -in {path.stem}.p12 -out {path.stem}.pem -nodes"
    if content.startswith(_JKS_MAGIC):
        return f"keytool -importkeystore -srckeystore {path} -destkeystore {path.stem}.p12; then {to_pem}"
    return f"a PKCS12 file is converted by: openssl pkcs12 -in {path} -out {path.stem}.pem -nodes"
