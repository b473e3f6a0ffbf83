"""The connections to each broker: how many are open and how fast they are made, whichever listener they come by.

A connection counts from the moment it is accepted, before it has said a byte; see `ConnectionSlot`.
"""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.enforcement.connection_limit import ConnectionTotal, OpenConnections
from kafka_quotas.enforcement.connection_rate import ConnectionRates, IpLimits
from kafka_quotas.enforcement.listener_settings import ListenerSettings
from kafka_quotas.enforcement.policy import NodeId

SPARE_DESCRIPTORS: Final = 200
"""File descriptors that connections leave to everything else: store, logs, control socket, those kept out."""
_PER_CONNECTION: Final = 2
"""The client's socket and the broker's."""


def connections_for(descriptors: int) -> int:
    """Return how many connections a process may have that may open so many files, at least one."""
    return max(1, (descriptors - SPARE_DESCRIPTORS) // _PER_CONNECTION)


class BrokerConnections:
    """The connections to one broker; `total` counts those to all brokers."""

    def __init__(self, rates: ConnectionRates, total: ConnectionTotal) -> None:
        self.rates = rates
        self.total = total
        self.open = OpenConnections()
        self._ended = asyncio.Event()

    def delay_ms(self, settings: ListenerSettings, now_ms: int) -> int:
        """Return how long one more connection of a listener waits; it counts."""
        return self.rates.listener_delay_ms(settings.name, settings.connection_rate, now_ms)

    def is_full(self, settings: ListenerSettings) -> bool:
        """Return whether a listener, or the daemon, has as many connections as it may."""
        return self.total.is_full or self.open.is_full(settings.name, settings.max_connections)

    def has_room_for(self, slot: "ConnectionSlot", settings: ListenerSettings) -> bool:
        """Return whether a connection that counts somewhere by now may count here."""
        return slot.connections is self or not self.open.is_full(settings.name, settings.max_connections)

    def ip_delay_ms(self, settings: ListenerSettings, ip: str, now_ms: int) -> int:
        """Return after how long a connection of an address is closed unserved, 0 where it is served."""
        return self.rates.ip_delay_ms(ip, settings.name, now_ms)

    def is_refused(self, settings: ListenerSettings, ip: str) -> bool:
        """Return whether an address has as many connections as it may."""
        return self.open.is_refused(ip, settings.max_connections_per_ip)

    def began(self, listener: str) -> "ConnectionSlot":
        """Count one more connection of a listener."""
        self.total.opened()
        self.open.opened(listener)
        return ConnectionSlot(self, listener)

    def look_again(self) -> None:
        """Have those who wait for room look whether there is some by now."""
        ended, self._ended = self._ended, asyncio.Event()
        ended.set()

    async def one_ended(self) -> None:
        """Wait until a connection has ended, or there may be room for another reason."""
        await self._ended.wait()


class ConnectionSlot:
    """One connection's place in the counts, from its accept to its end.

    It counts for a listener at the broker of the port it came to; once it is known which broker it is for, there, and
    once it is known where it really comes from, for its address as well.
    """

    __slots__ = ("_ip", "_is_over", "_listener", "connections")

    def __init__(self, connections: BrokerConnections, listener: str) -> None:
        self.connections = connections
        self._listener = listener
        self._ip: str | None = None
        self._is_over = False

    def move(self, connections: BrokerConnections) -> None:
        """Count for this broker from now on, and for no address yet."""
        before, self.connections = self.connections, connections
        self._leave_ip(before)
        if connections is not before:
            connections.open.opened(self._listener)
            before.open.closed(self._listener)
            before.look_again()

    def came_from(self, ip: str) -> None:
        """Count for an address as well."""
        self._ip = ip
        self.connections.open.came_from(ip)

    def end(self) -> None:
        """Count no more; a second call does nothing."""
        if self._is_over:
            return
        self._is_over = True
        self._leave_ip(self.connections)
        self.connections.open.closed(self._listener)
        self.connections.total.closed()
        self.connections.look_again()

    def _leave_ip(self, connections: BrokerConnections) -> None:
        if self._ip is not None:
            connections.open.went(self._ip)
            self._ip = None


class ConnectionBook:
    """The connections of every broker; the limits of addresses are the store's and hold at each broker."""

    def __init__(
        self, window: QuotaWindow, *, broker_rate: float | None = None, max_connections: int | None = None
    ) -> None:
        self._window = window
        self._broker_rate = broker_rate
        self._brokers: dict[NodeId, BrokerConnections] = {}
        self._total = ConnectionTotal(max_connections, on_room=self._look_again)
        self.ip_limits = IpLimits()

    def broker(self, node_id: NodeId) -> BrokerConnections:
        """Return the connections to a broker."""
        connections = self._brokers.get(node_id)
        if connections is None:
            rates = ConnectionRates(self._window, self.ip_limits, broker_limit=self._broker_rate)
            connections = self._brokers[node_id] = BrokerConnections(rates, self._total)
        return connections

    @property
    def brokers(self) -> Mapping[NodeId, BrokerConnections]:
        """Each broker's connections by node id."""
        return MappingProxyType(self._brokers)

    def name(self, placeholder: NodeId, node_id: int) -> None:
        """Note that a broker that had no name yet turned out to be this node."""
        if placeholder in self._brokers and node_id not in self._brokers:
            self._brokers[node_id] = self._brokers.pop(placeholder)

    def expire_idle(self, now_ms: int) -> None:
        """Forget addresses that made no connection for an hour."""
        for connections in self._brokers.values():
            connections.rates.expire_idle(now_ms)

    def _look_again(self) -> None:
        for connections in self._brokers.values():
            connections.look_again()
