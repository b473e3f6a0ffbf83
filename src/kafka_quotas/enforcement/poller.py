"""Which sockets are ready, for any event loop.

The relays have an epoll instance of their own, which the event loop watches like one more socket. uvloop's readers
take a connection that was reset for a bad descriptor and then stay silent, so that a client that is gone would never be
noticed; here an error is an event like any other, also of a socket that nobody wants to read at the moment.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Final, TypeAlias

READABLE: Final = select.EPOLLIN
WRITABLE: Final = select.EPOLLOUT
BROKEN: Final = select.EPOLLHUP | select.EPOLLERR
"""Reported whether asked for or not."""
EVENTS_AT_ONCE: Final = 256

OnEvents: TypeAlias = Callable[[int], None]


class Poller:
    """Calls back with the events of each socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._callbacks: dict[int, OnEvents] = {}
        loop.add_reader(self._epoll.fileno(), self._dispatch)

    def add(self, fd: int, on_events: OnEvents, events: int) -> None:
        """Nothing; these events are reported from now on, as long as they last."""
        self._callbacks[fd] = on_events
        self._epoll.register(fd, events)

    def want(self, fd: int, events: int) -> None:
        """Nothing; these events are reported in place of those before."""
        self._epoll.modify(fd, events)

    def remove(self, fd: int) -> None:
        """Nothing; to be called before the socket is closed."""
        del self._callbacks[fd]
        self._epoll.unregister(fd)

    def close(self) -> None:
        """Nothing; nothing is reported any more."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _dispatch(self) -> None:
        callbacks = self._callbacks
        for fd, events in self._epoll.poll(0, EVENTS_AT_ONCE):
            on_events = callbacks.get(fd)
            if on_events is not None:  # not closed by an earlier event of this round
                on_events(events)
