"""A small HTTP server in an event loop: metrics and probes for machines, pages for browsers.

Contract: it answers GET and HEAD alone and changes nothing. Every response forbids a browser to load anything from
elsewhere, to run a script that is not a file of ours, or to show the page inside another one.
A page answers only a browser that asked for an address, for `localhost`, or for a name of this machine. The page of a
stranger whose own name was made to lead here (DNS rebinding) could read it otherwise. Metrics and probes answer to any
name, because orchestrators make names up.
A new connection is always taken. Where its address, or all together, have as many as they may, another one gives way:
the oldest whose request has not arrived, else the oldest that is slow to read its answer, else the oldest. So probes
are answered however many connections others hold open.
"""

import asyncio
import contextlib
import json
import signal
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_address
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.address import Address, parse_address
from kafka_quotas.enforcement.proxy.context import bind
from kafka_quotas.enforcement.telemetry.log import error_text

IDLE_S: Final = 10.0
"""Longest time that a request may take to arrive."""
ANSWER_S: Final = 60.0
"""Longest time that an answer may take to be made."""
READ_S: Final = 20.0
"""Longest time that a client may take to read an answer."""
PAUSE_S: Final = 0.1
"""Pause in accepting when the process has no file descriptor left."""
MAX_HEAD_BYTES: Final = 16 * 1024
MAX_FIELDS: Final = 16
MAX_CONNECTIONS: Final = 64
"""Most connections at a time, within the descriptors that clients leave to everything else."""
MAX_PER_ADDRESS: Final = 24
"""Most connections of one address at a time."""
_RESET: Final = struct.pack("ii", 1, 0)
"""Value of `SO_LINGER` by which the kernel drops what was not sent."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
_OK: Final = "200 OK"
_SECURITY: Final = (
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Cache-Control: no-store\r\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """The answer to a request."""

    body: bytes
    content_type: str
    status: str = _OK
    """Number and reason, as in the first line of a response."""


Query: TypeAlias = Mapping[str, str]
"""The fields of a request's query, the last of each name."""
HttpHandler: TypeAlias = Callable[[Query], Awaitable[HttpReply]]
"""Makes the answer. A `KafkaQuotasError` becomes error 503 with its message and hint as JSON, any other 500."""
HttpRoutes: TypeAlias = Mapping[str, HttpHandler]


def json_reply(value: object, *, status: str = _OK) -> HttpReply:
    """Return an answer of JSON on one line."""
    return HttpReply(body=json.dumps(value, separators=(",", ":")).encode() + b"\n", content_type=JSON, status=status)


class _Phase(IntEnum):
    """Phase of a connection, in the order in which they give way."""

    ARRIVING = 0
    READING = 1
    """Its client reads the answer."""
    ANSWERING = 2
    ANSWERED = 3


@dataclass(slots=True, kw_only=True, eq=False)
class _Connection:
    socket: socket.socket
    host: str
    phase: _Phase = _Phase.ARRIVING

    def close(self) -> None:
        if self.phase is _Phase.READING:  # the kernel would keep what is unread, too
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.socket.close()


