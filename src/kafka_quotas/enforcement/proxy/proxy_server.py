"""The listeners of the daemon, and the connections that came through them.

Connections on which nothing moves are closed when that has lasted too long, or when a peer turns out to be gone. A
client that hung up while its broker took no bytes is noticed at the second look, within a minute. Invariant:
connections are looked at in slices, so the event loop serves others in between, however many there are.

**Source:** `Selector.IdleExpiryManager` (4.x): `connections.max.idle.ms`.
"""

import asyncio
import itertools
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.groups.membership import Peer
from kafka_quotas.core.resolution.effective import QuotaClient
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.listener_settings import ports_of
from kafka_quotas.enforcement.event_log.charges import ChargeSource, OnCharge
from kafka_quotas.enforcement.proxy.brokers import RouteChange, UpstreamConfig
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionSlot
from kafka_quotas.enforcement.proxy.context import ServerContext
from kafka_quotas.enforcement.proxy.listener import Listener
from kafka_quotas.enforcement.proxy.proxied_connection import ProxiedConnection
from kafka_quotas.enforcement.quotas.quota_registry import NodeId, Route, broker_name
from kafka_quotas.enforcement.session.frames import GatherBudget
from kafka_quotas.enforcement.session.identity import PrincipalTracker
from kafka_quotas.enforcement.session.session import Session
from kafka_quotas.enforcement.session.state import ThrottledChannel
from kafka_quotas.enforcement.telemetry.log import LogEvent
from kafka_quotas.enforcement.telemetry.status import run_sliced
from kafka_quotas.wire.connection.distinguished_name import subject_name

LOOKS: Final = 20
"""Looks per shortest idle time."""
LONGEST_PAUSE_S: Final = 30.0
_GATHERING_PAUSE_S: Final = 1.0
EXPIRY_S: Final = 60.0
SLICE: Final = 100
"""Connections looked at before others get their turn: a millisecond or two, if the kernel is asked about each."""


MOVE_GRACE_S: Final = 5.0
"""Seconds that connections stay with a broker's old address: the other brokers may not all know the new one yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmutedClient:
    """A client whose connections to one broker were unmuted, for one quota."""

    user: str
    client_id: str
    broker: str
    quota: str
    connections: int
    remaining_ms: int
    """Rest of the longest throttle time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmuted:
    """The clients that were unmuted, by name."""

    unmuted: tuple[UnmutedClient, ...]


def is_of(clients: QuotaClient, mute: ThrottledChannel) -> bool:
    """Return whether a muted connection is one of clients by user, client-id or both."""
    return clients.user in (None, mute.limiter.user) and clients.client_id in (None, mute.limiter.client_id)


def by_client(
    channels: Iterable[tuple[NodeId, ThrottledChannel]],
) -> dict[tuple[str, str, str, str], list[ThrottledChannel]]:
    """Return muted connections, given with their brokers, by user, client-id, broker and quota."""
    found: dict[tuple[str, str, str, str], list[ThrottledChannel]] = {}
    for node_id, mute in channels:
        limiter = mute.limiter
        name = (limiter.user, limiter.client_id, broker_name(node_id), limiter.quota_type.key.name)
        found.setdefault(name, []).append(mute)
    return found


