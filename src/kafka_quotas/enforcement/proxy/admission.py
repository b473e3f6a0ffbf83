"""The accepting of connections and the checks before one is served: it waits, is refused, or is handed on.

In the order in which a broker would do it: the rates of listener and broker make all connections after this one wait,
and so does the number of connections that the listener may have. Then the PROXY protocol shows whose connection it is,
and the TLS server name which broker it is for, and at last the rate and the number of its address decide.
A connection counts for its listener from the moment it is accepted, so a silent one takes a place as well. In shadow
mode all that is counted and every connection is served.
**Source:** KIP-612, `SocketServer.Acceptor` (4.x).
"""

import asyncio
import errno
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from ipaddress import ip_address
from typing import Final, TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError, ProtocolError
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings
from kafka_quotas.enforcement.proxy.connection_quotas import BrokerConnectionQuotas, ConnectionSlot
from kafka_quotas.enforcement.proxy.context import ServerContext
from kafka_quotas.enforcement.quotas.quota_registry import Route
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel
from kafka_quotas.wire.connection.preamble import (
    HEAD_BYTES,
    parse_proxy_head,
    proxied_source,
    requested_host,
    wanted_bytes,
)

ACCEPTED_AT_ONCE: Final = 64
"""Connections accepted before the event loop gets its turn again."""
PAUSE_S: Final = 0.5
"""Pause in accepting when the process has no file descriptor left."""
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
MAX_REFUSED: Final = 128
"""Most connections kept open for the delay of an address that made them too fast; the oldest are closed early."""


Admitted: TypeAlias = Callable[[socket.socket, Route, Address, ConnectionSlot], None]
"""Serves a connection that has passed the checks."""


class AdmittingListener(ABC):
    """The part of a listener that its acceptors know."""

    context: ServerContext
    settings: ListenerSettings
    admitted: Admitted

    def connections(self, route: Route) -> BrokerConnectionQuotas:
        """Return the connections to a route's broker."""
        return self.context.quotas.connections.broker(route.node_id)

    @abstractmethod
    def route_by_host(self, host: str | None) -> Route:
        """Return the route for a TLS server name, or raise a `ProtocolError`."""


