"""A worker as its parent sees it: a process, and two connections over which each end calls methods of the other.

A call is a length (4 bytes), the number of its sockets (1 byte), and a pickle of the function's name and arguments.
Both ends are the same program, and nobody else can reach the pair of sockets. Calls arrive in order.
"""

import asyncio
import pickle
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionSlot
from kafka_quotas.enforcement.quotas.quota_registry import BucketId, Route
from kafka_quotas.enforcement.quotas.store_watcher import ChangedSnapshot
from kafka_quotas.enforcement.telemetry.status import QuotaTotals

_HEAD: Final = struct.Struct(">IB")
_READ_BYTES: Final = 1 << 18
_MAX_SOCKETS: Final = 16
"""Most sockets that one read brings: a message has one at most."""

Called: TypeAlias = Callable[..., None]
"""Takes the name and the arguments of a call, and its sockets after them."""


def packed(name: str, *arguments: object, sockets: Sequence[socket.socket] = ()) -> bytes:
    """Return the bytes of a call."""
    body = pickle.dumps((name, arguments), pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(body), len(sockets)) + body


class Channel:
    """One end of the connection, in an event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, called: Called, *, on_closed: Callable[[], None]
    ) -> None:
        """Take over a connected socket, and call `on_closed` once when the other end is gone."""
        self._loop = loop
        self._socket = sock
        self._called = called
        self._on_closed = on_closed
        self._incoming = bytearray()
        self._sockets: deque[socket.socket] = deque()
        self._outgoing: deque[tuple[memoryview, Sequence[socket.socket]]] = deque()
        self.is_closed = False
        sock.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
        loop.add_reader(sock.fileno(), self._readable)

    def call(self, name: str, *arguments: object, sockets: Sequence[socket.socket] = ()) -> None:
        """Call a function of the other end, and close the sockets here once they are sent."""
        self.send(packed(name, *arguments, sockets=sockets), sockets)

    def send(self, data: bytes, sockets: Sequence[socket.socket] = ()) -> None:
        """Send a call that `packed` made."""
        if self.is_closed:
            for each in sockets:
                each.close()
            return
        self._outgoing.append((memoryview(data), sockets))
        if len(self._outgoing) == 1:
            self._write()

    def close(self) -> None:
        """Close this end."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        for _, sockets in self._outgoing:
            for each in sockets:
                each.close()
        for each in self._sockets:
            each.close()
        self._outgoing.clear()

    def _write(self) -> None:
        while self._outgoing:
            data, sockets = self._outgoing[0]
            try:
                fds = [each.fileno() for each in sockets]
                sent = socket.send_fds(self._socket, [data], fds) if fds else self._socket.send(data)
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._socket.fileno(), self._write)
                return
            except OSError:
                self._lost()
                return
            for each in sockets:
                each.close()
            if sent < len(data):
                self._outgoing[0] = (data[sent:], ())
            else:
                self._outgoing.popleft()
        self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        flags = socket.MSG_CMSG_CLOEXEC  # type: ignore[attr-defined, unused-ignore]  # Linux
        try:
            data, fds, _, _ = socket.recv_fds(self._socket, _READ_BYTES, _MAX_SOCKETS, flags)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, fds = b"", []
        self._sockets.extend(socket.socket(fileno=fd) for fd in fds)
        if not data:
            self._lost()
            return
        self._incoming += data
        start = 0
        while len(self._incoming) - start >= _HEAD.size:
            length, count = _HEAD.unpack_from(self._incoming, start)
            end = start + _HEAD.size + length
            if len(self._incoming) < end:
                break
            name, arguments = pickle.loads(bytes(self._incoming[start + _HEAD.size : end]))  # noqa: S301 - our own process
            start = end
            self._called(name, *arguments, *(self._sockets.popleft() for _ in range(count)))
            if self.is_closed:
                return
        del self._incoming[:start]

    def _lost(self) -> None:
        if not self.is_closed:
            self.close()
            self._on_closed()


def receive_blocking(sock: socket.socket) -> tuple[Any, ...]:
    """Return the arguments of the next call by a blocking socket, which has no sockets."""
    head = sock.recv(_HEAD.size, socket.MSG_WAITALL)
    length = _HEAD.unpack(head)[0] if len(head) == _HEAD.size else 0
    body = bytearray()
    while not body or len(body) < length:
        data = sock.recv(min(length - len(body), _READ_BYTES))
        if not data:
            raise ConnectionResetError("the other process is gone")
        body += data
    arguments: tuple[Any, ...] = pickle.loads(bytes(body))[1]  # noqa: S301 - our own process
    return arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStart:
    """All that a worker needs: the arguments of the first call."""

    worker: int
    settings: DaemonSettings
    clock_offset_ns: int
    """Difference of the daemon's clock from the monotonic one."""
    store_url: str
    snapshot: ChangedSnapshot
    state: str
    """What was measured so far."""
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTotals:
    """A worker's counters since its start, which outlive it."""

    counters: dict[str, int] = field(default_factory=dict)
    quota_totals: tuple[QuotaTotals, ...] = ()


PROGRAM: Final = "from kafka_quotas.enforcement.daemon.daemon import run_worker; run_worker()"


@dataclass(slots=True, kw_only=True, eq=False)
class WorkerProcess:
    """A worker's process, its connections to the parent, and what it serves."""

    number: int
    """Number of the worker, which its successor has as well."""
    starts: int
    process: "subprocess.Popen[bytes]"
    started_s: float
    """Time of its start, by the event loop's clock."""
    channel: Channel = field(init=False)
    questions: Channel = field(init=False)
    slots: dict[int, ConnectionSlot] = field(default_factory=dict)
    """The places of its connections in the counts, by their numbers."""
    answers: "dict[int, asyncio.Future[object]]" = field(default_factory=dict)
    totals: WorkerTotals = field(default_factory=WorkerTotals)
    silent_s: float = 0.0
    """Seconds since its last counters, which come every second."""
    waiting: Mapping[BucketId, int] = field(default_factory=dict)
    """How many of its clients are throttled for each bucket."""
    is_ready: bool = False
    cut_connections: int = 0


def start_process(
    loop: asyncio.AbstractEventLoop,
    number: int,
    starts: int,
    *,
    called: Callable[..., None],
    on_closed: Callable[[WorkerProcess], None],
) -> WorkerProcess:
    """Start the process of a worker, whose calls come with it before their names."""
    ours, theirs = socket.socketpair()
    questions, asks = socket.socketpair()
    with theirs, asks:
        fds = (theirs.fileno(), asks.fileno())
        command = [sys.executable, "-c", PROGRAM, *map(str, fds)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=fds)  # noqa: S603 - this program
    worker = WorkerProcess(number=number, starts=starts, process=process, started_s=loop.time())
    worker.channel = Channel(loop, ours, partial(called, worker), on_closed=partial(on_closed, worker))
    worker.questions = Channel(loop, questions, partial(called, worker), on_closed=lambda: None)
    return worker
