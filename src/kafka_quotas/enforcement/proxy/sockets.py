"""Listening sockets: opened here, or taken over from a predecessor by what they were opened for.

Invariants: an inherited socket is used once; one that fits none of the settings is closed at the end of the start.
"""

import errno
import socket
from collections.abc import Iterable, Mapping
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


METRICS: Final = "metrics"
"""Role of the socket of the metrics endpoint."""


def listener_role(listener: str, node_id: int | None) -> str:
    """Return the role of a listener's socket for a broker, None for the bootstrap."""
    return f"{listener}/{'bootstrap' if node_id is None else node_id}"


class InheritedSockets:
    """The sockets that a predecessor left, none in a daemon that took nobody's place."""

    def __init__(self, by_role: Mapping[str, socket.socket] | None = None) -> None:
        self._by_role = dict(by_role or {})

    def bind(
        self,
        role: str,
        host: str,
        ports: Iterable[int],
        *,
        upstream: Address | None = None,
        hint: str = LISTEN_HINT,
    ) -> socket.socket:
        """Return the predecessor's socket for an address, or a new listening socket if it left none.

        Port 0 is that of the predecessor's socket of the same role. `upstream` is the address of the broker, None for
        none.

        Raises:
            ListenError: No port is free, or the host can't be listened on.
        """
        del upstream
        wanted = list(ports)
        for port in wanted:
            found = self._taken(role, host, port)
            if found is not None:
                return found
        return bind(host, wanted, hint=hint)

    def close(self) -> None:
        """Close the sockets that are not used."""
        for each in self._by_role.values():
            each.close()
        self._by_role.clear()

    def _taken(self, role: str, host: str, port: int) -> socket.socket | None:
        try:
            _, (address, *_) = resolved(host, port)
        except OSError:
            return None  # `bind` says what is wrong
        same_role_first = sorted(self._by_role, key=lambda each: each != role)
        for each in same_role_first:
            name = self._by_role[each].getsockname()
            if name[0] == address and (name[1] == port or (port == 0 and each == role)):
                return self._by_role.pop(each)
        return None
