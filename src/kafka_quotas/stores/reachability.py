"""Whether anything listens at a store's servers: a refused connection is told at once, and by its reason."""

import socket
from collections.abc import Sequence

from kafka_quotas.core.errors import StoreUnreachableError

_PROBE_TIMEOUT_S = 5.0


def check_reachable(servers: Sequence[str], *, url: str, timeout_s: float) -> None:
    """Nothing, where one of the servers (host:port) takes a TCP connection.

    Raises `StoreUnreachableError` with the reason of each where none does.
    """
    reasons = []
    for server in servers:
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=min(timeout_s, _PROBE_TIMEOUT_S)).close()
        except OSError as error:
            reasons.append(f"{server}: {_reason(error)}")
        else:
            return
    raise StoreUnreachableError(
        f"{url} can't be reached ({'; '.join(reasons)})", hint="check the address, and that the server runs"
    )


def _reason(error: OSError) -> str:
    """A short reason, in small letters."""
    if isinstance(error, TimeoutError):
        return "no answer"
    return (error.strerror or str(error)).lower()
