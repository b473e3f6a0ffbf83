"""A worker as its parent sees it: a process, and two connections that carry objects in order, some with sockets.

Each message is a length (4 bytes), the number of its sockets (1 byte), and a pickle: both ends are the same program,
and nobody else can reach the pair of sockets.
"""

import asyncio
import pickle
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionSlot
from kafka_quotas.enforcement.sharing.buckets import BucketId
from kafka_quotas.enforcement.sharing.messages import WorkerTotals

_HEAD: Final = struct.Struct(">IB")
_READ_BYTES: Final = 1 << 18
_MAX_SOCKETS: Final = 16
"""Most sockets that one read brings: a message has one at most."""

OnMessage = Callable[[Any, list[socket.socket]], None]


def packed(message: object, sockets: Sequence[socket.socket] = ()) -> bytes:
    """Return the bytes of a message."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(body), len(sockets)) + body


class Channel:
    """One end of the connection, in an event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        *,
        on_message: OnMessage,
        on_closed: Callable[[], None],
    ) -> None:
        """Take over a connected socket.

        Args:
            loop: The event loop.
            sock: The socket, which is closed with the channel.
            on_message: Called with each message and its sockets.
            on_closed: Called once when the other end is gone.
        """
        self._loop = loop
        self._socket = sock
        self._on_message = on_message
        self._on_closed = on_closed
        self._incoming = bytearray()
        self._sockets: deque[socket.socket] = deque()
        self._outgoing: deque[tuple[memoryview, Sequence[socket.socket]]] = deque()
        self.is_closed = False
        sock.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
        loop.add_reader(sock.fileno(), self._readable)

    def send(self, message: object, sockets: Sequence[socket.socket] = ()) -> None:
        """Send a message, and close its sockets here once they are sent."""
        self.send_bytes(packed(message, sockets), sockets)

    def send_bytes(self, data: bytes, sockets: Sequence[socket.socket] = ()) -> None:
        """Send a message that `packed` made."""
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
        try:
            data, fds, _, _ = socket.recv_fds(self._socket, _READ_BYTES, _MAX_SOCKETS, socket.MSG_CMSG_CLOEXEC)
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
            message = pickle.loads(bytes(self._incoming[start + _HEAD.size : end]))  # noqa: S301 - our own process
            start = end
            self._on_message(message, [self._sockets.popleft() for _ in range(count)])
            if self.is_closed:
                return
        del self._incoming[:start]

    def _lost(self) -> None:
        if not self.is_closed:
            self.close()
            self._on_closed()


def receive_blocking(sock: socket.socket) -> tuple[Any, list[socket.socket]]:
    """Return the next message of a blocking socket, with its sockets.

    Raises:
        OSError: The other end is gone.
    """
    head, fds, _, _ = socket.recv_fds(sock, _HEAD.size, _MAX_SOCKETS, socket.MSG_CMSG_CLOEXEC)
    while len(head) < _HEAD.size:
        head += _some(sock, _HEAD.size - len(head))
    length, _ = _HEAD.unpack(head)
    body = bytearray()
    while len(body) < length:
        body += _some(sock, length - len(body))
    return pickle.loads(bytes(body)), [socket.socket(fileno=fd) for fd in fds]  # noqa: S301 - our own process


def send_blocking(sock: socket.socket, message: object) -> None:
    """Send a message without sockets by a blocking socket.

    Raises:
        OSError: The other end is gone.
    """
    sock.sendall(packed(message))


def _some(sock: socket.socket, most: int) -> bytes:
    data = sock.recv(min(most, _READ_BYTES))
    if not data:
        raise ConnectionResetError("the other process is gone")
    return data


PROGRAM: Final = "from kafka_quotas.enforcement.daemon.daemon import run_worker; run_worker()"


@dataclass(slots=True, kw_only=True, eq=False)
class WorkerProcess:
    """A worker's process, its connections to the parent, and what it serves."""

    number: int
    """Number of the worker, which its successor has as well."""
    starts: int
    """How often a worker of this number was started."""
    process: "subprocess.Popen[bytes]"
    started_s: float
    """Time of its start, by the event loop's clock."""
    channel: Channel = field(init=False)
    questions: Channel = field(init=False)
    """Connection for questions that the worker waits for."""
    slots: dict[int, ConnectionSlot] = field(default_factory=dict)
    """The places of its connections in the counts, by their numbers."""
    answers: "dict[int, asyncio.Future[object]]" = field(default_factory=dict)
    """Requests that it has not answered yet."""
    totals: WorkerTotals = field(default_factory=WorkerTotals)
    """Its latest counters."""
    silent_s: float = 0.0
    """Seconds since its last message."""
    waiting: Mapping[BucketId, int] = field(default_factory=dict)
    """How many of its clients are throttled for each bucket."""
    is_ready: bool = False
    cut_connections: int = 0


OnWorkerMessage: TypeAlias = Callable[[WorkerProcess, Any, list[socket.socket]], None]


def start_process(
    loop: asyncio.AbstractEventLoop,
    number: int,
    starts: int,
    *,
    on_message: OnWorkerMessage,
    on_question: OnWorkerMessage,
    on_closed: Callable[[WorkerProcess], None],
) -> WorkerProcess:
    """Start the process of a worker, which waits for its first message.

    Args:
        loop: The parent's event loop.
        number: Number of the worker.
        starts: How often a worker of this number was started, this time included.
        on_message: Called with each message of the worker.
        on_question: Called with each question that the worker waits for.
        on_closed: Called when the process has ended.
    """
    ours, theirs = socket.socketpair()
    questions, asks = socket.socketpair()
    with theirs, asks:
        fds = (theirs.fileno(), asks.fileno())
        command = [sys.executable, "-c", PROGRAM, *map(str, fds)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=fds)  # noqa: S603 - this program
    worker = WorkerProcess(number=number, starts=starts, process=process, started_s=loop.time())
    worker.channel = Channel(
        loop,
        ours,
        on_message=lambda message, sockets: on_message(worker, message, sockets),
        on_closed=lambda: on_closed(worker),
    )
    worker.questions = Channel(
        loop,
        questions,
        on_message=lambda message, sockets: on_question(worker, message, sockets),
        on_closed=lambda: None,
    )
    return worker


def worker_settings(settings: DaemonSettings) -> DaemonSettings:
    """Return a daemon's settings as one of its workers has them."""
    return replace(
        settings,
        workers=1,
        connection_rate=None,
        max_connections=None,
        queued_max_request_bytes=max(1, settings.queued_max_request_bytes // settings.workers),
    )
