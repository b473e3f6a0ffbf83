"""Listening sockets that a daemon takes over from its predecessor, by what they were opened for.

Invariants: a socket is used once; one that fits none of the settings is closed at the end of the start.
"""

import socket
from collections.abc import Iterable, Mapping
from typing import Final

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.proxy.acceptor import LISTEN_HINT, bind, resolved

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
        """Return the predecessor's socket for an address, or a new listening socket where it left none.

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
