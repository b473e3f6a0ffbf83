"""Connections to brokers: how one is made, and with which address, timeout and TLS."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.address import Address


class UpstreamError(KafkaQuotasError):
    """Error for a broker that does not take a connection."""


async def connect(
    protocol: Callable[[], asyncio.Protocol], address: Address, *, timeout_s: float, tls: ssl.SSLContext | None = None
) -> None:
    """Connect the protocol to a broker, trying each of the host's addresses.

    `timeout_s` is the time for all addresses together, TLS included.

    Raises:
        UpstreamError: No address takes a connection in time, or TLS can't be agreed on.
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
    """The address of a broker, the time it has to answer, and the TLS contexts on both sides."""

    upstream: Address
    """Address of the broker."""
    timeout_s: float
    """Time that the broker, and TLS with the client, may take."""
    client_tls: ssl.SSLContext | None = None
    """TLS context towards clients, None for plaintext."""
    upstream_tls: ssl.SSLContext | None = None
    """TLS context towards the broker, None for plaintext."""


Reroute: TypeAlias = Callable[[UpstreamConfig], Awaitable[UpstreamConfig | None]]
"""Records a broker that took no connection, and returns how to reach another, None where there is none."""


async def connect_any(
    protocol: Callable[[], asyncio.Protocol], config: UpstreamConfig, reroute: Reroute
) -> UpstreamConfig:
    """Connect the protocol to a broker or to one that serves in its place, and return how it was reached.

    Raises:
        UpstreamError: Neither the broker nor another takes a connection.
    """
    tried = set()
    while True:
        try:
            await connect(protocol, config.upstream, timeout_s=config.timeout_s, tls=config.upstream_tls)
        except UpstreamError:
            tried.add(config.upstream)
            # A bootstrap server may end after it was chosen. It got no byte of the client, so any other can take over.
            other = await reroute(config)
            if other is None or other.upstream in tried:
                raise
            config = other
        else:
            return config
