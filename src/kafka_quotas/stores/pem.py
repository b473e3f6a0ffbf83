"""Certificates in PEM form."""

import re

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END [^-]*-----\n?", re.DOTALL)


def certificates_in(text: str) -> tuple[str, ...]:
    """The certificates in a PEM text, each with its marks."""
    return tuple(_CERTIFICATE.findall(text))
