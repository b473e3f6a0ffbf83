"""One socket of a relay: read when asked to, written through its `SocketWriter`."""

import contextlib
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_quotas.enforcement.poller import BROKEN, READABLE, WRITABLE, Poller
from kafka_quotas.enforcement.socket_writer import SocketWriter
from kafka_quotas.wire.walk import Buffer

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

    __slots__ = ("_events", "_poller", "_readable", "_writer", "is_open", "is_paused", "sock")

    def __init__(self, poller: Poller, sock: socket.socket, events: SideEvents) -> None:
        self.sock = sock
        self.is_open = True
        self._writer = SocketWriter(sock)
        self._poller = poller
        self._events = events
        self._readable = events.readable
        self.is_paused = False
        poller.add(sock.fileno(), self._on_events, READABLE)

    @property
    def is_full(self) -> bool:
        """Whether bytes wait for the kernel to take them."""
        return self._writer.is_full

    def send(self, pieces: Sequence[Buffer]) -> bool:
        """Whether everything was written; if not, `drained` is called once it is.

        Raises `OSError` where the connection is broken.
        """
        if self._writer.send(pieces):
            return True
        self._want()
        return False

    def pause(self) -> None:
        """Nothing; bytes are left where they are."""
        self.is_paused = True
        self._want()

    def resume(self) -> None:
        """Nothing; bytes are looked for."""
        self.is_paused = False
        self._want()

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

    def _want(self) -> None:
        events = (0 if self.is_paused else READABLE) | (WRITABLE if self._writer.is_full else 0)
        self._poller.want(self.sock.fileno(), events)

    def _on_events(self, events: int) -> None:
        if events == READABLE:
            self._readable()
            return
        if events & WRITABLE:
            self._flush()
            if not self.is_open:
                return
        if not self.is_paused:
            if events & _READ_OR_BROKEN:
                self._readable()
        elif events & BROKEN:
            self._events.broken()

    def _flush(self) -> None:
        try:
            self._writer.flush()
        except OSError:
            self._events.broken()
            return
        if not self._writer.is_full:
            self._want()
            self._events.drained()
