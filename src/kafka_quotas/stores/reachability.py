"""Whether a store's servers can be talked to at all: told at once, with the reason that client libraries hide.

They retry a refused connection, or a certificate they don't trust, until the time is up; the reason is in their log.

Why a connection could not be made, in a few words.
"""

import socket
import ssl
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from kafka_quotas.core.errors import StoreRefusedError, StoreUnreachableError
from kafka_quotas.stores.server_address import ServerAddress


def network_reason(error: OSError) -> str:
    """The reason, in small letters: "connection refused", "no answer", "name or service not known"."""
    if isinstance(error, TimeoutError):
        return "no answer"
    return (error.strerror or str(error)).lower()


_PROBE_TIMEOUT_S: Final = 5.0


def check_reachable(servers: Sequence[str], *, url: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
    """Nothing, where one of the servers (host:port) takes a connection, with `tls` a TLS one.

    Raises `StoreUnreachableError` with the reason of each server where none does, `StoreRefusedError` for a TLS
    handshake that failed.
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
    """Nothing; a connection was made and closed again."""
    address = ServerAddress.parse(server)
    with closing(socket.create_connection(address, timeout=timeout_s)) as plain:
        if tls is not None:
            tls.wrap_socket(plain, server_hostname=address.host).close()
