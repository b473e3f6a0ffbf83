"""The settings of one listener: its address, its upstreams, and the rules for its clients."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Final, TypeAlias

from kafka_quotas.enforcement.config.address import MAX_NODE_ID, Address, BrokerAddress
from kafka_quotas.enforcement.config.api_access import ALL_APIS, ApiAccess
from kafka_quotas.enforcement.config.principal_mapping import DEFAULT_RULES
from kafka_quotas.enforcement.config.rules import MAX_IN_FLIGHT

Network: TypeAlias = IPv4Network | IPv6Network
NODE_ID_MARK: Final = "$(nodeId)"
"""Placeholder of a broker's node id in a pattern for host names."""
MAX_IDLE_MS: Final = 600_000
"""Default of `connections.max.idle.ms`, which is Kafka's."""
_NODE_ID: Final = re.compile("[0-9]{1,10}")
MAIN: Final = "main"
"""Name of the listener that `--listen` opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """The settings of a bootstrap listener and of the broker listeners that belong to it.

    Brokers get ports by node id from `port_range` or, with `host_pattern`, names of their own: with TLS all on the port
    of `listen`, by the server name in the handshake, else on that port of the address the name resolves to.
    `broker_addresses` beat both.
    """

    upstreams: tuple[Address, ...]
    """Bootstrap servers, tried in turn."""
    listen: Address
    name: str = MAIN
    upstream_node_id: int | None = None
    """Node id of the only upstream, where its address does not show it."""
    port_range: tuple[int, int] | None = None
    """First and last port of the brokers' listeners, None for the ports after that of `listen`."""
    advertised_host: str | None = None
    """Host that clients connect to, None for the one that they came to."""
    host_pattern: str | None = None
    """Pattern of the brokers' host names, None for ports."""
    broker_addresses: tuple[BrokerAddress, ...] = ()
    """Addresses of some brokers."""
    principal: str | None = None
    """Principal of every client, None for the name from SASL or a certificate."""
    requires_authentication: bool = False
    """Whether only SASL passes before it has succeeded."""
    oauthbearer_claim: str = "sub"
    """Claim of a bearer's token that names the principal."""
    principal_mapping: str = DEFAULT_RULES
    """Rules of `ssl.principal.mapping.rules`."""
    tls: Mapping[str, str] | None = None
    """Kafka's `ssl.*` properties towards clients, None for plaintext."""
    upstream_tls: Mapping[str, str] | None = None
    """Kafka's `ssl.*` properties towards brokers, None for plaintext."""
    proxy_sources: tuple[Network, ...] | None = None
    """Networks that connections, each with a PROXY protocol header, have to come from, None for no header."""
    connection_rate: float | None = None
    """Most new connections per second, None for any number."""
    max_connections: int | None = None
    """Most open connections, None for any number."""
    max_connections_per_ip: int | None = None
    """Most open connections of one address, None for any number."""
    max_idle_ms: int | None = MAX_IDLE_MS
    """Time without a byte after which a connection is closed, None for ever."""
    max_in_flight: int = MAX_IN_FLIGHT
    """Requests of a connection that may wait for their responses before it is left unread."""
    apis: ApiAccess = ALL_APIS
    """APIs that pass."""

    @property
    def shares_port(self) -> bool:
        """Whether all brokers share one port and TLS server names select among them."""
        return self.host_pattern is not None and self.tls is not None

    @property
    def bootstrap_owner(self) -> int | None:
        """The node id of the broker whose address is that of `listen`, None where it is no broker's."""
        port = self.listen.port
        found = (each for each in self.broker_addresses if each.port <= port <= each.port + each.last - each.first)
        owner = next(found, None)
        return None if owner is None or not port or self.host_pattern is not None else owner.first + port - owner.port

    def broker_host(self, node_id: int) -> str | None:
        """Return the host name of a broker's listener, None where it has none of its own."""
        for each in self.broker_addresses:
            if each.first <= node_id <= each.last and each.host is not None:
                return each.host
        return None if self.host_pattern is None else self.host_pattern.replace(NODE_ID_MARK, str(node_id))

    def node_of(self, host: str) -> int | None:
        """Return the node id in a broker's host name, None where the name is no broker's."""
        host = host.lower()
        for each in self.broker_addresses:
            if each.host is not None and each.host.lower() == host:
                return each.first
        before, _, after = (self.host_pattern or "").lower().partition(NODE_ID_MARK.lower())
        digits = host[len(before) : len(host) - len(after)]
        if not (host.startswith(before) and host.endswith(after) and _NODE_ID.fullmatch(digits)):
            return None
        return int(digits) if int(digits) <= MAX_NODE_ID else None
