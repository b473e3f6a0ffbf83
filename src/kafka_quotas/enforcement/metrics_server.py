"""A small HTTP server for `/metrics` and nothing else, in the daemon's own event loop."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from kafka_quotas.enforcement.address import Address
from kafka_quotas.enforcement.listener import bind

IDLE_S: Final = 10.0
MAX_HEAD_BYTES: Final = 16 * 1024
CONTENT_TYPE: Final = "text/plain; version=1.0.0; charset=utf-8"


class MetricsServer:
    """Serves what `exposition` tells."""

    def __init__(self, address: Address, exposition: Callable[[], bytes]) -> None:
        self._address = address
        self._exposition = exposition
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """The port that is served.

        Raises `ListenError` where it can't be listened on.
        """
        sock = bind(self._address.host, [self._address.port])
        self._server = await asyncio.start_server(self._serve, sock=sock, limit=MAX_HEAD_BYTES)
        port: int = sock.getsockname()[1]
        return port

    async def close(self) -> None:
        """Nothing; the port is closed."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(IDLE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # no HTTP, or gone: whoever asked sees the connection end
        finally:
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET /metrics\n")
        if words[1].split(b"?", 1)[0] != b"/metrics":
            return _response("404 Not Found", b"/metrics\n")
        body = self._exposition()
        return _response("200 OK", body) if words[0] == b"GET" else _response("200 OK", b"")


def _response(status: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
