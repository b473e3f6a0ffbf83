"""Writing to one socket: at once if the kernel takes it, else kept until it does.

Invariants: bytes go out in order; views are written or copied before `send` returns, so their memory is free again; what
is kept is at most what was sent in one call while the socket was full, for the caller stops feeding until `on_drained`.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from kafka_quotas.wire.walk import Buffer

MAX_PIECES: Final = 512
"""How many pieces one system call takes (Linux allows 1,024)."""


class SocketWriter:
    """The outgoing side of a non-blocking socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, on_drained: Callable[[], None]) -> None:
        self._loop = loop
        self._socket = sock
        self._on_drained = on_drained
        self._pending: deque[memoryview] = deque()

    @property
    def is_full(self) -> bool:
        """Whether bytes wait for the kernel to take them."""
        return bool(self._pending)

    def send(self, pieces: Sequence[Buffer]) -> None:
        """Nothing; what could not be written is kept, see `is_full`.

        Raises `OSError` where the connection is broken.
        """
        if self._pending:
            self._keep(pieces, 0)
            return
        for start in range(0, len(pieces), MAX_PIECES):
            batch = pieces[start : start + MAX_PIECES]
            left = self._write(batch)
            if left:
                self._keep(batch, sum(map(len, batch)) - left)
                self._keep(pieces[start + MAX_PIECES :], 0)
                self._loop.add_writer(self._socket.fileno(), self._flush)
                return

    def stop(self) -> None:
        """Nothing; what was kept is thrown away, the socket may be closed."""
        if self._pending:
            self._pending.clear()
            self._loop.remove_writer(self._socket.fileno())

    def _write(self, pieces: Sequence[Buffer]) -> int:
        """How many bytes the kernel did not take."""
        total = sum(map(len, pieces))
        try:
            sent = self._socket.send(pieces[0]) if len(pieces) == 1 else self._socket.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            return total
        return total - sent

    def _keep(self, pieces: Sequence[Buffer], skipped: int) -> None:
        """Nothing; copies of the pieces behind the first `skipped` bytes are kept."""
        for piece in pieces:
            if skipped < len(piece):
                self._pending.append(memoryview(bytes(piece[skipped:])))
            skipped = max(0, skipped - len(piece))

    def _flush(self) -> None:
        """Nothing; called when the kernel takes bytes again."""
        while self._pending:
            piece = self._pending[0]
            try:
                sent = self._socket.send(piece)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._pending.clear()  # the reading side finds the same error, and says it
                break
            if sent < len(piece):
                self._pending[0] = piece[sent:]
                return
            self._pending.popleft()
        self._loop.remove_writer(self._socket.fileno())
        self._on_drained()
