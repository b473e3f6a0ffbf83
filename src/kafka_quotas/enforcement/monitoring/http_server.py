"""A small HTTP server for `/metrics`, `/healthz` and `/readyz`, in the daemon's own event loop.

Alive is a daemon that answers at all. Ready is one that takes connections and reaches any broker; a store that is lost
makes it no less ready, for its last content stays in force.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import asdict, dataclass
from typing import Final

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.proxy.inherited_sockets import METRICS, InheritedSockets
from kafka_quotas.enforcement.proxy.upstream_health import UpstreamHealth
from kafka_quotas.enforcement.telemetry.status import StoreRow, run_sliced

IDLE_S: Final = 10.0
MAX_HEAD_BYTES: Final = 16 * 1024
PATHS: Final = b"/metrics\n/healthz\n/readyz\n"
_TEXT: Final = "text/plain; charset=utf-8"
_METRICS: Final = "text/plain; version=1.0.0; charset=utf-8"
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The answer to a readiness probe: whether clients should connect, and why not."""

    ready: bool
    draining: bool
    upstream_reachable: bool
    store_trouble: str | None
    """Error of the last access to the store, None without one."""
    store_age_ms: int
    """Time since the store's content was last confirmed."""


async def readiness(
    upstreams: Iterable[Address], health: UpstreamHealth, store: StoreRow, *, draining: bool
) -> Readiness:
    """Return the readiness of a daemon, for which brokers are tried unless it is draining."""
    reachable = not draining and await health.first_answering(upstreams) is not None
    return Readiness(
        ready=reachable,
        draining=draining,
        upstream_reachable=reachable,
        store_trouble=store.trouble,
        store_age_ms=store.age_ms,
    )


class MetricsServer:
    """The HTTP server of the metrics in `exposition`, and of the daemon's health.

    Args:
        readiness: Returns the readiness of the daemon, None in a process that is no daemon.
    """

    def __init__(
        self,
        address: Address,
        exposition: Callable[[], Generator[None, None, bytes]],
        readiness: Callable[[], Awaitable[Readiness]] | None = None,
    ) -> None:
        self._address = address
        self._exposition = exposition
        self._readiness = readiness
        self._server: asyncio.Server | None = None
        self.socket: socket.socket | None = None
        """Listening socket, None before `start`."""

    async def start(self, inherited: InheritedSockets | None = None) -> int:
        """Start serving, at the socket of a predecessor where there is one, and return the port.

        Raises:
            ListenError: The address can't be listened on.
        """
        sock = (inherited or InheritedSockets()).bind(METRICS, self._address.host, [self._address.port])
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
        try:
            async with asyncio.timeout(IDLE_S):
                writer.write(await self._answer(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # no HTTP, or gone: the peer sees the connection end
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET " + PATHS, _TEXT)
        status, body, content_type = await self._content(words[1].split(b"?", 1)[0])
        return _response(status, body if words[0] == b"GET" else b"", content_type)

    async def _content(self, path: bytes) -> tuple[str, bytes, str]:
        if path == b"/metrics":
            return "200 OK", await run_sliced(self._exposition()), _METRICS
        if path == b"/healthz":
            return "200 OK", b"alive\n", _TEXT
        if path == b"/readyz" and self._readiness is not None:
            found = await self._readiness()
            body = json.dumps(asdict(found)).encode() + b"\n"
            return "200 OK" if found.ready else "503 Service Unavailable", body, _JSON
        return "404 Not Found", PATHS, _TEXT


def _response(status: str, body: bytes, content_type: str) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
