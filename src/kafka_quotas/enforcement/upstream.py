"""Connecting to a broker."""

import asyncio
import contextlib
import socket
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.address import Address

_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
"""A peer that is gone without a word is noticed after 2 minutes (seconds, seconds, probes)."""
_UNACKNOWLEDGED_MS: Final = 120_000
"""How long written bytes may stay unacknowledged before the connection counts as broken."""


class UpstreamError(KafkaQuotasError):
    """A broker could not be connected to."""


async def connect(address: Address, *, timeout_s: float) -> socket.socket:
    """A connected, non-blocking socket; each of the host's addresses is tried until `timeout_s` is over.

    Raises `UpstreamError` where none of them takes a connection in time.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _connect_to_any(address)
    except TimeoutError as error:
        raise UpstreamError(f"{address} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise UpstreamError(f"{address}: {error.strerror or error}") from error


def prepare_stream(sock: socket.socket) -> None:
    """Nothing; the socket sends without delay and notices a peer that is gone."""
    sock.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
    with contextlib.suppress(OSError):  # a socket that broke meanwhile says so at its first use
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


async def _connect_to_any(address: Address) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    for index, (family, kind, protocol, _, place) in enumerate(found):
        sock = socket.socket(family, kind, protocol)
        try:
            prepare_stream(sock)
            await loop.sock_connect(sock, place)
        except OSError:
            sock.close()
            if index == len(found) - 1:
                raise
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise OSError("the name has no address")
