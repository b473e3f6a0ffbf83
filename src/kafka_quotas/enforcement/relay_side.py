"""One socket of a relay: read when asked to, written through its `SocketWriter`."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from kafka_quotas.enforcement.socket_writer import SocketWriter


class RelaySide:
    """A non-blocking socket, its writer, and whether the loop watches it for bytes to read."""

    __slots__ = ("_loop", "_on_readable", "_reads", "is_open", "socket", "writer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_readable: Callable[[], None],
        on_drained: Callable[[], None],
    ) -> None:
        self.socket = sock
        self.writer = SocketWriter(loop, sock, on_drained)
        self.is_open = True
        self._loop = loop
        self._on_readable = on_readable
        self._reads = False

    def read(self, *, wanted: bool) -> None:
        """Nothing; bytes are waited for, or left where they are."""
        if wanted is self._reads:
            return
        self._reads = wanted
        if wanted:
            self._loop.add_reader(self.socket.fileno(), self._on_readable)
        else:
            self._loop.remove_reader(self.socket.fileno())

    def finish(self) -> None:
        """Nothing; the peer is told that nothing more will come."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Nothing; the socket is closed. A second call does nothing."""
        if self.is_open:
            self.is_open = False
            self.read(wanted=False)
            self.writer.stop()
            self.socket.close()
