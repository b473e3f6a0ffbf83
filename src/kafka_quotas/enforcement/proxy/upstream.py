"""Connecting to a broker.

How a relay gets from a client to its broker.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.address import Address


class UpstreamError(KafkaQuotasError):
    """A broker could not be connected to."""


async def connect(
    protocol: Callable[[], asyncio.Protocol], address: Address, *, timeout_s: float, tls: ssl.SSLContext | None = None
) -> None:
    """Nothing; the protocol has a connection. Each of the host's addresses is tried until `timeout_s` is over.

    Raises `UpstreamError` where none of them takes a connection in time, or TLS can't be agreed on.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.get_running_loop().create_connection(
                protocol, address.host, address.port, ssl=tls, server_hostname=None if tls is None else address.host
            )
    except TimeoutError as error:
        raise UpstreamError(f"{address} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise UpstreamError(f"{address}: {error.strerror or error}") from error
    except UnicodeError as error:
        raise UpstreamError(f"{address}: not a name that can be looked up") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig:
    """The broker's address, how long it and TLS are waited for, and the TLS contexts; None for plaintext.

    `failed` is called when the broker could not be connected to.
    """

    upstream: Address
    timeout_s: float
    client_tls: ssl.SSLContext | None = None
    upstream_tls: ssl.SSLContext | None = None
    failed: Callable[[], None] | None = None
