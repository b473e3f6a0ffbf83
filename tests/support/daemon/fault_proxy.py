"""A TCP proxy on this machine that does to connections what networks do to them.

    reset = Faults(to_client=Fault(cut_after=10, ending=Ending.RESET))
    with fault_proxy("127.0.0.1:9092", lambda number: reset) as proxy:
        proxy.address                     # where to connect to

Each connection, numbered from 0, is asked for its faults as it comes; its bytes are counted.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

from tests.support.brokers.fake_broker import TIMEOUT_S

READ_BYTES = 65_536
_RESET = struct.pack("ii", 1, 0)


class Ending(Enum):
    """How a connection that is cut ends, seen from both of its peers."""

    CLOSE = auto()
    """In order: what was passed arrives, then the end."""
    RESET = auto()
    """By RST, which may overtake what was passed."""
    SILENCE = auto()
    """Not at all: half-open, nothing passes and nobody is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to the bytes of one direction: none of it by default.

    `cut_after` is the number of bytes after which the connection ends, None for never. `delay_s` is waited before each
    piece of at most `piece_bytes` is passed; few bytes and a delay make a slow reader and a slow writer.
    """

    cut_after: int | None = None
    ending: Ending = Ending.CLOSE
    delay_s: float = 0.0
    piece_bytes: int = READ_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What happens to one connection."""

    to_upstream: Fault = Fault()
    to_client: Fault = Fault()


@dataclass(slots=True, kw_only=True)
class Passage:
    """One connection through the proxy: how many bytes passed each way by now.

    A peer may have bytes, and be done, a moment before they are counted.
    """

    faults: Faults
    to_upstream: int = 0
    to_client: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    """Set once both connections are gone and everything is counted."""


@dataclass(slots=True, kw_only=True)
class _Way:
    """One direction of a passage."""

    source: socket.socket
    target: socket.socket
    fault: Fault
    count: Callable[[int], None]


class FaultProxy:
    """Listens in a thread of its own until it is closed.

    Then every connection is gone, silent ones too.
    """

    def __init__(
        self, upstream: str, faults: Callable[[int], Faults], *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        upstream_host, _, upstream_port = upstream.rpartition(":")
        self._upstream = (upstream_host, int(upstream_port))
        self._faults = faults
        self._server = socket.create_server((host, port), backlog=256)
        self._server.setblocking(False)
        self.address = f"{host}:{self._server.getsockname()[1]}"
        self.passages: list[Passage] = []
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the proxy does not end"
        self._server.close()
        self._loop.close()

    async def _run(self) -> None:
        accepting = self._loop.create_task(self._accept())
        await self._ended.wait()
        for task in (accepting, *self._tasks):
            task.cancel()
        await asyncio.gather(accepting, *self._tasks, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            client, _ = await self._loop.sock_accept(self._server)
            passage = Passage(faults=self._faults(len(self.passages)))
            self.passages.append(passage)
            task = self._loop.create_task(self._serve(client, passage))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: socket.socket, passage: Passage) -> None:
        with client, socket.socket() as upstream:
            for each in (client, upstream):
                each.setblocking(False)
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await self._loop.sock_connect(upstream, self._upstream)
                await self._relay(client, upstream, passage)
            except OSError:
                pass  # an end like any other
            finally:
                passage.ended.set()

    async def _relay(self, client: socket.socket, upstream: socket.socket, passage: Passage) -> None:
        def to_upstream(count: int) -> None:
            passage.to_upstream += count

        def to_client(count: int) -> None:
            passage.to_client += count

        ways = (
            _Way(source=client, target=upstream, fault=passage.faults.to_upstream, count=to_upstream),
            _Way(source=upstream, target=client, fault=passage.faults.to_client, count=to_client),
        )
        pumps = [self._loop.create_task(self._pump(way)) for way in ways]
        try:
            while pumps:
                done, left = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                pumps = list(left)
                for pump in done:
                    ending = pump.result()
                    if ending is not None:
                        for other in left:
                            other.cancel()
                        await self._end(ending, client, upstream)
                        return
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, way: _Way) -> Ending | None:
        """How the connection is to end.

        None where the source has ended, which the target is told.
        """
        fault, passed = way.fault, 0
        while fault.cut_after is None or passed < fault.cut_after:
            room = fault.piece_bytes if fault.cut_after is None else min(fault.piece_bytes, fault.cut_after - passed)
            try:
                data = await self._loop.sock_recv(way.source, room)
            except ConnectionError:
                return Ending.RESET
            if not data:
                way.target.shutdown(socket.SHUT_WR)
                return None
            if fault.delay_s:
                await asyncio.sleep(fault.delay_s)
            try:
                await self._loop.sock_sendall(way.target, data)
            except ConnectionError:
                return Ending.RESET
            passed += len(data)
            way.count(len(data))
        return fault.ending

    async def _end(self, ending: Ending, client: socket.socket, upstream: socket.socket) -> None:
        if ending is Ending.RESET:
            for each in (client, upstream):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        elif ending is Ending.SILENCE:
            await self._ended.wait()
        else:
            await asyncio.gather(*(self._closed_in_order(each) for each in (client, upstream)))

    async def _closed_in_order(self, sock: socket.socket) -> None:
        """Tell the peer the end, and take what it still sends: a socket that is closed with bytes unread is reset."""
        with contextlib.suppress(OSError, TimeoutError):
            sock.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(TIMEOUT_S):
                while await self._loop.sock_recv(sock, READ_BYTES):
                    pass


@contextmanager
def fault_proxy(
    upstream: str, faults: Callable[[int], Faults] = lambda _number: Faults(), *, host: str = "127.0.0.1", port: int = 0
) -> Iterator[FaultProxy]:
    """A proxy in front of HOST:PORT that is closed at the end."""
    proxy = FaultProxy(upstream, faults, host=host, port=port)
    try:
        yield proxy
    finally:
        proxy.close()
