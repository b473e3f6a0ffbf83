"""A small HTTP server in an event loop: metrics and probes for machines, pages for browsers.

Contract: it answers GET and HEAD alone and changes nothing. Every response forbids a browser to load anything from
elsewhere, to run a script that is no file of ours, or to show the page inside another one.
A page answers only a browser that asked for an address, for `localhost`, or for a name of this machine. The page of a
stranger whose own name was made to lead here (DNS rebinding) could read it otherwise. Metrics and probes answer to any
name, because orchestrators make names up.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.address import Address, parse_address
from kafka_quotas.enforcement.proxy.inherited_sockets import METRICS, InheritedSockets
from kafka_quotas.enforcement.telemetry.log import error_text

IDLE_S: Final = 10.0
"""Longest time that a request may take to arrive."""
ANSWER_S: Final = 60.0
"""Longest time that an answer may take, its way to the client included."""
MAX_HEAD_BYTES: Final = 16 * 1024
MAX_FIELDS: Final = 16
"""Most fields of a query."""
MAX_CONNECTIONS: Final = 256
"""Most connections at a time: a further one is closed at once."""
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
"""Handlers by path."""


def json_reply(value: object, *, status: str = _OK) -> HttpReply:
    """Return an answer of JSON on one line."""
    return HttpReply(body=json.dumps(value, separators=(",", ":")).encode() + b"\n", content_type=JSON, status=status)


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
        self._address = address
        self._routes = routes or {}
        self._pages = pages or {}
        self._on_defect = on_defect
        self._names = {"localhost", socket.gethostname().lower(), address.host.lower()}
        self._connections = 0
        self._server: asyncio.Server | None = None
        self.socket: socket.socket | None = None
        """Listening socket, None before `start`."""

    async def start(self, inherited: InheritedSockets | None = None) -> int:
        """Start serving, at the socket of a predecessor where there is one, and return the port.

        Raises:
            ListenError: The address can't be listened on.
        """
        sock = (inherited or InheritedSockets()).bind(
            METRICS, self._address.host, [self._address.port], hint="choose another address or port"
        )
        self.socket = sock
        self._server = await asyncio.start_server(self._serve, sock=sock, limit=MAX_HEAD_BYTES)
        port: int = sock.getsockname()[1]
        return port

    async def close(self) -> None:
        """Close the port."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections > MAX_CONNECTIONS:
                return
            async with asyncio.timeout(IDLE_S):
                head = await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(ANSWER_S):
                writer.write(await self._answer(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # no HTTP, or gone: the peer sees the connection end
        finally:
            self._connections -= 1
            writer.close()

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
        except ValueError as error:  # more fields, or a value that is no text
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
        """Return an error that names the paths there are."""
        body = "".join(f"{path}\n" for path in (*self._pages, *self._routes))
        return HttpReply(body=body.encode(), content_type=TEXT, status=status)


def _response(reply: HttpReply, *, has_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {reply.status}\r\nContent-Type: {reply.content_type}\r\nContent-Length: {len(reply.body)}\r\n"
        f"{_SECURITY}Connection: close\r\n\r\n"
    )
    return head.encode() + (reply.body if has_body else b"")
