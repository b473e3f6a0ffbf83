"""What all listeners and connections of a daemon share: its loop and figures, its ports, and long work in turns."""

import asyncio
import contextlib
import ctypes
import socket
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, TypeAlias

from kafka_quotas.enforcement.config.address import Address, ListenError
from kafka_quotas.enforcement.event_log.charges import EventLogWriter
from kafka_quotas.enforcement.proxy.brokers import UpstreamHealth
from kafka_quotas.enforcement.proxy.proxy_quotas import ProxyQuotas
from kafka_quotas.enforcement.proxy.transport import PeerCloseWatcher

SLICE_S: Final = 0.001
"""Time for which the loop does long work at once. The pause after it is as long: half of a core at most."""


class SlicedWork:
    """The long work of all connections, which take turns."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._steps: deque[Callable[[], bool]] = deque()

    def add(self, step: Callable[[], bool]) -> None:
        """Call a step from now on, until it returns that nothing is left."""
        self._steps.append(step)
        if len(self._steps) == 1:
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        began = perf_counter()
        step = self._steps[0]
        while step():
            if perf_counter() - began >= SLICE_S:
                self._steps.rotate(-1)
                break
        else:
            self._steps.popleft()
        if self._steps:
            self._loop.call_later(perf_counter() - began, self._run)


BEAT_S: Final = 0.02
"""Time between two looks at the clock: a longer stall is found, and measured up to this much too short."""
_WINDOW_S: Final = 30.0


class LoopStalls:
    """The longest time lately for which the event loop served nobody."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._longest_s = self._earlier_s = 0.0
        self._due = perf_counter()
        self._window_end = self._due + _WINDOW_S
        loop.call_soon(self._beat)

    @property
    def longest_ms(self) -> float:
        """The longest stall of the last 30 to 60 seconds, so that it is in one scrape at least."""
        return 1000 * max(self._longest_s, self._earlier_s)

    def _beat(self) -> None:
        now = perf_counter()
        self._longest_s = max(self._longest_s, now - self._due)
        if now >= self._window_end:
            self._earlier_s, self._longest_s = self._longest_s, 0.0
            self._window_end = now + _WINDOW_S
        self._due = now + BEAT_S
        self._loop.call_later(BEAT_S, self._beat)


LARGE_BYTES: Final = 1024 * 1024
"""Buffers from this size on return to the system when they are freed: more than any read, also by TLS."""
_SPARE_BYTES: Final = 1024 * 1024
"""Free memory that the heap keeps at its end. With glibc's 128 KiB each read by TLS would have its pages made anew."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


BACKLOG: Final = 1024
_ANY_IPV6: Final = "::"
_BIND_HINT: Final = "choose another --listen address, or widen --port-range"


def bind(host: str, port: int, *, hint: str = _BIND_HINT) -> socket.socket:
    """Open a listening, non-blocking socket on a port, 0 for any free one.

    `::` listens on every address of this machine, IPv4 included, as it does in the JVM of a broker.
    """
    try:
        family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        address = (str(found[0]), port)
        is_dual = address[0] == _ANY_IPV6 and socket.has_dualstack_ipv6()
        sock = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=is_dual)
    except OSError as error:
        raise ListenError(f"can't listen on {host}: {error.strerror or error}", hint=hint) from error
    sock.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
    return sock


PortOf: TypeAlias = Callable[[str, Address | None], int]
"""Has the main process listen in a role, and returns the port. A role of a broker comes with the broker's address."""


class ServerContext:
    """What all listeners and connections of a daemon share."""

    def __init__(
        self, quotas: ProxyQuotas, *, events: EventLogWriter | None = None, port_of: PortOf | None = None
    ) -> None:
        """Make the context of a process, which listens itself without `port_of`."""
        # Keeps glibc from raising that size to the largest buffer freed so far: see mallopt(3).
        with contextlib.suppress(OSError, AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
            mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)
        self.loop = loop = asyncio.get_running_loop()
        self.quotas, self.settings = quotas, quotas.settings
        self.clock, self.counters, self.notify = quotas.clock, quotas.counters, quotas.notify
        self.events = events
        self.port_of = port_of
        self.health = UpstreamHealth()
        self.close_watcher = PeerCloseWatcher(loop)
        self.sliced = SlicedWork(loop)
        self.stalls = LoopStalls(loop)
