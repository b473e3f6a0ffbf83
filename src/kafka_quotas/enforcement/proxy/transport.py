"""One socket of a relay, as asyncio's transports serve it.

Peers that leave while nobody reads from them, noticed at once.

A side that is not read says nothing of its end: that would come behind the bytes that wait in the kernel. The kernel
knows, and tells it apart from them. Invariant: nothing is open while nobody is watched.
**Source:** EPOLLRDHUP, epoll_ctl(2).
"""

import asyncio
import contextlib
import select
import socket
import struct
from collections.abc import Callable
from typing import Final, cast

from kafka_quotas.wire.codec.skip import Buffer


class PeerCloseWatcher:
    """Watches sockets for the end of their peers, whatever is left to be read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left: dict[int, Callable[[], None]] = {}
        self._epoll: select.epoll | None = None

    def watch(self, fd: int, left: Callable[[], None]) -> None:
        """Nothing; `left` is called once if the peer of this socket leaves before `forget`."""
        if fd in self._left:
            return
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._look)
        self._left[fd] = left
        self._epoll.register(fd, select.EPOLLRDHUP)

    def forget(self, fd: int) -> None:
        """Nothing; the socket is not watched any more. It has to be open still, if it was."""
        if self._left.pop(fd, None) is None or self._epoll is None:
            return
        self._epoll.unregister(fd)
        if not self._left:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _look(self) -> None:
        if self._epoll is None:
            return
        for fd, _ in self._epoll.poll(0):
            left = self._left.get(fd)
            self.forget(fd)
            if left is not None:
                left()


HIGH_WATER_BYTES: Final = 256 * 1024
"""How much is kept for a peer that does not take it before the other side is left unread; one read can come on top."""
FLUSH_S: Final = 2.0
"""How long a peer gets to take what is left for it when the connection ends."""
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
"""A peer that is gone without a word is noticed after 2 minutes (seconds, seconds, probes): where nothing is left to
be acknowledged, for the kernel sends these probes then only; `Transport.lost_peer` is for the other case."""
UNACKNOWLEDGED_MS: Final = 150_000
"""How long a peer may acknowledge nothing while it should before it counts as gone.

Longer than the kernel's longest pause between two probes of a closed window (`TCP_RTO_MAX`, 120 s). `TCP_USER_TIMEOUT`
would be no substitute: it ends connections whose peer answers every probe but does not read.
**Source:** `tcp_probe_timer` and `tcp_retransmit_timer` of Linux, tcp(7).
"""
_UNANSWERED: Final = 2
"""Retransmissions, or probes of a closed window, without an answer: a single one may be on its way."""
_TCP_INFO: Final = struct.Struct("=2xBB52xI")
"""Of `struct tcp_info`: retransmissions and probes since the last answer, ms since the last acknowledgement."""


class Transport(asyncio.Protocol):
    """Hands on what comes, and says when its peer is full, takes bytes again, or is gone."""

    def __init__(
        self,
        *,
        received: Callable[[bytes], None],
        full: Callable[[bool], None],
        gone: Callable[[], None],
        made: Callable[[asyncio.Transport], None] | None = None,
    ) -> None:
        self.data_received = received  # type: ignore[assignment, method-assign]  # a call less per read
        self._full = full
        self._gone = gone
        self._made = made
        self._transport: asyncio.Transport | None = None
        self.write: Callable[[bytes], None] = _drop
        """Writes bytes, or keeps them; drops them where there is no connection."""
        self.is_gone = True
        """Whether there is no connection, not yet or not any more."""
        self.is_paused = False

    @property
    def is_open(self) -> bool:
        """Whether bytes can still be written."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def fileno(self) -> int | None:
        """The file descriptor of the socket, None where there is no connection."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        fd: int = -1 if sock is None else sock.fileno()
        return fd if fd >= 0 else None

    def lost_peer(self) -> bool:
        """Return whether the peer has not acknowledged for `UNACKNOWLEDGED_MS` what it was sent, or probed with.

        A peer that does not read acknowledges probes all the same. To be asked where nothing moved for as long.
        """
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is None:
            return False
        try:
            info: bytes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        except OSError:
            return False  # what is wrong with it is said at its next use
        retransmits, probes, silent_ms = cast("tuple[int, int, int]", _TCP_INFO.unpack(info))
        return max(retransmits, probes) >= _UNANSWERED and silent_ms >= UNACKNOWLEDGED_MS

    def send(self, pieces: list[Buffer]) -> None:
        """Nothing; the pieces are written or kept, and the list is empty."""
        transport = self._transport
        if transport is None:
            pieces.clear()
        elif len(pieces) == 1:
            transport.write(pieces.pop())
        else:
            transport.writelines(pieces)
            pieces.clear()

    def pause(self, *, wanted: bool) -> None:
        """Nothing; bytes are left where they are, or looked for."""
        if wanted is not self.is_paused and self.is_open:
            self.is_paused = wanted
            transport = cast("asyncio.Transport", self._transport)
            if wanted:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def finish(self) -> None:
        """Nothing; the peer is told that nothing more will come, after all that was sent."""
        if self.is_open:
            transport = cast("asyncio.Transport", self._transport)
            if transport.can_write_eof():
                transport.write_eof()
            else:
                transport.close()

    def close(self) -> None:
        """Nothing; the connection ends as soon as the peer has taken what was sent, or after `FLUSH_S` seconds."""
        if self.is_open:
            transport = cast("asyncio.Transport", self._transport)
            transport.close()
            asyncio.get_running_loop().call_later(FLUSH_S, self.abort)

    def abort(self) -> None:
        """Nothing; the connection ends now, whatever is left unsent."""
        if self._transport is not None:
            self._transport.abort()

    def forget(self) -> None:
        """Treat the connection as gone, for nobody waits for it any more.

        uvloop closes a connection whose waiter is cancelled without `connection_lost`, even after `connection_made`.
        **Source:** `Loop.create_connection`, `connect_accepted_socket` of uvloop 0.23.
        """
        self.abort()
        self._transport = None
        self.is_gone = True
        self.write = _drop

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing; the connection is there."""
        self._transport = cast("asyncio.Transport", transport)
        self.is_gone = False
        self.write = self._transport.write
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        _keep_alive(self._transport.get_extra_info("socket"))
        if self._made is not None:
            self._made(self._transport)

    def pause_writing(self) -> None:
        """Nothing; the relay is told to stop."""
        self._full(True)  # noqa: FBT003 - a callback

    def resume_writing(self) -> None:
        """Nothing; the relay is told to go on."""
        self._full(False)  # noqa: FBT003 - as above

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing; the relay is told."""
        del exc  # reset or ended: either way nothing more comes
        self._transport = None
        self.is_gone = True
        self.write = _drop
        self._gone()


def _drop(data: bytes) -> None:
    """Nothing; there is nobody to take it."""
    del data


def _keep_alive(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # a socket that broke meanwhile says so at its first use
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
