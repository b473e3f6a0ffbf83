"""The port of each broker's listener: the same after every restart, on every replica, whichever broker is met first.

Invariants: a port follows from the node id and the settings alone. By default it is the first port plus the node id;
an address that is given for a node id beats that. Two listeners never share a port by these rules.
**Source:** kafka-proxy's deterministic listeners, Kroxylicious' `portIdentifiesNode`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.config.address import MAX_PORT, BrokerAddress, ListenError, address_of
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings

_ANYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound to


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPorts:
    """The ports that one listener gives its brokers, by node id."""

    first: int
    """Port of node id 0, 0 for any free port."""
    last: int
    """Last port of the range."""
    addresses: tuple[BrokerAddress, ...] = ()
    """Addresses of single brokers, which beat the range."""

    def port(self, node_id: int) -> int:
        """Return the port of a broker's listener, 0 for any free one.

        Raises:
            ListenError: The node id leads beyond the last port.
        """
        given = address_of(self.addresses, node_id)
        if given is not None:
            return given.port + node_id - given.first
        if not self.first:
            return 0
        port = self.first + node_id
        if port > self.last:
            raise ListenError(
                f"broker {node_id} has no port: {self.first} + {node_id} is {port}, the last port is {self.last}",
                hint=f"widen --port-range (port.range), or name the port: --broker-address {node_id}=PORT",
            )
        return port


def ports_of(listeners: Sequence[ListenerSettings]) -> tuple[BrokerPorts, ...]:
    """Return the ports that each listener gives its brokers.

    A listener without a range of its own has the ports up to the next listener's.

    Raises:
        UsageError: Two listeners would give out the same ports, or one has none to give.
    """
    found = tuple(_ports_of(listener, listeners) for listener in listeners)
    for (one, ports), (other, others) in combinations(zip(listeners, found, strict=True), 2):
        by_ports = one.host_pattern is None and other.host_pattern is None
        if not (by_ports and _share_host(one, other) and ports.first and others.first):
            continue
        first, last = max(ports.first, others.first), min(ports.last, others.last)
        if first <= last:
            raise UsageError(
                f"the listeners {one.name} and {other.name} give brokers the same ports: {first}-{last}",
                hint="a port belongs to one broker of one listener: give them port ranges (port.range) that differ",
            )
    return found


def _ports_of(listener: ListenerSettings, listeners: Sequence[ListenerSettings]) -> BrokerPorts:
    _check_addresses(listener)
    addresses = listener.broker_addresses
    if listener.port_range is not None:
        return BrokerPorts(first=listener.port_range[0], last=listener.port_range[1], addresses=addresses)
    port = listener.listen.port
    if listener.host_pattern is not None:
        return BrokerPorts(first=port, last=port, addresses=addresses)
    if not port:
        return BrokerPorts(first=0, last=0, addresses=addresses)
    above = [
        each
        for other in listeners
        if other is not listener and _share_host(listener, other)
        for each in (other.listen.port, *(other.port_range or ())[:1])
        if each > port
    ]
    last = min((each - 1 for each in above), default=MAX_PORT)
    if last <= port:
        raise UsageError(
            f"the listener {listener.name} has no ports for brokers between {port} and the next listener",
            hint="give it a range of ports of its own: --port-range, or port.range in its file",
        )
    return BrokerPorts(first=port + 1, last=last, addresses=addresses)


def _check_addresses(listener: ListenerSettings) -> None:
    """Refuse addresses of brokers that do not fit how the listener is shared."""
    for each in listener.broker_addresses:
        if listener.shares_port and (each.host is None or each.first != each.last or each.port != listener.listen.port):
            raise UsageError(
                f"broker {each.first} needs a host of its own and the port {listener.listen.port}",
                hint="with broker.host.pattern and TLS brokers share that port and are told apart by their hosts",
            )
        if listener.bootstrap_owner is not None and len(listener.upstreams) > 1:
            raise UsageError(
                f"{listener.listen} leads to several upstreams and can't be broker {listener.bootstrap_owner}'s alone",
                hint="give the broker another port, or name one upstream",
            )


def _share_host(one: ListenerSettings, other: ListenerSettings) -> bool:
    hosts = (one.listen.host, other.listen.host)
    return hosts[0] == hosts[1] or any(host in _ANYWHERE for host in hosts)
