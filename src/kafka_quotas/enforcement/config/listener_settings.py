"""How one listener of the daemon is run: where it is, what is behind it, and on which terms clients come in."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Final, TypeAlias

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.api_access import ALL_APIS, ApiAccess
from kafka_quotas.enforcement.config.principal_mapping import DEFAULT_RULES
from kafka_quotas.enforcement.config.rules import MAX_IN_FLIGHT

Network: TypeAlias = IPv4Network | IPv6Network
NODE_ID_MARK: Final = "$(nodeId)"
"""What a pattern for host names has in the place of a broker's node id."""
MAX_IDLE_MS: Final = 600_000
"""Default of `connections.max.idle.ms`, which is Kafka's."""
MAIN: Final = "main"
"""The name of the listener that `--listen` opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """Where clients are told to reach the brokers from `first` to `last`: `port` is the first one's, and so on.

    `host` None is the host of all brokers.
    """

    first: int
    last: int
    port: int
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """A listener for bootstrapping, and with it one for each broker that is met there.

    `upstreams` are the bootstrap servers, tried in turn; `upstream_node_id` is the broker behind the only one, where
    that can't be seen from its address. Brokers get ports by node id from `port_range` (None: the ports after that of
    `listen`) or, with `host_pattern`, names of their own: with TLS all on the port of `listen`, told apart by the name
    that a client asks for, else on that port of the address the name stands for. `broker_addresses` beat both.
    `advertised_host` is what clients are told, None tells them the host that they came to. `principal` is who every
    client is; None takes the name from SASL or a certificate. `tls` and `upstream_tls` hold Kafka's `ssl.*` properties
    for either side, None for plaintext. With `proxy_sources` each connection has to start with a PROXY protocol header
    and to come from there. A limit of None is none; `connection_rate` is per second. A connection on which nothing
    moves for `max_idle_ms` is closed; `max_in_flight` is how many of its requests may wait for their responses before
    it is left unread. `apis` says which APIs pass.
    """

    upstreams: tuple[Address, ...]
    listen: Address
    name: str = MAIN
    upstream_node_id: int | None = None
    port_range: tuple[int, int] | None = None
    advertised_host: str | None = None
    host_pattern: str | None = None
    broker_addresses: tuple[BrokerAddress, ...] = ()
    principal: str | None = None
    requires_authentication: bool = False
    oauthbearer_claim: str = "sub"
    principal_mapping: str = DEFAULT_RULES
    tls: Mapping[str, str] | None = None
    upstream_tls: Mapping[str, str] | None = None
    proxy_sources: tuple[Network, ...] | None = None
    connection_rate: float | None = None
    max_connections: int | None = None
    max_connections_per_ip: int | None = None
    max_idle_ms: int | None = MAX_IDLE_MS
    max_in_flight: int = MAX_IN_FLIGHT
    apis: ApiAccess = ALL_APIS

    @property
    def shares_port(self) -> bool:
        """Whether all brokers are behind one port, told apart by the name that TLS clients ask for."""
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
        matches = host.startswith(before) and host.endswith(after) and digits.isascii() and digits.isdigit()
        return int(digits) if matches and len(digits) < 10 else None
