"""The servers of stores: their addresses, a probe that reports why none answers, and a memory of silent ones.

Client libraries retry a refused connection, or a certificate that they don't trust, until the time is up, and leave the
reason in their log.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kafka_quotas.core.errors import StoreRefusedError, StoreUnreachableError

if TYPE_CHECKING:
    import ssl


_PROBE_TIMEOUT_S: Final = 5.0
REMEMBERED_S: Final = 60.0
"""Seconds until a store that stays open, such as that of `apply --watch`, sends to a silent broker again."""


class ServerAddress(NamedTuple):
    """The host, without brackets, and the port of a server."""

    host: str
    port: int

    @classmethod
    def parse(cls, server: str) -> Self:
        """Return the address in a text of the form host:port or [IPv6 address]:port."""
        host, _, port = server.rpartition(":")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UnresponsiveBrokerError(StoreUnreachableError):
    """One broker that does not answer, whatever the others of its cluster do."""


class UnresponsiveBrokers:
    """The brokers that lately gave no answer, so that a command waits for each only once."""

    def __init__(self, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._found: dict[ServerAddress, tuple[str, float]] = {}

    def add(self, address: ServerAddress, reason: str) -> None:
        """Remember an address that gave no answer."""
        self._found[address] = (reason, self._monotonic_s() + REMEMBERED_S)

    def discard(self, address: ServerAddress) -> None:
        """Forget an address that has answered."""
        self._found.pop(address, None)

    def reason(self, address: ServerAddress) -> str | None:
        """Return why an address gave no answer, None where it is worth an attempt."""
        reason, until_s = self._found.get(address, (None, 0.0))
        return reason if until_s > self._monotonic_s() else None


def network_reason(error: OSError) -> str:
    """Return the reason in lower case, such as "connection refused" or "no answer"."""
    if isinstance(error, TimeoutError):
        return "no answer"
    return (error.strerror or str(error)).lower()


def check_reachable(servers: Sequence[str], *, url: str, timeout_s: float, tls: "ssl.SSLContext | None" = None) -> None:
    """Check that at least one of the servers accepts a connection.

    Args:
        servers: The servers, as host:port.
        url: The address of the store, for messages.
        timeout_s: The longest wait for each server (seconds), at most 5.
        tls: The context for a TLS handshake after connecting, None for plaintext.

    Raises:
        StoreUnreachableError: None of the servers accepts a connection. The message has the reason of each.
        StoreRefusedError: No server passes the check, and with one of them the TLS handshake failed.
    """
    from ssl import SSLError  # noqa: PLC0415 - only a store on servers needs it

    refusal: StoreRefusedError | None = None
    reasons = []
    for server in servers:
        try:
            _probe(server, timeout_s=min(timeout_s, _PROBE_TIMEOUT_S), tls=tls)
        except SSLError as error:
            refusal = refusal or _tls_refusal(server, error)
        except OSError as error:
            reasons.append(f"{server}: {network_reason(error)}")
        else:
            return
    # A failed handshake says more than a server that is down.
    raise refusal or StoreUnreachableError(
        f"{url} can't be reached ({'; '.join(reasons)})", hint="check the address, and that the server runs"
    )


def _probe(server: str, *, timeout_s: float, tls: "ssl.SSLContext | None") -> None:
    import socket  # noqa: PLC0415 - only a store on servers needs it

    address = ServerAddress.parse(server)
    with closing(socket.create_connection(address, timeout=timeout_s)) as plain:
        if tls is not None:
            tls.wrap_socket(plain, server_hostname=address.host).close()


def _tls_refusal(server: str, error: "ssl.SSLError") -> StoreRefusedError:
    refusal = StoreRefusedError(
        f"no TLS connection to {server}: {getattr(error, 'verify_message', '') or error.reason or error}",
        hint="check the trust store and the security settings in the file named with --command-config",
    )
    refusal.__cause__ = error
    return refusal


def quieten(logger_name: str) -> None:
    """Suppress the log of a client library unless the root logger is set to DEBUG.

    A library logs the errors that it recovers from. It raises the others, and those reach the user.
    """
    import logging  # noqa: PLC0415 - only a client library needs it

    logger = logging.getLogger(logger_name)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.propagate = logging.getLogger().isEnabledFor(logging.DEBUG)
