"""Writing to one socket: at once if the kernel takes it, else kept until it does.

Invariants: bytes go out in order; views are written or copied before `send` returns, so their memory is free again;
what is kept is at most what one call was given, for the caller stops feeding while `is_full`.
"""

import socket
from collections import deque
from collections.abc import Sequence
from typing import Final

from kafka_quotas.wire.walk import Buffer

MAX_PIECES: Final = 512
"""How many pieces one system call takes (Linux allows 1,024)."""


class SocketWriter:
    """The outgoing side of a non-blocking socket."""

    __slots__ = ("_pending", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._pending: deque[memoryview] = deque()

    @property
    def is_full(self) -> bool:
        """Whether bytes wait for the kernel to take them."""
        return bool(self._pending)

    def send(self, pieces: Sequence[Buffer]) -> bool:
        """Whether the kernel took everything; what it did not take is kept, see `is_full`.

        Raises `OSError` where the connection is broken.
        """
        if len(pieces) == 1 and not self._pending:
            (piece,) = pieces
            try:
                sent = self._socket.send(piece)
            except (BlockingIOError, InterruptedError):
                sent = 0
            if sent == len(piece):
                return True
            self._keep(pieces, sent)
            return False
        for start in range(0, len(pieces), MAX_PIECES):
            batch = pieces[start : start + MAX_PIECES]
            sent = 0 if self._pending else self._write(batch)
            self._keep(batch, sent)
        return not self._pending

    def flush(self) -> None:
        """Nothing; as much of what was kept is written as the kernel takes now.

        Raises `OSError` where the connection is broken.
        """
        while self._pending:
            piece = self._pending[0]
            sent = self._write((piece,))
            if sent < len(piece):
                self._pending[0] = piece[sent:]
                return
            self._pending.popleft()

    def _write(self, pieces: Sequence[Buffer]) -> int:
        """How many bytes the kernel took."""
        try:
            return self._socket.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            return 0

    def _keep(self, pieces: Sequence[Buffer], sent: int) -> None:
        """Nothing; copies of the pieces behind the first `sent` bytes are kept."""
        for piece in pieces:
            if sent < len(piece):
                self._pending.append(memoryview(bytes(piece[sent:])))
            sent = max(0, sent - len(piece))
