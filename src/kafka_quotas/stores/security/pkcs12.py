"""PKCS12 key stores, the standard format of Java since 9.

The ciphers come from `cryptography`, an optional extra.
"""

from typing import Any

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.extras import install_extra
from kafka_quotas.stores.security.jks import PemContent


def read_pkcs12(content: bytes, password: str | None) -> PemContent:
    """Return the content of a file, trusting all certificates that do not sign its own.

    Raises:
        UsageError: The password is wrong, the file is broken, or the library is missing. The message lacks the file's
            name.
    """
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
    key = _key(store.key) if store.key is not None and own else ""
    trusted = tuple(_certificate(each) for each in (*own, *others))
    return trusted, key and key + "".join(_certificate(each) for each in (*own, *chain))


def _split(own: list[Any], others: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the certificates that sign the first, each signed by the next, and the rest."""
    chain: list[Any] = []
    last = own[0] if own else None
    while last is not None and last.certificate.issuer != last.certificate.subject:
        last = next((each for each in others if each.certificate.subject == last.certificate.issuer), None)
        if last is not None:
            others.remove(last)
            chain.append(last)
    return chain, others


def _certificate(holder: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - optional

    text: bytes = holder.certificate.public_bytes(Encoding.PEM)
    return text.decode()


def _key(key: Any) -> str:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - optional
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text.decode()
