"""How a listener gets its socket: it opens one, but in a worker, which has a copy of its parent's."""

import socket

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.proxy.acceptor import bind


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
