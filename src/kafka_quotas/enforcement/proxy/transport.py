"""One socket of a proxied connection, and the watch for peers that leave while their socket is not read.

Such a socket does not report its end: that would come after the bytes that wait in the kernel. The kernel
knows, and reports it apart from them. Invariant: no epoll is open while no socket is watched.
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
    """The watch over unread sockets for the end of their peers, whatever is left to be read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left: dict[int, Callable[[], None]] = {}
        self._epoll: select.epoll | None = None  # type: ignore[name-defined, unused-ignore]  # Linux

    def watch(self, fd: int, left: Callable[[], None]) -> None:
        """Call `left` once if the peer of this socket leaves before `forget`."""
        if fd in self._left:
            return
        if self._epoll is None:
            self._epoll = select.epoll()  # type: ignore[attr-defined, unused-ignore]  # Linux
            self._loop.add_reader(self._epoll.fileno(), self._look)
        self._left[fd] = left
        self._epoll.register(fd, select.EPOLLRDHUP)  # type: ignore[attr-defined, unused-ignore]  # Linux

    def forget(self, fd: int) -> None:
        """Stop watching a socket, which is still open if it was watched."""
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
"""Bytes kept for a peer that takes none before the other side is left unread; one read can come on top."""
FLUSH_S: Final = 2.0
"""Seconds that a peer gets to take what is left for it when the connection ends."""
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""Keepalive idle time (s), interval (s) and probes by Linux' names: a vanished peer is noticed after 2 minutes.

The kernel sends these probes only where all data is acknowledged. `Transport.lost_peer` is for the other case.
"""
UNACKNOWLEDGED_MS: Final = 150_000
"""Longest time without an acknowledgement that is due before a peer counts as gone.

Longer than the kernel's longest pause between two probes of a closed window (`TCP_RTO_MAX`, 120 s). `TCP_USER_TIMEOUT`
would be no substitute: it ends connections whose peer answers every probe but does not read.
**Source:** `tcp_probe_timer` and `tcp_retransmit_timer` of Linux, tcp(7).
"""
_UNANSWERED: Final = 2
"""Retransmissions, or probes of a closed window, without an answer: a single one may be on its way."""
_TCP_INFO: Final = struct.Struct("=2xBB52xI")
"""Of `struct tcp_info`: retransmissions and probes since the last answer, ms since the last acknowledgement."""


class Transport(asyncio.Protocol):
    """One socket's asyncio protocol, which reports its bytes, its back pressure and its end."""

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
        """Function that writes or buffers bytes, and drops them without a connection."""
        self.is_gone = True
        """Whether there is no connection, not yet or no longer."""
        self.is_paused = False

    @property
    def is_open(self) -> bool:
        """Whether bytes can still be written."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def fileno(self) -> int | None:
        """The file descriptor of the socket, None without a connection."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        fd: int = -1 if sock is None else sock.fileno()
        return fd if fd >= 0 else None

    def lost_peer(self) -> bool:
        """Return whether the peer acknowledged nothing for `UNACKNOWLEDGED_MS` that it should have.

        That is data or probes of a closed window: a peer that does not read acknowledges probes all the same. Only for
        connections on which nothing moved for that time.
        """
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is None:
            return False
        try:
            option = socket.TCP_INFO  # type: ignore[attr-defined, unused-ignore]  # Linux
            info: bytes = sock.getsockopt(socket.IPPROTO_TCP, option, _TCP_INFO.size)
        except OSError:
            return False  # the next use of the socket reports the error
        retransmits, probes, silent_ms = cast("tuple[int, int, int]", _TCP_INFO.unpack(info))
        return max(retransmits, probes) >= _UNANSWERED and silent_ms >= UNACKNOWLEDGED_MS

    def has_peer_left(self) -> bool:
        """Return whether the peer has ended its side, whatever is left to be read."""
        fd = self.fileno
        if fd is None:
            return False
        poll = select.poll()
        poll.register(fd, select.POLLRDHUP)  # type: ignore[attr-defined, unused-ignore]  # Linux
        return bool(poll.poll(0))

    def send(self, pieces: list[Buffer]) -> None:
        """Write the pieces, or drop them without a connection, and empty the list."""
        transport = self._transport
        if transport is None:
            pieces.clear()
        elif len(pieces) == 1:
            transport.write(pieces.pop())
        else:
            transport.writelines(pieces)
            pieces.clear()

    def pause(self, *, wanted: bool) -> None:
        """Pause reading, or resume it."""
        if wanted is not self.is_paused and self.is_open:
            self.is_paused = wanted
            transport = cast("asyncio.Transport", self._transport)
            if wanted:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def finish(self) -> None:
        """End the sending side after all that was sent."""
        if self.is_open:
            transport = cast("asyncio.Transport", self._transport)
            if transport.can_write_eof():
                transport.write_eof()
            else:
                transport.close()

    def close(self) -> None:
        """End the connection once the peer has taken what was sent, or after `FLUSH_S` seconds."""
        if self.is_open:
            cast("asyncio.Transport", self._transport).close()
            asyncio.get_running_loop().call_later(FLUSH_S, self.abort)

    def abort(self) -> None:
        """End the connection now, whatever is left unsent."""
        if self._transport is not None:
            self._transport.abort()

    def forget(self) -> None:
        """Treat the connection as gone after its waiter was cancelled.

        uvloop closes a connection whose waiter is cancelled without `connection_lost`, even after `connection_made`.
        **Source:** `Loop.create_connection`, `connect_accepted_socket` of uvloop 0.23.
        """
        self.abort()
        self._transport = None
        self.is_gone = True
        self.write = _drop

    def release(self) -> None:
        """Forget whom to notify of this connection, once it and its peer's have ended."""
        self.data_received = _drop  # type: ignore[method-assign]
        self._full, self._gone, self._made = lambda _: None, lambda: None, None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport of a new connection."""
        self._transport = cast("asyncio.Transport", transport)
        self.is_gone = False
        self.write = self._transport.write
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        _keep_alive(self._transport.get_extra_info("socket"))
        if self._made is not None:
            self._made(self._transport)

    def pause_writing(self) -> None:
        """Report that the write buffer is full."""
        self._full(True)  # noqa: FBT003 - a callback

    def resume_writing(self) -> None:
        """Report that the write buffer has room again."""
        self._full(False)  # noqa: FBT003 - as above

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection."""
        del exc  # reset or ended: either way nothing more comes
        self._transport = None
        self.is_gone = True
        self.write = _drop
        self._gone()


def _drop(data: bytes) -> None:
    del data


def _keep_alive(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # a socket that broke meanwhile reports it at its first use
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
