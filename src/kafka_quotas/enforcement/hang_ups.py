"""Peers that leave while nobody reads from them, noticed at once.

A side that is not read says nothing of its end: that would come behind the bytes that wait in the kernel. The kernel
knows, and tells it apart from them. Invariant: nothing is open while nobody is watched.
**Source:** EPOLLRDHUP, epoll_ctl(2).
"""

import asyncio
import select
from collections.abc import Callable


class HangUps:
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
