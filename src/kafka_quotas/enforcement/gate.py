"""The doors of the daemon: its listeners, and the connections that came through them."""

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

from kafka_quotas.enforcement.address import Address, parse_address
from kafka_quotas.enforcement.broker_directory import BrokerDirectory, Route
from kafka_quotas.enforcement.event_log import ChargeSource, OnCharge, PendingCharges
from kafka_quotas.enforcement.identity import Identity
from kafka_quotas.enforcement.ledger import Ledger
from kafka_quotas.enforcement.listener import Listener, bind
from kafka_quotas.enforcement.notice import Notice
from kafka_quotas.enforcement.policy import Policy
from kafka_quotas.enforcement.relay import Relay, RelayRoom
from kafka_quotas.enforcement.rules import Rules
from kafka_quotas.enforcement.session import Session
from kafka_quotas.enforcement.settings import DaemonSettings

PORTS_TRIED: Final = 1000
"""How many ports behind the bootstrap listener's are tried for the listeners of brokers."""
_ANY: Final = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound to


class Gate:
    """Every listener and every connection of a daemon."""

    def __init__(
        self,
        room: RelayRoom,
        *,
        settings: DaemonSettings,
        policy: Policy,
        ledger: Ledger,
        charges: PendingCharges | None = None,
    ) -> None:
        self._room = room
        self._charges = charges
        self._settings = settings
        self._policy = policy
        self.ledger = ledger
        self._listeners: list[Listener] = []
        self._connections: dict[Relay, Route] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        bootstrap = Route(node_id=None, port=settings.listen.port, upstream=settings.upstream)
        bootstrap.port = self._open(bootstrap, [settings.listen.port])
        self.directory = BrokerDirectory(
            bootstrap, open_listener=self._open_for_broker, name_bootstrap=policy.name_bootstrap
        )

    @property
    def connections(self) -> dict[Relay, Route]:
        """Every open connection and the route it took."""
        return self._connections

    def advertised(self, port: int) -> Address:
        """What clients are told for a listener's port, where it does not depend on the way they came."""
        return Address(host=self._settings.advertised_host or self._settings.listen.host, port=port)

    async def drain(self, timeout_s: float) -> int:
        """How many connections had to be cut; all others answered what had been asked before they closed."""
        self._stop_listening()
        for relay in list(self._connections):
            relay.drain()
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            cut = len(self._connections)
            self.close()
            return cut
        return 0

    def close(self) -> None:
        """Nothing; listeners and connections are closed."""
        self._stop_listening()
        for relay in list(self._connections):
            relay.abort()

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _open_for_broker(self, route: Route) -> int:
        first, last = self._settings.port_range or _behind(self.directory.routes[0].port)
        port = self._open(route, range(first, last + 1))
        self._room.notify(
            Notice(
                event="listener opened",
                fields={
                    "broker": str(route.node_id),
                    "listen": str(self.advertised(port)),
                    "upstream": str(route.upstream),
                },
            )
        )
        return port

    def _open(self, route: Route, ports: Iterable[int]) -> int:
        sock = bind(self._settings.listen.host, ports)
        listener = Listener(
            self._room.loop,
            sock,
            accept=lambda client, peer: self._accept(route, client, peer),
            notify=self._room.notify,
        )
        self._listeners.append(listener)
        return listener.port

    def _accept(self, route: Route, client: socket.socket, peer: str) -> None:
        room, rules = self._room, self._settings.rules
        room.counters.connections_accepted += 1
        client.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
        relay = Relay(room, self._session(route, client, peer, rules), peer=peer, on_closed=self._closed)
        self._connections[relay] = route
        self._empty.clear()
        relay.open(client, route.upstream, timeout_s=self._settings.connect_timeout_s)

    def _session(self, route: Route, client: socket.socket, peer: str, rules: Rules) -> Session:
        host = self._settings.advertised_host or self._host_towards(client)

        def translate(node_id: int, broker_host: str, broker_port: int) -> tuple[str, int]:
            return host, self.directory.port_of(node_id, Address(host=broker_host, port=broker_port))

        return Session(
            quotas=self._policy.broker(route.node_id),
            identity=Identity(rules=rules, counters=self._room.counters, notify=self._room.notify),
            rules=rules,
            translate=translate,
            ledger=self.ledger,
            counters=self._room.counters,
            costs=lambda: self._policy.costs,
            on_charge=self._on_charge(route, peer),
        )

    def _on_charge(self, route: Route, peer: str) -> OnCharge | None:
        """What takes note of the charges of the connection that was accepted last; None without an event log."""
        if self._charges is None:
            return None
        number = self._room.counters.connections_accepted
        return self._charges.recorder(ChargeSource(connection=number, ip=parse_address(peer).host, route=route))

    def _host_towards(self, client: socket.socket) -> str:
        """The host by which a client reaches us: the one listened on or, if that is any, the one it came to."""
        host = self._settings.listen.host
        if host not in _ANY:
            return host
        try:
            came_to: str = client.getsockname()[0]
        except OSError:
            return host  # the client is gone already
        return came_to.removeprefix("::ffff:")

    def _closed(self, relay: Relay) -> None:
        self._connections.pop(relay, None)
        self._room.counters.requests += relay.session.request_count
        if not self._connections:
            self._empty.set()


def _behind(port: int) -> tuple[int, int]:
    """The ports that are tried for brokers when no range was given."""
    return min(port + 1, 65535), min(port + PORTS_TRIED, 65535)
