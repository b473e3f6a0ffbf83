"""One socket of a relay: read when asked to, written through its `SocketWriter`."""

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kafka_quotas.enforcement.poller import BROKEN, READABLE, WRITABLE, Poller
from kafka_quotas.enforcement.socket_writer import SocketWriter

_READ_OR_BROKEN: Final = READABLE | BROKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEvents:
    """What a relay does about one of its sockets.

    `readable` is called while bytes (or the end) can be read, `drained` when all that was kept has been written,
    `broken` when the connection is gone though nobody reads it.
    """

    readable: Callable[[], None]
    drained: Callable[[], None]
    broken: Callable[[], None]


class RelaySide:
    """A non-blocking socket, its writer, and what is waited for."""

    __slots__ = ("_events", "_poller", "_reads", "_wanted", "is_open", "sock", "writer")

    def __init__(self, poller: Poller, sock: socket.socket, events: SideEvents) -> None:
        self.sock = sock
        self.writer = SocketWriter(sock)
        self.is_open = True
        self._poller = poller
        self._events = events
        self._reads = False
        self._wanted = 0
        poller.add(sock.fileno(), self._on_events)

    def read(self, *, wanted: bool) -> None:
        """Nothing; bytes are waited for, or left where they are. To be called after each `send` as well."""
        self._reads = wanted
        events = (READABLE if wanted else 0) | (WRITABLE if self.writer.is_full else 0)
        if events != self._wanted:
            self._wanted = events
            self._poller.want(self.sock.fileno(), events)

    def finish(self) -> None:
        """Nothing; the peer is told that nothing more will come."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Nothing; the socket is closed. A second call does nothing."""
        if self.is_open:
            self.is_open = False
            self._poller.remove(self.sock.fileno())
            self.sock.close()

    def _on_events(self, events: int) -> None:
        if events & WRITABLE:
            self._flush()
            if not self.is_open:
                return
        if self._reads and events & _READ_OR_BROKEN:
            self._events.readable()
        elif events & BROKEN:
            self._events.broken()

    def _flush(self) -> None:
        try:
            self.writer.flush()
        except OSError:
            self._events.broken()
            return
        if not self.writer.is_full:
            self._events.drained()
