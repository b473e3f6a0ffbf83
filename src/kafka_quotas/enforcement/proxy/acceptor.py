"""Listening sockets: one per broker.

**Source:** a client follows the addresses that Metadata names, so each broker needs a port of its own.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from kafka_quotas.enforcement.config.address import Address, ListenError
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify

BACKLOG: Final = 1024
ACCEPTED_AT_ONCE: Final = 64
"""Connections accepted before the event loop gets its turn again."""
PAUSE_S: Final = 0.5
"""Pause in accepting when the process has no file descriptor left."""
_ANY_IPV6: Final = "::"
LISTEN_HINT: Final = "choose another --listen address, or widen --port-range"
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Accept: TypeAlias = Callable[[socket.socket, Address], None]
"""Takes an accepted connection and its peer's address."""


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


class Acceptor:
    """The listening socket that accepts connections and hands them over."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        *,
        accept: Accept,
        counters: Counters,
        notify: Notify,
        accepts: bool = True,
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._accept = accept
        self._counters = counters
        self._notify = notify
        self._pause: asyncio.TimerHandle | None = None
        self._is_held = not accepts
        if accepts:
            loop.add_reader(sock.fileno(), self._readable)

    @property
    def listening(self) -> socket.socket:
        """The listening socket."""
        return self._socket

    @property
    def port(self) -> int:
        """The port that the socket listens on."""
        port: int = self._socket.getsockname()[1]
        return port

    def hold(self) -> None:
        """Stop accepting until `release`, while new connections wait in the kernel's backlog."""
        self._is_held = True
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())

    def release(self) -> None:
        """Accept connections again after `hold`."""
        self._is_held = False
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket.fileno(), self._readable)

    def close(self) -> None:
        """Stop accepting and close the socket."""
        if self._pause is not None:
            self._pause.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _readable(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if self._is_held:
                return
            try:
                connection, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):  # none is left, or the client is gone
                return
            except OSError as error:
                self._rest(error)
                return
            connection.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
            self._accept(connection, Address(host=address[0].removeprefix("::ffff:"), port=address[1]))

    def _rest(self, error: OSError) -> None:
        """Log a failed accept and accept again after a pause, in which connections may end."""
        self._counters.accept_failures += 1
        self._notify(
            LogEvent(
                event="can't accept connections",
                level=LogLevel.ERROR,
                fields={"port": self.port, "error": error.strerror or str(error)},
            )
        )
        pause_s = PAUSE_S if error.errno in _EXHAUSTED else 0.0
        self._loop.remove_reader(self._socket.fileno())
        self._pause = self._loop.call_later(pause_s, self._resume)

    def _resume(self) -> None:
        self._pause = None
        if not self._is_held:
            self._loop.add_reader(self._socket.fileno(), self._readable)
