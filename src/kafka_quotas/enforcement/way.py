"""How a relay gets from a client to its broker."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from kafka_quotas.enforcement.address import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The broker's address, how long it and TLS are waited for, and the TLS contexts; None for plaintext.

    `failed` is called when the broker could not be connected to.
    """

    upstream: Address
    timeout_s: float
    client_tls: ssl.SSLContext | None = None
    upstream_tls: ssl.SSLContext | None = None
    failed: Callable[[], None] | None = None
