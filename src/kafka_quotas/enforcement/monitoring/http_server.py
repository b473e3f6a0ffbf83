"""A small HTTP server for `/metrics`, `/healthz` and `/readyz`, in the daemon's own event loop."""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from typing import Final

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.monitoring.health import Health
from kafka_quotas.enforcement.proxy.acceptor import bind
from kafka_quotas.enforcement.telemetry.status import run_sliced

IDLE_S: Final = 10.0
MAX_HEAD_BYTES: Final = 16 * 1024
PLACES: Final = b"/metrics\n/healthz\n/readyz\n"
_TEXT: Final = "text/plain; charset=utf-8"
_METRICS: Final = "text/plain; version=1.0.0; charset=utf-8"
_JSON: Final = "application/json"


class MetricsServer:
    """The HTTP server of the metrics in `exposition`, and of the daemon's health.

    Args:
        health: Readiness of the daemon, None in a process that is no daemon.
    """

    def __init__(
        self, address: Address, exposition: Callable[[], Generator[None, None, bytes]], health: Health | None = None
    ) -> None:
        self._address = address
        self._exposition = exposition
        self._health = health
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Start serving and return the port.

        Raises:
            ListenError: The address can't be listened on.
        """
        sock = bind(self._address.host, [self._address.port])
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
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # no HTTP, or gone: the peer sees the connection end
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET " + PLACES, _TEXT)
        status, body, content_type = await self._content(words[1].split(b"?", 1)[0])
        return _response(status, body if words[0] == b"GET" else b"", content_type)

    async def _content(self, place: bytes) -> tuple[str, bytes, str]:
        """Return the status line, body and content type of a path."""
        if place == b"/metrics":
            return "200 OK", await run_sliced(self._exposition()), _METRICS
        if place == b"/healthz":
            return "200 OK", b"alive\n", _TEXT
        if place == b"/readyz" and self._health is not None:
            readiness = await self._health.readiness()
            return "200 OK" if readiness.ready else "503 Service Unavailable", readiness.to_json(), _JSON
        return "404 Not Found", PLACES, _TEXT


def _response(status: str, body: bytes, content_type: str) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
