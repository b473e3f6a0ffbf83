"""A probe of a store's servers that reports at once why they can't be reached.

Client libraries retry a refused connection, or a certificate that they don't trust, until the time is up, and leave the
reason in their log.
"""

import socket
import ssl
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from kafka_quotas.core.errors import StoreRefusedError, StoreUnreachableError
from kafka_quotas.stores.server_address import ServerAddress


def network_reason(error: OSError) -> str:
    """Return the reason in lower case, such as "connection refused" or "no answer"."""
    if isinstance(error, TimeoutError):
        return "no answer"
    return (error.strerror or str(error)).lower()


_PROBE_TIMEOUT_S: Final = 5.0


def check_reachable(servers: Sequence[str], *, url: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
    """Check that at least one of the servers accepts a connection.

    Args:
        servers: The servers, as host:port.
        url: The address of the store, for messages.
        timeout_s: The longest wait for each server (seconds), at most 5.
        tls: The context for a TLS handshake after connecting, None for plaintext.

    Raises:
        StoreUnreachableError: None of the servers accepts a connection. The message has the reason of each.
        StoreRefusedError: A TLS handshake failed.
    """
    reasons = []
    for server in servers:
        try:
            _probe(server, timeout_s=min(timeout_s, _PROBE_TIMEOUT_S), tls=tls)
        except ssl.SSLError as error:
            raise StoreRefusedError(
                f"no TLS connection to {server}: {getattr(error, 'verify_message', '') or error.reason or error}",
                hint="check the trust store and the security settings in the file named with --command-config",
            ) from error
        except OSError as error:
            reasons.append(f"{server}: {network_reason(error)}")
        else:
            return
    raise StoreUnreachableError(
        f"{url} can't be reached ({'; '.join(reasons)})", hint="check the address, and that the server runs"
    )


def _probe(server: str, *, timeout_s: float, tls: ssl.SSLContext | None) -> None:
    """Open a connection to a server and close it again."""
    address = ServerAddress.parse(server)
    with closing(socket.create_connection(address, timeout=timeout_s)) as plain:
        if tls is not None:
            tls.wrap_socket(plain, server_hostname=address.host).close()
