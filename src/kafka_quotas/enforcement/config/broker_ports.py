"""The port of each broker's listener: the same after every restart, on every replica, whichever broker is met first.

Invariants: a port follows from the node id and the settings alone. By default it is the first port plus the node id;
an address that is given for a node id beats that. Two listeners never share a port by these rules.
**Source:** kafka-proxy's deterministic listeners, Kroxylicious' `portIdentifiesNode`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.config.address import ListenError, parse_address
from kafka_quotas.enforcement.config.listener_settings import MAX_NODE_ID, BrokerAddress, ListenerSettings

MAX_PORT: Final = 65_535
MAX_ADDRESSES: Final = 1_000
"""Most node ids that may be given addresses: each has a listening socket from the start."""
_ENTRY: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?=(.+)")
_EXAMPLE: Final = "for example 1=20001,2=kafka-2.example:20002 or, for many at once, 1001-1099=21001"
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


def address_of(addresses: Iterable[BrokerAddress], node_id: int) -> BrokerAddress | None:
    """Return the configured address of a node id, None without one."""
    return next((each for each in addresses if each.first <= node_id <= each.last), None)


def parse_broker_addresses(texts: Iterable[str]) -> tuple[BrokerAddress, ...]:
    """Return the addresses that ID=[HOST:]PORT or FIRST-LAST=[HOST:]PORT mean, separated by commas.

    Raises:
        UsageError: A text is no such address, a node id has two, or there are more than `MAX_ADDRESSES` node ids.
    """
    found = [_parsed(part.strip()) for text in texts for part in text.split(",") if part.strip()]
    for one, other in combinations(found, 2):
        if one.first <= other.last and other.first <= one.last:
            raise UsageError(f"broker {max(one.first, other.first)} is given two addresses")
    if sum(1 + each.last - each.first for each in found) > MAX_ADDRESSES:
        raise UsageError(f"more than {MAX_ADDRESSES} brokers are given addresses", hint="a --port-range has no bound")
    return tuple(found)


def _parsed(text: str) -> BrokerAddress:
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise UsageError(f"not an address of a broker: {text!r}", hint=_EXAMPLE)
    first, last = int(match[1]), int(match[2] or match[1])
    target = match[3].strip()
    is_port = target.isascii() and target.isdigit()
    address = parse_address(f"broker:{target}" if is_port else target)
    if not first <= last <= MAX_NODE_ID or address.port + last - first > MAX_PORT:
        raise UsageError(f"not an address of a broker: {text!r}", hint=_EXAMPLE)
    return BrokerAddress(first=first, last=last, host=None if is_port else address.host, port=address.port)


def ports_of(listeners: Sequence[ListenerSettings]) -> tuple[BrokerPorts, ...]:
    """Return the ports that each listener gives its brokers.

    A listener without a range of its own has the ports up to the next listener's.

    Raises:
        UsageError: Two listeners would give out the same ports, or one has none to give.
    """
    found = tuple(_ports_of(listener, listeners) for listener in listeners)
    for (one, ports), (other, others) in combinations(zip(listeners, found, strict=True), 2):
        if not (_share_host(one, other) and _has_ports(one) and _has_ports(other) and ports.first and others.first):
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
    """Refuse addresses of brokers that do not fit the way in which the listener is shared.

    Raises:
        UsageError: A broker shares the port without a host of its own, or a broker's port leads to several upstreams.
    """
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


def _has_ports(listener: ListenerSettings) -> bool:
    """Return whether brokers differ by their ports."""
    return listener.host_pattern is None


def _share_host(one: ListenerSettings, other: ListenerSettings) -> bool:
    hosts = (one.listen.host, other.listen.host)
    return hosts[0] == hosts[1] or any(host in _ANYWHERE for host in hosts)
