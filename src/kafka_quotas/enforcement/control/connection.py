"""One connection of the daemon's Unix socket: lines of JSON, or frames after the binary form's first bytes.

Invariants: responses come in the order of the requests; a peer that does not read its responses is not read either; a
peer that sends neither form gets an error and is disconnected.
"""

import asyncio
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Final, cast

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.control.handler import ControlHandler
from kafka_quotas.enforcement.decisions.binary_codec import MAGIC, frame_end

MAX_LINE_BYTES: Final = 1024 * 1024
_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user and group of a peer, as `SO_PEERCRED` returns them."""


class ControlConnection(asyncio.Protocol):
    """One peer of the control socket: its rights, its form, and its requests in order.

    Args:
        owner: User id that may do everything, as root may.
        allowed: User ids that may connect besides.
        is_surplus: Whether the socket has as many connections as it may, so that this one is refused.
        on_end: Called when the connection has ended.
    """

    def __init__(
        self,
        handler: ControlHandler,
        *,
        owner: int,
        allowed: frozenset[int],
        is_surplus: bool,
        on_end: Callable[["ControlConnection"], None],
    ) -> None:
        self._handler = handler
        self._owner = owner
        self._allowed = allowed
        self._is_surplus = is_surplus
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._is_binary: bool | None = None
        self._is_full = False
        self._may_reload = False
        self._waiting: asyncio.Task[None] | None = None

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.close()

    def refuse(self, error: str) -> None:
        """Send the peer this error and end the connection."""
        if self._transport is not None:
            self._transport.write(json.dumps({"ok": False, "error": error}).encode() + b"\n")
            self._transport.close()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the peer's user id and refuse a user who may not connect."""
        self._transport = cast("asyncio.Transport", transport)
        uid = _peer_uid(self._transport.get_extra_info("socket"))
        self._may_reload = uid in (self._owner, 0)
        if not self._may_reload and uid not in self._allowed:
            self.refuse(f"user {uid} may not ask this daemon")
        elif self._is_surplus:
            self.refuse("too many connections")

    def data_received(self, data: bytes) -> None:
        """Buffer the bytes and answer the complete requests."""
        self._buffer += data
        self._answer_buffered()

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read its responses."""
        self._is_full = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the peer again and answer what waits in the buffer."""
        self._is_full = False
        if self._transport is not None:
            self._transport.resume_reading()
            self._answer_buffered()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection and cancel the response under way."""
        del exc
        self._transport = None
        if self._waiting is not None:
            self._waiting.cancel()
        self._on_end(self)

    # Requests.

    def _answer_buffered(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        try:
            if self._is_binary is None and not self._recognize():
                return
            taken = self._answer_frames() if self._is_binary else self._answer_lines()
        except ProtocolError as error:
            self.refuse(error.message)
            return
        del self._buffer[:taken]

    def _recognize(self) -> bool:
        """Return whether the form is known, and answer the binary one with its own first bytes."""
        start = bytes(self._buffer[: len(MAGIC)])
        if not start or (start != MAGIC and MAGIC.startswith(start)):
            return False
        if start[:1] == MAGIC[:1] and start != MAGIC:
            raise ProtocolError("another version of the binary form than the one spoken here")
        self._is_binary = start == MAGIC
        if self._is_binary:
            del self._buffer[: len(MAGIC)]
            cast("asyncio.Transport", self._transport).write(MAGIC)
        return True

    def _answer_frames(self) -> int:
        start = 0
        answers = []
        while not self._is_full and (end := frame_end(self._buffer, start)) is not None:
            answers.append(self._handler.answer_frame(self._buffer, start, end))
            start = end
        if answers:
            cast("asyncio.Transport", self._transport).write(b"".join(answers))
        return start

    def _answer_lines(self) -> int:
        start = 0
        while self._waiting is None and not self._is_full:
            end = self._buffer.find(b"\n", start)
            if end < 0:
                if len(self._buffer) - start > MAX_LINE_BYTES:
                    raise ProtocolError(f"a line is longer than {MAX_LINE_BYTES} bytes")
                break
            line = bytes(self._buffer[start:end])
            if self._may_reload and self._handler.is_upgrade(line):
                self._hand_over()
                return len(self._buffer)
            answer = self._handler.answer_line(line, may_reload=self._may_reload)
            start = end + 1
            if isinstance(answer, bytes):
                cast("asyncio.Transport", self._transport).write(answer)
            else:
                self._waiting = asyncio.get_running_loop().create_task(self._answer_later(answer))
        return start

    def _hand_over(self) -> None:
        """Leave the connection to the upgrade that its peer requested."""
        transport = cast("asyncio.Transport", self._transport)
        # The transport closes its own descriptor; the connection lives on by the copy.
        sock = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        transport.close()
        self._handler.upgrade(sock)

    async def _answer_later(self, answer: Awaitable[bytes]) -> None:
        content = await answer
        self._waiting = None
        if self._transport is not None:
            self._transport.write(content)
            self._answer_buffered()


def _peer_uid(sock: socket.socket) -> int:
    """Return the user id of a Unix socket's peer, -1 where the kernel gives none."""
    try:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return -1
    return int(_CREDENTIALS.unpack(credentials)[1])