class Acceptor:
    """One listening socket, which accepts connections, and those that wait there to be admitted.

    Args:
        route: Returns the route of connections at the moment.
        reached: Replaces a route with one to a broker that takes connections, None if it leads to one broker alone.
    """

    def __init__(
        self,
        listener: AdmittingListener,
        sock: socket.socket,
        route: Callable[[], Route],
        *,
        reached: Callable[[Route], Coroutine[object, object, Route]] | None,
    ) -> None:
        self._listener = listener
        self._context = context = listener.context
        self.socket = sock
        self._route = route
        self._reached = reached
        self._is_shadow = context.settings.rules.mode is Mode.SHADOW
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._start(self._accept())

    def close(self) -> None:
        """Stop accepting, and close the connections that are not admitted yet."""
        self._context.loop.remove_reader(self.socket.fileno())
        self.socket.close()
        for task in list(self._tasks):
            task.cancel()
        for client, timer in self._refused.items():
            timer.cancel()
            client.close()
        self._refused.clear()

    async def _accept(self) -> None:
        count = 0
        while True:
            try:
                client, address = self.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):  # none is left, or the client is gone
                await self._until_readable(self.socket)
                continue
            except OSError as error:
                await self._rest(error)
                continue
            client.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
            peer = Address(host=address[0].removeprefix("::ffff:"), port=address[1])
            try:
                connections = self._listener.connections(self._route())
                await self._until_due(connections)
                self._enter(client, peer, connections)
            except BaseException as error:
                client.close()
                if not isinstance(error, Exception):
                    raise
                self._context.notify(LogEvent.failure("client closed before it was served", error, client=str(peer)))
            count += 1
            if count % ACCEPTED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _rest(self, error: OSError) -> None:
        """Log a failed accept, and pause: connections may end meanwhile."""
        self._context.counters.accept_failures += 1
        port, reason = self.socket.getsockname()[1], error.strerror or str(error)
        self._context.notify(LogEvent.of("can't accept connections", LogLevel.ERROR, port=port, error=reason))
        await asyncio.sleep(PAUSE_S if error.errno in _EXHAUSTED else 0.0)

    async def _until_due(self, connections: BrokerConnectionQuotas) -> None:
        """Wait for the rates of listener and broker, and for room. A broker's acceptor blocks here too."""
        self._context.counters.connections_accepted += 1
        settings = self._listener.settings
        delay_ms = connections.listener_delay_ms(settings.name, settings.connection_rate, self._context.clock.now_ms())
        is_late = delay_ms > 0 or connections.is_full(settings)
        self._context.counters.connections_delayed += is_late
        if is_late and not self._is_shadow:
            await asyncio.sleep(delay_ms / 1000)
            while connections.is_full(self._listener.settings):
                await connections.one_ended()

    async def _until_readable(self, sock: socket.socket) -> None:
        readable = asyncio.Event()
        self._context.loop.add_reader(sock.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            if sock.fileno() >= 0:  # `close` has closed it otherwise, and its number may be another's
                self._context.loop.remove_reader(sock.fileno())

    def _enter(self, client: socket.socket, peer: Address, recorded: BrokerConnectionQuotas) -> None:
        route, settings = self._route(), self._listener.settings
        connections = self._listener.connections(route)
        slot = connections.began(settings.name, recorded=recorded)
        is_proxied = settings.proxy_sources is not None
        if not is_proxied and not settings.shares_port and self._reached is None:
            self._admit(client, peer, route, slot)
        elif not is_proxied and self._is_one_too_many(connections, peer):
            slot.end()
            client.close()
        else:
            if not is_proxied:
                slot.came_from(peer.host)
            self._start(self._look(client, peer, slot))

    async def _look(self, client: socket.socket, peer: Address, slot: ConnectionSlot) -> None:
        listener, settings = self._listener, self._listener.settings
        try:
            async with asyncio.timeout(self._context.settings.connect_timeout_s):
                source = peer if settings.proxy_sources is None else await self._proxied(client, peer)
                route = await self._asked_for(client) if settings.shares_port else self._route()
                route = route if self._reached is None else await self._reached(route)
            connections = listener.connections(route)
            while not self._is_shadow and not connections.has_room_for(slot, listener.settings):
                await connections.one_ended()
        except (KafkaQuotasError, OSError) as error:
            client.close()
            slot.end()
            self._context.counters.connections_failed += 1
            self._context.counters.protocol_errors += isinstance(error, ProtocolError)
            reason = error.message if isinstance(error, KafkaQuotasError) else str(error) or "nothing came in time"
            self._log("client closed before it was served", peer, error=reason)
        except asyncio.CancelledError:
            client.close()
            slot.end()
            raise
        else:
            self._admit(client, source, route, slot)

    async def _proxied(self, client: socket.socket, peer: Address) -> Address:
        networks = self._listener.settings.proxy_sources or ()
        if not any(ip_address(peer.host.partition("%")[0]) in network for network in networks):
            raise ProtocolError(
                f"{peer.host} may not say whose connection it passes on", hint="proxy.protocol.trusted lists who may"
            )
        head = parse_proxy_head(await self._receive(client, HEAD_BYTES))
        source = proxied_source(head, await self._receive(client, head.rest_bytes))
        return peer if source is None else Address(host=source.ip.removeprefix("::ffff:"), port=source.port)

    async def _receive(self, client: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = await self._context.loop.sock_recv(client, count - len(data))
            if not piece:
                raise ProtocolError("the connection ended inside its PROXY protocol header")
            data += piece
        return data

    async def _asked_for(self, client: socket.socket) -> Route:
        """Return the route for the server name of a TLS client, and leave its message to be read."""
        seen = b""
        while (wanted := wanted_bytes(seen)) > len(seen):
            seen = await self._peek(client, wanted)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)  # the kernel's default again
        return self._listener.route_by_host(requested_host(seen))

    async def _peek(self, client: socket.socket, count: int) -> bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)  # readable only once `count` bytes are there
        await self._until_readable(client)
        seen = client.recv(count, socket.MSG_PEEK)
        if len(seen) < count:
            raise ProtocolError("the client ended its connection before TLS began")
        return seen

    def _admit(self, client: socket.socket, source: Address, route: Route, slot: ConnectionSlot) -> None:
        connections, now_ms = self._listener.connections(route), self._context.clock.now_ms()
        slot.move(connections)
        delay_ms = connections.record_ip(source.host, 1, now_ms, listener=slot.listener)
        if delay_ms > 0:
            # What is not served counts for no rate (`recordIpConnectionMaybeThrottle` unrecords it everywhere).
            slot.take_back_rate(now_ms)
            self._context.counters.connections_throttled += 1
        if delay_ms > 0 and not self._is_shadow:
            slot.end()
            self._refuse_later(client, delay_ms)  # an immediate close would invite an immediate reconnect
        elif not delay_ms and self._is_one_too_many(connections, source):
            slot.end()
            client.close()
        else:
            slot.came_from(source.host)
            self._listener.admitted(client, route, source, slot)

    def _is_one_too_many(self, connections: BrokerConnectionQuotas, source: Address) -> bool:
        if not connections.is_refused(self._listener.settings, source.host):
            return False
        self._context.counters.connections_refused += 1
        if not self._is_shadow:
            self._log("connection refused: its address has as many as it may", source)
        return not self._is_shadow

    def _refuse_later(self, client: socket.socket, delay_ms: int) -> None:
        if len(self._refused) >= MAX_REFUSED:
            oldest = next(iter(self._refused))
            self._refused[oldest].cancel()
            self._end_refused(oldest)
        self._refused[client] = self._context.loop.call_later(delay_ms / 1000, self._end_refused, client)

    def _end_refused(self, client: socket.socket) -> None:
        self._refused.pop(client, None)
        client.close()

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = self._context.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _log(self, event: str, peer: Address, **fields: str) -> None:
        listener = self._listener.settings.name
        self._context.notify(LogEvent.of(event, LogLevel.WARNING, client=str(peer), listener=listener, **fields))
