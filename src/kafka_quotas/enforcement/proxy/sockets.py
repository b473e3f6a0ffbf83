"""Listening sockets, which a listener opens, but in a worker, which has a copy of its parent's."""

import errno
import socket
from collections.abc import Iterable
from typing import Final

from kafka_quotas.enforcement.config.address import Address, ListenError

BACKLOG: Final = 1024
_ANY_IPV6: Final = "::"
LISTEN_HINT: Final = "choose another --listen address, or widen --port-range"


def resolved(host: str, port: int) -> tuple[int, tuple[str, int]]:
    """Return the address family and the address that a host is listened on with this port.

    Raises:
        OSError: The host is unknown.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return family, (str(address[0]), port)


def bind(host: str, ports: Iterable[int], *, hint: str = LISTEN_HINT) -> socket.socket:
    """Open a listening, non-blocking socket on the first of these ports that is free.

    `::` listens on every address of this machine, IPv4 included, as it does in the JVM of a broker.

    Raises:
        ListenError: No port is free, or the host can't be listened on.
    """
    last: OSError | None = None
    for port in ports:
        try:
            family, address = resolved(host, port)
            is_dual = address[0] == _ANY_IPV6 and socket.has_dualstack_ipv6()
            sock = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=is_dual)
        except OSError as error:
            last = error
            if error.errno != errno.EADDRINUSE:
                break
            continue
        sock.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
        return sock
    raise ListenError(
        f"can't listen on {host}: {last.strerror or last if last else 'no port left'}",
        hint=hint,
    ) from last


def listener_role(listener: str, node_id: int | None) -> str:
    """Return the role of a listener's socket for a broker, None for the bootstrap."""
    return f"{listener}/{'bootstrap' if node_id is None else node_id}"


class ListeningSockets:
    """The sockets that listeners open."""

    def bind(self, role: str, host: str, port: int, *, upstream: Address | None = None) -> socket.socket:
        """Return a listening socket.

        Args:
            role: What it is for.
            host: Host to listen on.
            port: Port, 0 for any.
            upstream: Address of the broker, None for a bootstrap listener.

        Raises:
            ListenError: The port is not free, or the host can't be listened on.
        """
        del role, upstream
        return bind(host, [port])
