"""A broker that does what a test says, and sockets that speak to a daemon byte by byte."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kafka_quotas.enforcement.config.address import parse_address

TIMEOUT_S = 120.0
Handler = Callable[[socket.socket], None]


class FakeBroker:
    """Accepts connections and hands each to `handler` in a thread of its own.

    Closes it afterwards.
    """

    def __init__(self, handler: Handler, *, port: int = 0, host: str = "127.0.0.1") -> None:
        self._handler = handler
        self._server = socket.create_server((host, port))
        self.port: int = self._server.getsockname()[1]
        self.address = f"{host}:{self.port}"
        self._connections: list[socket.socket] = []
        self.accepted = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.accepted += 1
            self._connections.append(connection)
            thread = threading.Thread(target=self._handle, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _handle(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self._handler(connection)


@contextmanager
def fake_broker(handler: Handler, *, port: int = 0, host: str = "127.0.0.1") -> Iterator[FakeBroker]:
    """A broker on this machine that does what `handler` does with each connection."""
    broker = FakeBroker(handler, port=port, host=host)
    try:
        yield broker
    finally:
        broker.close()


@contextmanager
def connected(address: str, *, receive_buffer: int | None = None) -> Iterator[socket.socket]:
    """A connection to HOST:PORT whose calls fail after a while instead of hanging."""
    place = parse_address(address)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(TIMEOUT_S)
        sock.connect((place.host, place.port))
        yield sock


def receive(sock: socket.socket, count: int) -> bytes:
    """Exactly `count` bytes.

    Raises `ConnectionError` where the connection ends before.
    """
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise ConnectionError(f"the connection ended after {len(data)} of {count} bytes")
        data += piece
    return data


def receive_frame(sock: socket.socket) -> bytes:
    """One frame, length field included."""
    head = receive(sock, 4)
    return head + receive(sock, struct.unpack(">i", head)[0])


def is_closed(sock: socket.socket) -> bool:
    """Whether the other side ended the connection.

    Waits for it, and passes over what came before.
    """
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        return True
    return True


def answer_question(connection: socket.socket) -> None:
    """Answer the daemon's question before a client's first request: the broker serves the client."""
    frame = receive_frame(connection)
    assert frame[4:8] == b"\x00\x03\x00\x01", f"{frame!r} is no Metadata of version 1"
    connection.sendall(struct.pack(">i", 4) + frame[8:12])


def answer_each(connection: socket.socket) -> None:
    """Answer every request by an empty body under its correlation id, until the connection ends."""
    while True:
        head = connection.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            return
        frame = receive(connection, struct.unpack(">i", head)[0])
        connection.sendall(struct.pack(">i", 4) + frame[4:8])
