"""The connections to each broker: how many are open and how fast they are made, whichever listener they come by."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.enforcement.connection_limit import OpenConnections
from kafka_quotas.enforcement.connection_rate import ConnectionRates, IpLimits
from kafka_quotas.enforcement.listener_settings import ListenerSettings
from kafka_quotas.enforcement.policy import NodeId


class BrokerConnections:
    """The connections to one broker."""

    def __init__(self, rates: ConnectionRates) -> None:
        self.rates = rates
        self._open = OpenConnections()
        self._ended = asyncio.Event()

    def delay_ms(self, settings: ListenerSettings, now_ms: int) -> int:
        """How long one more connection of a listener waits; it counts."""
        return self.rates.listener_delay_ms(settings.name, settings.connection_rate, now_ms)

    def is_full(self, settings: ListenerSettings) -> bool:
        """Whether a listener has as many connections as it may."""
        return self._open.is_full(settings.name, settings.max_connections)

    def ip_delay_ms(self, settings: ListenerSettings, ip: str, now_ms: int) -> int:
        """After how long a connection of an address is closed unserved, 0 where it is served."""
        return self.rates.ip_delay_ms(ip, settings.name, now_ms)

    def is_refused(self, settings: ListenerSettings, ip: str) -> bool:
        """Whether an address has as many connections as it may."""
        return self._open.is_refused(ip, settings.max_connections_per_ip)

    def began(self, listener: str, ip: str) -> None:
        """Nothing; one more is open."""
        self._open.opened(listener, ip)

    def ended(self, listener: str, ip: str) -> None:
        """Nothing; one that was open is not any more, and who waits for that is told."""
        self._open.closed(listener, ip)
        self.look_again()

    def look_again(self) -> None:
        """Nothing; who waits for room looks whether there is some by now."""
        ended, self._ended = self._ended, asyncio.Event()
        ended.set()

    async def one_ended(self) -> None:
        """Nothing; a connection has ended since, or there may be room for another reason."""
        await self._ended.wait()


class ConnectionBook:
    """The connections of every broker; the limits of addresses are the store's and hold at each broker."""

    def __init__(self, window: QuotaWindow, *, broker_rate: float | None = None) -> None:
        self._window = window
        self._broker_rate = broker_rate
        self._brokers: dict[NodeId, BrokerConnections] = {}
        self.ip_limits = IpLimits()

    def broker(self, node_id: NodeId) -> BrokerConnections:
        """The connections to a broker."""
        connections = self._brokers.get(node_id)
        if connections is None:
            rates = ConnectionRates(self._window, self.ip_limits, broker_limit=self._broker_rate)
            connections = self._brokers[node_id] = BrokerConnections(rates)
        return connections

    @property
    def brokers(self) -> Mapping[NodeId, BrokerConnections]:
        """Each broker's connections by node id."""
        return MappingProxyType(self._brokers)

    def name(self, placeholder: NodeId, node_id: int) -> None:
        """Nothing; a broker that had no name yet turned out to be this node."""
        if placeholder in self._brokers and node_id not in self._brokers:
            self._brokers[node_id] = self._brokers.pop(placeholder)

    def expire_idle(self, now_ms: int) -> None:
        """Nothing; addresses that made no connection for an hour are forgotten."""
        for connections in self._brokers.values():
            connections.rates.expire_idle(now_ms)