class HttpServer:
    """The HTTP server at an address.

    Args:
        routes: Paths that answer to any host name.
        pages: Paths that answer only to addresses and names of this machine.
        on_defect: Takes an exception that is no `KafkaQuotasError`.
    """

    def __init__(
        self,
        address: Address,
        *,
        routes: HttpRoutes | None = None,
        pages: HttpRoutes | None = None,
        on_defect: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self.address = address
        self._routes = routes or {}
        self._pages = pages or {}
        self._on_defect = on_defect
        self._names = {"localhost", socket.gethostname().lower(), address.host.lower()}
        self._connections: dict[_Connection, asyncio.Task[None]] = {}
        """The open ones with the tasks that serve them, oldest first."""
        self._accepting: asyncio.Task[None] | None = None
        self.socket: socket.socket | None = None
        """Listening socket, None before `start`."""

    async def start(self) -> int:
        """Start serving, and return the port.

        Raises:
            ListenError: The address can't be listened on.
        """
        sock = bind(self.address.host, self.address.port, hint="choose another address or port")
        self.socket = sock
        self._accepting = asyncio.get_running_loop().create_task(self._accept(sock))
        port: int = sock.getsockname()[1]
        return port

    async def close(self) -> None:
        """Close the port and, after a second for answers under way, all connections."""
        if self._accepting is None or self.socket is None:
            return
        self._accepting.cancel()
        await asyncio.wait((self._accepting,))
        self.socket.close()
        if self._connections:
            _, late = await asyncio.wait(set(self._connections.values()), timeout=1.0)
            for task in late:
                task.cancel()

    async def _accept(self, sock: socket.socket) -> None:
        """Accept connections one at a time, so that each is read from before the next is taken."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(sock)
            except OSError:  # no descriptor is left, or the peer is gone
                self._give_way(self._connections)
                await asyncio.sleep(PAUSE_S)
                continue
            self._take(_Connection(socket=accepted, host=str(address[0])), loop)

    def _take(self, connection: _Connection, loop: asyncio.AbstractEventLoop) -> None:
        same = [each for each in self._connections if each.host == connection.host]
        if len(same) >= MAX_PER_ADDRESS or len(self._connections) >= MAX_CONNECTIONS:
            self._give_way(same if len(same) >= MAX_PER_ADDRESS else self._connections)
        self._connections[connection] = task = loop.create_task(self._serve(connection, loop))
        task.add_done_callback(lambda _: self._ended(connection))

    def _give_way(self, connections: Iterable[_Connection]) -> None:
        given = min(connections, key=lambda each: each.phase, default=None)
        if given is not None:
            self._connections.pop(given).cancel()

    def _ended(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)
        connection.close()

    async def _serve(self, connection: _Connection, loop: asyncio.AbstractEventLoop) -> None:
        # What is no HTTP, or gone, sees its connection end.
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(IDLE_S):
                head = await _head(connection.socket, loop)
            if head is None:
                return
            connection.phase = _Phase.ANSWERING
            async with asyncio.timeout(ANSWER_S):
                answer = await self._answer(head)
            connection.phase = _Phase.READING
            async with asyncio.timeout(READ_S):
                await loop.sock_sendall(connection.socket, answer)
            connection.phase = _Phase.ANSWERED

    async def _answer(self, head: bytes) -> bytes:
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or words[0] not in ("GET", "HEAD"):
            return _response(self._paths("405 Method Not Allowed"), has_body=True)
        reply = await self._reply(words[1], [line.partition(":") for line in lines])
        return _response(reply, has_body=words[0] == "GET")

    async def _reply(self, target: str, headers: list[tuple[str, str, str]]) -> HttpReply:
        try:
            parts = urlsplit(target)
        except ValueError:
            return HttpReply(body=b"not a path\n", content_type=TEXT, status="400 Bad Request")
        page = self._pages.get(parts.path)
        hosts = [value.strip() for name, _, value in headers if name.strip().lower() == "host"]
        if page is not None and not (len(hosts) == 1 and self._is_ours(hosts[0])):
            return HttpReply(
                body=b"this page answers to an address of its machine, to localhost and to the machine's own name\n",
                content_type=TEXT,
                status="421 Misdirected Request",
            )
        handler = page or self._routes.get(parts.path)
        if handler is None:
            return self._paths("404 Not Found")
        return await self._answer_of(handler, parts.query)

    async def _answer_of(self, handler: HttpHandler, query: str) -> HttpReply:
        try:
            return await handler(dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_FIELDS)))
        except KafkaQuotasError as error:
            return json_reply({"error": error.message, "hint": error.hint}, status="503 Service Unavailable")
        except ValueError as error:  # more fields, or a value that is not a text
            return json_reply({"error": str(error), "hint": None}, status="400 Bad Request")
        except Exception as error:  # noqa: BLE001 - one request's defect must not reach the event loop
            self._on_defect(error)
            return json_reply({"error": error_text(error), "hint": None}, status="500 Internal Server Error")

    def _is_ours(self, host: str) -> bool:
        """Return whether a browser asked for an address or a name that nobody else can make lead here."""
        try:
            name = parse_address(host if host.rpartition(":")[2].isdigit() else f"{host}:80").host.lower()
        except KafkaQuotasError:
            return False
        try:
            ip_address(name)
        except ValueError:
            return name in self._names or name.endswith(".localhost")
        return True

    def _paths(self, status: str) -> HttpReply:
        body = "".join(f"{path}\n" for path in (*self._pages, *self._routes))
        return HttpReply(body=body.encode(), content_type=TEXT, status=status)


def serve_until_stopped(
    server: HttpServer | None,
    serving: Callable[[Address], None],
    work: Callable[[], Awaitable[object]] | None = None,
    *,
    every_s: float = 0.0,
) -> None:
    """Serve until SIGTERM or Ctrl-C, and do some work anew `every_s` seconds after its end.

    `serving` takes the address once the server can be reached. An error of the work ends everything.
    """

    async def serve() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        stopping = asyncio.create_task(stop.wait())
        async with contextlib.AsyncExitStack() as stack:
            if server is not None:
                port = await server.start()
                stack.push_async_callback(server.close)
                serving(Address(host=server.address.host, port=port))
            while work is not None and not stop.is_set():
                working = asyncio.ensure_future(work())
                await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
                if working.done():
                    working.result()
                await asyncio.wait((stopping,), timeout=every_s)
            await stopping

    asyncio.run(serve())


async def _head(sock: socket.socket, loop: asyncio.AbstractEventLoop) -> bytes | None:
    head = bytearray()
    while len(head) < MAX_HEAD_BYTES:
        received = await loop.sock_recv(sock, MAX_HEAD_BYTES)
        if not received:
            return None
        head += received
        end = head.find(b"\r\n\r\n", max(0, len(head) - len(received) - 3))
        if end >= 0:
            return bytes(head[:end])
    return None


def _response(reply: HttpReply, *, has_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {reply.status}\r\nContent-Type: {reply.content_type}\r\nContent-Length: {len(reply.body)}\r\n"
        f"{_SECURITY}Connection: close\r\n\r\n"
    )
    return head.encode() + (reply.body if has_body else b"")
