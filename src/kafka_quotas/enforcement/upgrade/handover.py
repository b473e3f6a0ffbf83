"""The predecessor's part in an upgrade: it offers its sockets, hands over its state, and reports what it still charges.

Invariants: it serves as before until its successor says that it serves; a successor that ends before that has changed
nothing, but for a moment in which new connections waited.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Final

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import KafkaQuotasError, ProtocolError
from kafka_quotas.enforcement.proxy.listener import Listener
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry, Route
from kafka_quotas.enforcement.state.measured_state import MeasuredState
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.enforcement.upgrade.charges_since import ChargesSince
from kafka_quotas.enforcement.upgrade.messages import (
    LENGTH,
    SERVING,
    STATE,
    Offer,
    OfferedRoute,
    checked_length,
    offer_message,
    packed,
    parsed,
    send_sockets,
)

CHARGES_S: Final = 0.1
"""Seconds between two reports of what was charged while the daemon drains."""
READY_S: Final = 30.0
"""Longest time for which new connections wait for a successor that has the state and doesn't serve."""


class Handover:
    """The upgrades that successors request of a daemon, one at a time.

    Args:
        other_sockets: Returns the listening sockets beside those of clients, by their roles.
        on_given_up: Called when a successor ended too early.
        on_taken_over: Awaited when the successor serves; starts to drain.
    """

    def __init__(
        self,
        *,
        proxy: ProxyServer,
        policy: QuotaRegistry,
        measured: MeasuredState,
        clock: Clock,
        notify: Notify,
        other_sockets: Callable[[], dict[str, socket.socket]],
        on_given_up: Callable[[], Awaitable[None]],
        on_taken_over: Callable[[], Awaitable[None]],
    ) -> None:
        self._proxy = proxy
        self._policy = policy
        self._measured = measured
        self._clock = clock
        self._notify = notify
        self._other_sockets = other_sockets
        self._on_given_up = on_given_up
        self._on_taken_over = on_taken_over
        self._loop = asyncio.get_running_loop()
        self._running: asyncio.Task[None] | None = None
        self._drained = asyncio.Event()

    def begin(self, sock: socket.socket) -> None:
        """Serve the successor at the other end of a connection."""
        if self._running is not None and not self._running.done():
            with contextlib.suppress(OSError):
                sock.send(b'{"ok":false,"error":"another process takes its place already"}\n')
            sock.close()
            return
        self._running = self._loop.create_task(self._run(sock))

    async def close(self) -> None:
        """Report the last charges to a successor, or give up an upgrade under way."""
        self._drained.set()
        if self._running is None:
            return
        if not self.is_taken_over:
            self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError, TimeoutError):
            await asyncio.wait_for(self._running, READY_S)

    is_taken_over = False
    """Whether a successor serves in the daemon's place."""

    async def _run(self, sock: socket.socket) -> None:
        with sock:
            sock.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
            try:
                charges = await self._hand_over(sock)
            except (OSError, TimeoutError, KafkaQuotasError) as error:
                self._proxy.release()
                await self._on_given_up()
                self._notify(LogEvent.failure("upgrade given up; this daemon continues to serve", error))
                return
            except asyncio.CancelledError:
                self._proxy.release()
                raise
            self.is_taken_over = True
            await self._on_taken_over()
            try:
                await self._report(sock, charges)
            except OSError as error:
                self._notify(LogEvent.failure("the successor is gone; what this daemon charges is lost", error))

    async def _hand_over(self, sock: socket.socket) -> ChargesSince:
        sockets = self._proxy.sockets() | self._other_sockets()
        offer = Offer(
            pid=os.getpid(), roles=tuple(sockets), routes=offered_routes(self._proxy), served=self._proxy.served
        )
        await self._loop.sock_sendall(sock, offer_message(offer))
        send_sockets(sock, list(sockets.values()))
        await self._expect(sock, STATE)
        async with asyncio.timeout(READY_S):
            self._proxy.hold()
            charges = ChargesSince(self._policy, self._clock.now_ms())
            pieces = []
            for piece in self._measured.text(charges.note):
                pieces.append(piece)
                await asyncio.sleep(0)
            await self._loop.sock_sendall(sock, packed("".join(pieces)))
            await self._expect(sock, SERVING)
        return charges

    async def _report(self, sock: socket.socket, charges: ChargesSince) -> None:
        """Send what is charged, until the daemon is drained."""
        is_last = False
        while not is_last:
            is_last = self._drained.is_set()
            for charged in charges.take():
                if charged:
                    await self._loop.sock_sendall(sock, packed([asdict(each) for each in charged]))
                await asyncio.sleep(0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), CHARGES_S)

    async def _expect(self, sock: socket.socket, wanted: str) -> None:
        message = await receive_later(self._loop, sock)
        if message != wanted:
            raise ProtocolError(f"the successor sent {message!r} where {wanted!r} belongs")


def offered_routes(proxy: ProxyServer) -> tuple[OfferedRoute, ...]:
    """Return all routes that another process can use."""
    found = (offered_route(listener, route) for listener in proxy.listeners for route in listener.brokers.routes)
    return tuple(route for route in found if route is not None)


def offered_route(listener: Listener, route: Route) -> OfferedRoute | None:
    """Return a route for another process, None while its broker is unknown."""
    is_bootstrap = any(route is each for each in listener.brokers.bootstraps)
    if route.node_id is None or not route.is_named or not (is_bootstrap or route.is_located):
        return None
    return OfferedRoute(
        listener=listener.settings.name,
        node_id=route.node_id,
        host=route.upstream.host,
        port=route.upstream.port,
        is_bootstrap=is_bootstrap,
    )


async def receive_later(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> Any:
    """Return the next message of a socket that does not block.

    Raises:
        ProtocolError: What comes is no message.
        OSError: The peer is gone.
    """
    (length,) = LENGTH.unpack(await _exactly(loop, sock, LENGTH.size))
    return parsed(await _exactly(loop, sock, checked_length(length)))


async def _exactly(loop: asyncio.AbstractEventLoop, sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = await loop.sock_recv(sock, count - len(data))
        if not piece:
            raise ConnectionResetError("the other daemon ended the connection")
        data += piece
    return bytes(data)
