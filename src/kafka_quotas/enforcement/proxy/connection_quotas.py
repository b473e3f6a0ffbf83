"""The connections to each broker: how many are open and how fast they are made, whichever listener they come by.

A connection counts from the moment it is accepted, before its first byte; see `ConnectionSlot`.

How many connections may be open: to one broker by a listener and from one address, and to all of them together.

A connection beyond its listener's number, or the daemon's, waits until one of the others ends, and so do all after it;
one beyond its address's number is closed at once.

**Source:** `ConnectionQuotas` (4.x): `max.connections` of a listener, `max.connections.per.ip`; HAProxy's `maxconn`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator
from typing import Final

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.resolution.quota_resolver import canonical_address
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings
from kafka_quotas.enforcement.proxy.connection_rate import ConnectionRates, IpLimits
from kafka_quotas.enforcement.quotas.quota_registry import NodeId


class ConnectionTotal:
    """The number of open connections of the whole daemon.

    Args:
        limit: Most connections at a time, None for any number.
        on_room: Called when a connection ends at the limit.
    """

    def __init__(self, limit: int | None, *, on_room: Callable[[], None]) -> None:
        self._limit = limit
        self._count = 0
        self._on_room = on_room

    @property
    def is_full(self) -> bool:
        """Whether the number of connections has reached the limit."""
        return self._limit is not None and self._count >= self._limit

    def opened(self) -> None:
        """Count one more connection."""
        self._count += 1

    def closed(self) -> None:
        """Count one connection less, and call `on_room` where the limit was reached."""
        was_full = self.is_full
        self._count -= 1
        if was_full:
            self._on_room()


def _take_one(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]


SPARE_DESCRIPTORS: Final = 200
"""File descriptors that connections leave to everything else: store, logs, control socket, refused connections."""
_PER_CONNECTION: Final = 2
"""The client's socket and the broker's."""


def connections_for(descriptors: int) -> int:
    """Return how many connections fit into this number of file descriptors, at least one."""
    return max(1, (descriptors - SPARE_DESCRIPTORS) // _PER_CONNECTION)


class BrokerConnectionQuotas:
    """The rates, numbers and limits of the connections to one broker.

    Args:
        total: Count of the connections to all brokers.
    """

    def __init__(self, rates: ConnectionRates, total: ConnectionTotal) -> None:
        self.rates = rates
        self.total = total
        self.by_listener: Counter[str] = Counter()
        """The number of open connections of each listener."""
        self.by_ip: Counter[str] = Counter()
        """The number of open connections of each address, in its canonical form."""
        self._ended = asyncio.Event()

    def is_full(self, settings: ListenerSettings) -> bool:
        """Return whether a listener, or the daemon, has as many connections as it may."""
        return self.total.is_full or self._is_listener_full(settings)

    def has_room_for(self, slot: "ConnectionSlot", settings: ListenerSettings) -> bool:
        """Return whether a connection that is counted already may count for this broker."""
        return slot.connections is self or not self._is_listener_full(settings)

    def is_refused(self, settings: ListenerSettings, ip: str) -> bool:
        """Return whether an address has as many connections as it may."""
        limit = settings.max_connections_per_ip
        return limit is not None and self.by_ip[canonical_address(ip)] >= limit

    def began(self, listener: str, *, recorded: ConnectionRates) -> "ConnectionSlot":
        """Count one more connection of a listener, whose rate was recorded already, and return its slot."""
        self.total.opened()
        self.by_listener[listener] += 1
        return ConnectionSlot(self, listener, recorded)

    def _is_listener_full(self, settings: ListenerSettings) -> bool:
        return settings.max_connections is not None and self.by_listener[settings.name] >= settings.max_connections

    def look_again(self) -> None:
        """Wake the connections that wait for room to check for it again."""
        ended, self._ended = self._ended, asyncio.Event()
        ended.set()

    async def one_ended(self) -> None:
        """Wait until a connection ends, or there may be room for another reason."""
        await self._ended.wait()


class ConnectionSlot:
    """One connection's place in the counts, from its accept to its end.

    It counts for a listener at the broker of the port that it was accepted on. Once the connection's own broker is
    known it counts there, and once its real source is known it counts for that address as well.
    """

    __slots__ = ("_ip", "_is_over", "_listener", "_recorded", "connections")

    def __init__(self, connections: BrokerConnectionQuotas, listener: str, recorded: ConnectionRates) -> None:
        self.connections = connections
        self._listener = listener
        self._recorded = recorded
        self._ip: str | None = None
        self._is_over = False

    def move(self, connections: BrokerConnectionQuotas) -> None:
        """Count for this broker from now on, and for no address yet."""
        before, self.connections = self.connections, connections
        self._leave_ip(before)
        if connections is not before:
            connections.by_listener[self._listener] += 1
            _take_one(before.by_listener, self._listener)
            before.look_again()

    def came_from(self, ip: str) -> None:
        """Count for an address as well."""
        self._ip = canonical_address(ip)
        self.connections.by_ip[self._ip] += 1

    def take_back_rate(self, now_ms: int) -> None:
        """Take the connection out of the rates of the listener and broker that it was recorded at."""
        # Not `connections`: a listener with several routes may have recorded it at another broker than its own.
        self._recorded.take_back(self._listener, now_ms)

    def end(self) -> None:
        """Remove the connection from all counts, once."""
        if self._is_over:
            return
        self._is_over = True
        self._leave_ip(self.connections)
        _take_one(self.connections.by_listener, self._listener)
        self.connections.total.closed()
        self.connections.look_again()

    def _leave_ip(self, connections: BrokerConnectionQuotas) -> None:
        if self._ip is not None:
            _take_one(connections.by_ip, self._ip)
            self._ip = None


class ConnectionQuotas:
    """The limits on connections to every broker, where those of addresses are the store's."""

    def __init__(
        self, window: QuotaWindow, *, broker_rate: float | None = None, max_connections: int | None = None
    ) -> None:
        self._window = window
        self._broker_rate = broker_rate
        self.brokers: dict[NodeId, BrokerConnectionQuotas] = {}
        """Each broker's connections by node id."""
        self._total = ConnectionTotal(max_connections, on_room=self._look_again)
        self.ip_limits = IpLimits()

    def broker(self, node_id: NodeId) -> BrokerConnectionQuotas:
        """Return the connections to a broker, counted from now on where there are none yet."""
        connections = self.brokers.get(node_id)
        if connections is None:
            rates = ConnectionRates(self._window, self.ip_limits, broker_limit=self._broker_rate)
            connections = self.brokers[node_id] = BrokerConnectionQuotas(rates, self._total)
        return connections

    def name(self, placeholder: NodeId, node_id: int) -> None:
        """Move the counts of a placeholder to the node id that it turned out to be."""
        if placeholder in self.brokers and node_id not in self.brokers:
            self.brokers[node_id] = self.brokers.pop(placeholder)

    def expiry(self, now_ms: int) -> Generator[None, None, None]:
        """Drop the rates of addresses that made no connection for an hour, and yield after each slice of them."""
        for connections in list(self.brokers.values()):
            yield from connections.rates.expiry(now_ms)

    def _look_again(self) -> None:
        for connections in self.brokers.values():
            connections.look_again()
