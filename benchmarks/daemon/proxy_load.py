"""Load for a proxy, with as little of its own as can be: frames made once, a broker that answers without looking.

Both sides run in processes of their own, so that the proxy's CPU time is all that is measured of it.
"""

import multiprocessing
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from kafka_quotas.core.model.api_key import ApiKey

CLIENT_ID = b"bench"
_HEAD = struct.Struct(">ihhi")
_PRODUCE, _FETCH = ApiKey.PRODUCE.value, ApiKey.FETCH.value
SMALL_ANSWER = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iihqqq", 1, 0, 0, 5, -1, 0) + bytes(4)
"""Body of a Produce response, and of a Metadata response that names a broker, for which a proxy may ask first."""
_BUFFER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """So many requests (or responses, for fetches) of a size in bytes, with so many in flight on one connection."""

    name: str
    api_key: int
    size: int
    in_flight: int
    count: int

    @property
    def megabytes(self) -> float:
        """What passes the proxy in the direction that counts (10^6 bytes)."""
        return self.size * self.count / 1e6


def produce(name: str, *, size: int, in_flight: int, count: int) -> Workload:
    return Workload(name=name, api_key=_PRODUCE, size=size, in_flight=in_flight, count=count)


def fetch(name: str, *, size: int, count: int) -> Workload:
    return Workload(name=name, api_key=_FETCH, size=size, in_flight=1, count=count)


@contextmanager
def broker(serve: Callable[[Connection], None] | None = None) -> Iterator[int]:
    """Run a broker in a process of its own and yield its port, which `serve` sends once it listens."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=serve or _serve, args=(sender,), daemon=True)
    process.start()
    try:
        yield receiver.recv()
    finally:
        process.kill()
        process.join()


def run(port: int, workload: Workload, *, tls: bool = False) -> None:
    """Send the workload through the proxy at `port`, over TLS if that is spoken there."""
    process = multiprocessing.Process(target=_drive, args=(port, workload), kwargs={"tls": tls})
    process.start()
    process.join()
    if process.exitcode != 0:
        raise SystemExit(f"the load {workload.name} failed")


def _connected(port: int, *, tls: bool) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not tls:
        return sock
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is the proxy's cost that is measured
    return context.wrap_socket(sock)


def _drive(port: int, workload: Workload, *, tls: bool) -> None:
    frame = request(workload)
    buffer = bytearray(_BUFFER_BYTES)
    with _connected(port, tls=tls) as sock:
        sent = min(workload.in_flight, workload.count)
        for _ in range(sent):
            sock.sendall(frame)
        answered = 0
        pending = 0
        head = b""
        while answered < workload.count:
            received = sock.recv_into(buffer)
            if not received:
                raise SystemExit("the proxy closed the connection")
            ended, pending, head = _frames_ended(memoryview(buffer)[:received], pending, head)
            answered += ended
            for _ in range(min(ended, workload.count - sent)):  # one by one, as a client's requests come to be
                sock.sendall(frame)
                sent += 1


def request(workload: Workload) -> bytes:
    """Return the one request to repeat, where a fetch carries the size of its answer as its longest wait."""
    start = struct.pack(">h", len(CLIENT_ID)) + CLIENT_ID
    if workload.api_key == _FETCH:
        body = struct.pack(">iiiibii", -1, workload.size, 1, 1 << 30, 0, 0, -1) + bytes(8) + bytes(2)
        version = 11
    else:
        body = struct.pack(">hhii", -1, 1, 30000, 1) + bytes(max(0, workload.size - 12 - len(start) - 12 - 4))
        version = 7
    content = struct.pack(">hhi", workload.api_key, version, 1) + start + body
    return struct.pack(">i", len(content)) + content


def _frames_ended(data: memoryview, pending: int, head: bytes) -> tuple[int, int, bytes]:
    """How many frames ended in the data, how much of the last is missing, and the beginning of a length field."""
    ended = position = 0
    while position < len(data):
        if pending:
            step = min(pending, len(data) - position)
            position += step
            pending -= step
            ended += not pending
            continue
        take = min(4 - len(head), len(data) - position)
        head += bytes(data[position : position + take])
        position += take
        if len(head) == 4:
            pending, head = struct.unpack(">i", head)[0], b""
    return ended, pending, head


def _serve(port_to: Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port_to.send(server.getsockname()[1])
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    """Answer each request: Produce with little, Fetch with as much as it asks for."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    filler = bytes(_BUFFER_BYTES)
    kept = 0
    left = 0  # of a request that is being passed over
    answer = b""
    with connection:
        while received := connection.recv_into(buffer[kept:]):
            end = kept + received
            position = 0
            while position < end:
                if left:
                    step = min(left, end - position)
                    position += step
                    left -= step
                    if not left:
                        connection.sendall(answer)
                    continue
                if end - position < _HEAD.size:
                    break
                length, api_key, _, correlation_id = _HEAD.unpack_from(buffer, position)
                if api_key == _FETCH and end - position < 12 + 2 + len(CLIENT_ID) + 8:
                    break
                left = length + 4
                body = SMALL_ANSWER
                if api_key == _FETCH:
                    size = struct.unpack_from(">i", buffer, position + 14 + len(CLIENT_ID) + 4)[0]
                    body = bytes(4) + filler[: size - 12]
                answer = struct.pack(">ii", 4 + len(body), correlation_id) + body
            buffer[: end - position] = bytes(buffer[position:end])
            kept = end - position