def unmuted_clients(channels: Iterable[tuple[NodeId, ThrottledChannel]], now_ms: int) -> tuple[UnmutedClient, ...]:
    """Return a row for each client at each broker and each quota, by name."""
    return tuple(
        UnmutedClient(
            user=user,
            client_id=client_id,
            broker=broker,
            quota=quota,
            connections=len(mutes),
            remaining_ms=max(0, *(mute.until_ms - now_ms for mute in mutes)),
        )
        for (user, client_id, broker, quota), mutes in sorted(by_client(channels).items())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedConnection:
    """A connection that has passed the checks: its listener, number, socket, route, source and slot."""

    listener: Listener
    number: int
    client: socket.socket
    route: Route
    source: Address
    slot: ConnectionSlot


class ProxyServer:
    """Every listener and every connection of a daemon."""

    def __init__(self, context: ServerContext) -> None:
        self.context = context
        self.quotas = quotas = context.quotas
        self.dispatch: Callable[[AcceptedConnection], None] = self.serve
        """Takes every admitted connection, to hand it to another process or to serve it here."""
        self.on_closed: Callable[[int], None] = lambda _: None
        """Called with the number of each connection that has ended."""
        self.on_route: Callable[[Route], None] = lambda _: None
        """Called with each route if its broker becomes known, or moves."""
        self.served = 0
        self.gathering = GatherBudget(context.settings.queued_max_request_bytes)
        self.connections: dict[ProxiedConnection, Route] = {}
        """Every open connection and the route it took."""
        self._empty = asyncio.Event()
        self._empty.set()
        self.listeners: list[Listener] = []
        unnamed, listeners = itertools.count(), context.settings.listeners
        try:
            for each, ports in zip(listeners, ports_of(listeners), strict=True):
                names = [-next(unnamed) or None for _ in each.upstreams]
                self.listeners.append(
                    Listener(
                        context, each, ports=ports, placeholders=names, admitted=self._admitted, changed=self._changed
                    )
                )
        except BaseException:
            self._stop_listening()
            raise
        quotas.on_listener = lambda number, settings: self.listeners[number].follow(settings)

    @property
    def bootstrap(self) -> NodeId:
        """The node id of the first bootstrap server."""
        return self.listeners[0].brokers.routes[0].node_id

    def upstreams(self) -> list[Address]:
        """Return the address of every bootstrap server and broker, each once."""
        return list(dict.fromkeys(route.upstream for listener in self.listeners for route in listener.brokers.routes))

    def routes(self) -> list[tuple[Address, Route]]:
        """Return each address that clients may connect to, and the route from there."""
        return [(listener.advertised(route), route) for listener in self.listeners for route in listener.brokers.routes]

    def meet(self, shared: Route) -> None:
        """Take up a route that another process knows, whose broker is known."""
        for listener in self.listeners:
            if listener.settings.name == shared.listener and shared.node_id is not None:
                listener.meet(shared.node_id, shared)

    def background(self) -> tuple[Callable[[], Coroutine[object, object, None]], ...]:
        """Return the work that never ends: over connections that say nothing, and buckets that nobody uses."""
        return self._watch_quiet, self._watch_gathering, self._expire

    async def _watch_quiet(self) -> None:
        """Look for idle connections and lost peers until cancelled, more often the shorter the idle times are."""
        while True:
            idle_s = [idle_ms / 1000 for each in self.listeners if (idle_ms := each.settings.max_idle_ms) is not None]
            await asyncio.sleep(min([LONGEST_PAUSE_S, *(each / LOOKS for each in idle_s)]))
            for number, connection in enumerate(list(self.connections)):
                if number % SLICE == SLICE - 1:
                    await asyncio.sleep(0)
                connection.look(self.context.clock.now_ms())

    async def _expire(self) -> None:
        quotas = self.quotas
        while True:
            await asyncio.sleep(EXPIRY_S)
            await run_sliced(quotas.registry.expiry(quotas.clock.now_ms()))
            await run_sliced(quotas.connections.expiry(quotas.clock.now_ms()))

    async def _watch_gathering(self) -> None:
        """Report to connections that keep memory for too long that others wait for it, until cancelled."""
        while True:
            await asyncio.sleep(_GATHERING_PAUSE_S)
            for share in self.gathering.overdue(self.context.clock.now_ms()):
                share.on_overdue()

    def unmute(self, clients: QuotaClient) -> Unmuted:
        """End the throttle times of clients by user, client-id or both, and return which clients those were.

        Their measured rates stay: one that is still over its limit waits again after its next request. Kafka has no
        such operation: there a mute lasts until its end, even if the quota changes.
        """
        now_ms = self.context.clock.now_ms()
        ended: list[tuple[NodeId, ThrottledChannel]] = []
        for connection, route in list(self.connections.items()):
            mute = connection.session.state.mute
            if mute is not None and is_of(clients, mute):
                ended.append((route.node_id, mute))
                connection.unmute()
        rows = unmuted_clients(ended, now_ms)
        for row in rows:
            self.context.notify(LogEvent.of("throttle time ended by hand", **asdict(row)))
        return Unmuted(unmuted=rows)

    def throttled(self) -> Iterator[ThrottledChannel]:
        """Yield the throttled channel of each connection that has one: of a mute, or of a Fetch that is held."""
        for connection in self.connections:
            state = connection.session.state
            channel = state.mute or state.held
            if channel is not None:
                yield channel

    async def drain(self, timeout_s: float) -> int:
        """Stop listening and close each connection after its last response.

        Returns:
            The number of connections that were cut because they were still open after the time.
        """
        self._stop_listening()
        for connection in list(self.connections):
            connection.drain()
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            left = list(self.connections)
            for connection in left:
                connection.abort()
            return len(left)
        return 0

    def close(self) -> None:
        """Stop listening and cut every connection."""
        self._stop_listening()
        for connection in list(self.connections):
            connection.abort()

    def _stop_listening(self) -> None:
        for listener in self.listeners:
            listener.close()
        self.context.health.close()

    def _admitted(
        self, listener: Listener, client: socket.socket, route: Route, source: Address, slot: ConnectionSlot
    ) -> None:
        self.served += 1
        accepted = AcceptedConnection(
            listener=listener, number=self.served, client=client, route=route, source=source, slot=slot
        )
        self.dispatch(accepted)

    def serve(self, accepted: AcceptedConnection) -> None:
        """Serve an admitted connection."""
        listener, rules = accepted.listener, accepted.listener.rules
        tracker = PrincipalTracker(
            rules=rules,
            counters=self.context.counters,
            notify=self.context.notify,
            peer=Peer(listener.settings.name, accepted.source.host),
        )
        daemon, node_id = self.quotas, accepted.route.node_id
        quotas = daemon.registry.broker(node_id)
        session = Session(
            quotas=quotas,
            tracker=tracker,
            rules=rules,
            translate=listener.translation(accepted.client),
            throttle_stats=daemon.throttle_stats,
            counters=self.context.counters,
            costs=lambda: daemon.registry.costs,
            on_charge=self._on_charge(accepted, accepted.route),
            factories=daemon.topics.factories(node_id, quotas),
            gathering=self.gathering,
        )
        connection = ProxiedConnection(
            self.context,
            session,
            peer=str(accepted.source),
            on_closed=partial(self._closed, accepted),
            on_client=partial(_certified, listener, tracker),
        )
        connection.max_idle_ms = listener.settings.max_idle_ms
        self.connections[connection] = accepted.route
        self._empty.clear()
        reroute = partial(self._reroute, accepted, connection)
        connection.open(accepted.client, listener.upstream_config(accepted.route), reroute)

    async def _reroute(
        self, accepted: AcceptedConnection, connection: ProxiedConnection, failed: UpstreamConfig
    ) -> UpstreamConfig | None:
        """Record that a broker takes no connection, and lead a bootstrap connection to another one."""
        listener, gone = accepted.listener, self.connections[connection]
        # The other one's limits are the connection's from now on. It was admitted already, so they don't refuse it.
        self.context.counters.upstream_connect_failures += 1
        self.context.health.failed(failed.upstream)
        route = await listener.reached(gone)
        if route is not gone:
            quotas = self.quotas.registry.broker(route.node_id)
            factories = self.quotas.topics.factories(route.node_id, quotas)
            connection.session.move(quotas, factories=factories, on_charge=self._on_charge(accepted, route))
            accepted.slot.move(listener.connections(route))
            accepted.slot.came_from(accepted.source.host)
            self.connections[connection] = route
        return listener.upstream_config(route)

    def _on_charge(self, accepted: AcceptedConnection, route: Route) -> OnCharge | None:
        if self.context.events is None:
            return None
        source = ChargeSource(connection=accepted.number, ip=accepted.source.host, route=route)
        return self.context.events.charges.recorder(source)

    def _changed(self, route: Route, change: RouteChange, before: NodeId) -> None:
        """Follow a route that has changed.

        What was counted for a bootstrap server's placeholder moves to its broker. Connections to an address that is no
        longer the broker's are drained, so that their clients connect again.
        """
        drains = True
        if change is RouteChange.NAMED:
            assert route.node_id is not None
            # If the broker has buckets already, who came in before would not be charged there.
            drains = route.node_id in self.quotas.registry.brokers
            self.quotas.registry.name_bootstrap(route.node_id, before)
            self.quotas.connections.name(before, route.node_id)
            self.quotas.topics.thresholds.name_bootstrap(route.node_id, before)
        else:
            broker, upstream = str(route.node_id), str(route.upstream)
            self.context.notify(LogEvent.of(change.value, broker=broker, upstream=upstream))
        if change is RouteChange.MOVED:
            self.context.loop.call_later(MOVE_GRACE_S, self._drain_route, route, True)  # noqa: FBT003 - by position
        elif drains:
            self.context.loop.call_soon(self._drain_route, route)  # after the response that showed it has gone out
        if route.is_known:
            self.on_route(route)

    def _drain_route(self, route: Route, only_moved: bool = False) -> None:  # noqa: FBT001, FBT002 - a callback
        for connection, taken in list(self.connections.items()):
            config = connection.upstream_config
            if taken is route and not (only_moved and (config is None or config.upstream == route.upstream)):
                connection.drain()

    def _closed(self, accepted: AcceptedConnection, connection: ProxiedConnection) -> None:
        accepted.slot.end()
        self.on_closed(accepted.number)
        self.connections.pop(connection, None)
        self.context.counters.requests += connection.session.state.request_count
        if not self.connections:
            self._empty.set()


def _certified(listener: Listener, tracker: PrincipalTracker, transport: asyncio.Transport) -> None:
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    certificate = None if tls is None else tls.getpeercert(binary_form=True)
    if not certificate:
        return
    try:
        user = listener.mapping.user(subject_name(certificate))
    except ProtocolError:
        user = None
    tracker.take_certificate(user)
