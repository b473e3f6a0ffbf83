"""The settings of one listener: its address, its upstreams, the rules for its clients, and the ports of its brokers.

A file that describes a listener has Kafka's own property names if Kafka has them. Each property is declared at the
field that it sets, except `ssl.*` and `upstream.ssl.*`.

A broker's port is the same after every restart, on every replica, whichever broker is met first.
Invariants: a port follows from the node id and the settings alone. By default it is the first port plus the node id;
an address that is given for a node id beats that. Two listeners never share a port by these rules.
**Source:** kafka-proxy's deterministic listeners, Kroxylicious' `portIdentifiesNode`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import combinations
from pathlib import Path
from typing import Any, Final, TypeAlias

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_properties
from kafka_quotas.core.formats.nodes import Diagnostic, Node
from kafka_quotas.core.java import well_formed
from kafka_quotas.core.model.setting import TextForm, setting
from kafka_quotas.enforcement.config.address import (
    ADDRESSES,
    BROKER_ADDRESSES,
    LISTEN,
    MAX_NODE_ID,
    MAX_PORT,
    PORT_RANGE,
    Address,
    BrokerAddress,
    ListenError,
    address_of,
)
from kafka_quotas.enforcement.config.principal_mapping import DEFAULT_RULES, PROPERTY, PrincipalMapping
from kafka_quotas.enforcement.config.rules import MAX_IN_FLIGHT, NAME, parse_apis, parse_denied_apis
from kafka_quotas.enforcement.config.toml_table import flat, names_table, property_text, table_name, toml_part

UPSTREAM: Final = partial(setting, "upstream")
LISTENERS: Final = partial(setting, "listeners")
Network: TypeAlias = IPv4Network | IPv6Network
NODE_ID_MARK: Final = "$(nodeId)"
"""Placeholder of a broker's node id in a pattern for host names."""
MAX_IDLE_MS: Final = 600_000
"""Default of `connections.max.idle.ms`, which is Kafka's."""
_LISTEN: Final = Address(host="127.0.0.1", port=9092)
_NODE_ID: Final = re.compile("[0-9]{1,10}")
MAIN: Final = "main"


@dataclass(frozen=True, slots=True)
class ListenerProperty:
    """The property of a listener's file that sets a field, as its metadata."""

    name: str
    form: TextForm
    is_fixed: bool = False
    """Whether a change needs a restart."""


def _whole(least: int, most: int, *, endless: int | None = None) -> TextForm:
    def read(text: str) -> int | None:
        digits = text.strip()
        if endless is not None and digits == str(endless):
            return None
        if not digits.isdecimal() or len(digits) > len(str(most)) or not least <= int(digits) <= most:
            raise UsageError(f"not a whole number from {least} to {most}: {text!r}")
        return int(digits)

    number = "[0-9]+" if least == 0 else "0*[1-9][0-9]*"
    pattern = rf"^\s*(?:{number}{'' if endless is None else f'|{endless}'})\s*$"
    return TextForm(read=read, pattern=pattern, integers=(least, most), endless=endless)


def _parse_host_pattern(text: str) -> str:
    if NODE_ID_MARK not in text:
        raise UsageError(f"{text!r} names all brokers alike", hint=f"put {NODE_ID_MARK} in it")
    return text


def _parse_principal_mapping(text: str) -> str:
    PrincipalMapping(text)  # refuses rules that can't be read
    return text


def _parse_networks(text: str) -> tuple[Network, ...]:
    hint = "for example 10.0.0.0/8,127.0.0.1"
    try:
        networks = tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise UsageError(str(error), hint=hint) from error
    if not networks:
        raise UsageError("it names no network", hint=hint)
    return networks


def _any_text(read: Callable[[str], Any]) -> TextForm:
    return TextForm(read=read, pattern="")


def _property(name: str, form: TextForm, default: Any, *, is_fixed: bool = False) -> Any:
    """Return a field that only a property of a listener's file sets."""
    return field(default=default, metadata={ListenerProperty: ListenerProperty(name, form, is_fixed)})


SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def _parse_protocol(text: str) -> str:
    protocol = text.strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise UsageError(f"{protocol!r} is not a security protocol", hint=", ".join(SECURITY_PROTOCOLS))
    return protocol


_COUNT: Final = _whole(1, MAX_NODE_ID)
_PROTOCOL: Final = _any_text(_parse_protocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """The settings of a bootstrap listener and of the broker listeners that belong to it.

    Brokers get ports by node id from `port_range` or, with `host_pattern`, names of their own: with TLS all on the port
    of `listen`, by the server name in the handshake, else on that port of the address the name resolves to.
    `broker_addresses` beat both.
    """

    upstreams: tuple[Address, ...] = UPSTREAM(
        "--upstream HOST:PORT,...",
        "Brokers of the cluster to enforce in front of, tried in turn for clients that bootstrap; may be repeated.",
        ADDRESSES,
        also=ListenerProperty("upstream", ADDRESSES, is_fixed=True),
    )
    listen: Address = LISTENERS(
        "--listen HOST:PORT",
        "Where clients bootstrap; port 0 takes free ones. Brokers get listeners of their own on this host.",
        LISTEN,
        default=_LISTEN,
        also=ListenerProperty("listen", LISTEN, is_fixed=True),
    )
    name: str = MAIN
    upstream_node_id: int | None = _property("upstream.node.id", _whole(0, MAX_NODE_ID), None, is_fixed=True)
    """Node id of the only upstream, if its address does not show it."""
    port_range: tuple[int, int] | None = LISTENERS(
        "--port-range FIRST-LAST",
        "Ports for the brokers' listeners: FIRST + node id. Default: from the port after that of --listen on.",
        PORT_RANGE,
        default=None,
        also=ListenerProperty("port.range", PORT_RANGE, is_fixed=True),
    )
    broker_addresses: tuple[BrokerAddress, ...] = LISTENERS(
        "--broker-address ID=[HOST:]PORT",
        "The port (and host) of a broker's listener, FIRST-LAST=PORT for many node ids; may be repeated.",
        BROKER_ADDRESSES,
        default=(),
        also=ListenerProperty("broker.addresses", BROKER_ADDRESSES, is_fixed=True),
    )
    advertised_host: str | None = LISTENERS(
        "--advertised-host HOST",
        "The host that clients are sent to. Default: the one that they connected to.",
        NAME,
        default=None,
        also=ListenerProperty("advertised.host", _any_text(str)),
    )
    host_pattern: str | None = _property("broker.host.pattern", _any_text(_parse_host_pattern), None, is_fixed=True)
    """Pattern of the brokers' host names, None for ports."""
    principal: str | None = _property("principal", _any_text(well_formed), None)
    """Principal of every client, None for the name from SASL or a certificate."""
    security_protocol: str = _property("security.protocol", _PROTOCOL, "PLAINTEXT", is_fixed=True)
    upstream_security_protocol: str = _property("upstream.security.protocol", _PROTOCOL, "PLAINTEXT", is_fixed=True)
    oauthbearer_claim: str = _property("sasl.oauthbearer.sub.claim.name", _any_text(str), "sub")
    principal_mapping: str = _property(PROPERTY, _any_text(_parse_principal_mapping), DEFAULT_RULES)
    ssl: Mapping[str, str] = field(default_factory=dict)
    upstream_ssl: Mapping[str, str] = field(default_factory=dict)
    proxy_sources: tuple[Network, ...] | None = _property(
        "proxy.protocol.trusted", _any_text(_parse_networks), None, is_fixed=True
    )
    """Networks that connections, each with a PROXY protocol header, have to come from, None for no header."""
    connection_rate: float | None = _property("max.connection.creation.rate", _COUNT, None)
    max_connections: int | None = _property("max.connections", _COUNT, None)
    max_connections_per_ip: int | None = _property("max.connections.per.ip", _COUNT, None)
    max_idle_ms: int | None = _property("connections.max.idle.ms", _whole(1, 2**63 - 1, endless=-1), MAX_IDLE_MS)
    """Time without a byte after which a connection is closed, None for ever."""
    max_in_flight: int = _property("max.in.flight.requests.per.connection", _COUNT, MAX_IN_FLIGHT)
    """Requests of a connection that may wait for their responses before it is left unread."""
    allowed_apis: frozenset[int] | None = _property("apis.allow", _any_text(parse_apis), None)
    denied_apis: frozenset[int] = _property("apis.deny", _any_text(parse_denied_apis), frozenset())

    @property
    def requires_authentication(self) -> bool:
        """Whether only SASL passes before it has succeeded."""
        return self.security_protocol.startswith("SASL")

    @property
    def tls(self) -> Mapping[str, str] | None:
        """The `ssl.*` properties towards clients, None for plaintext."""
        return self.ssl if self.security_protocol.endswith("SSL") else None

    @property
    def upstream_tls(self) -> Mapping[str, str] | None:
        """The `ssl.*` properties towards brokers, None for plaintext."""
        return self.upstream_ssl if self.upstream_security_protocol.endswith("SSL") else None

    @property
    def shares_port(self) -> bool:
        """Whether all brokers share one port and TLS server names select among them."""
        return self.host_pattern is not None and self.tls is not None

    @property
    def bootstrap_owner(self) -> int | None:
        """The node id of the broker at the address of `listen`, None if no broker is."""
        port = self.listen.port
        found = (each for each in self.broker_addresses if each.port <= port <= each.port + each.last - each.first)
        owner = next(found, None)
        return None if owner is None or not port or self.host_pattern is not None else owner.first + port - owner.port

    def broker_host(self, node_id: int) -> str | None:
        """Return the host name of a broker's listener, None if it has none of its own."""
        for each in self.broker_addresses:
            if each.first <= node_id <= each.last and each.host is not None:
                return each.host
        return None if self.host_pattern is None else self.host_pattern.replace(NODE_ID_MARK, str(node_id))

    def node_of(self, host: str) -> int | None:
        """Return the node id in a broker's host name, None for any other name."""
        host = host.lower()
        for each in self.broker_addresses:
            if each.host is not None and each.host.lower() == host:
                return each.first
        before, _, after = (self.host_pattern or "").lower().partition(NODE_ID_MARK.lower())
        digits = host[len(before) : len(host) - len(after)]
        if not (host.startswith(before) and host.endswith(after) and _NODE_ID.fullmatch(digits)):
            return None
        return int(digits) if int(digits) <= MAX_NODE_ID else None


ANYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound to


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPorts:
    """The ports that one listener gives its brokers, by node id."""

    first: int
    """Port of node id 0, 0 for any free port."""
    last: int
    addresses: tuple[BrokerAddress, ...] = ()
    """Addresses of single brokers, which beat the range."""

    def port(self, node_id: int) -> int:
        """Return the port of a broker's listener, 0 for any free one."""
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
    """Return each listener's ports for brokers, by default those up to the next listener's."""
    names = [listener.name for listener in listeners]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"two listeners are called {twice}", hint="a listener is called as its file, without the suffix"
        )
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
    return hosts[0] == hosts[1] or any(host in ANYWHERE for host in hosts)


_UPSTREAM: Final = "upstream."
_ADDRESSES: Final = ("listen", "upstream")


def read_listener(path: Path, main: ListenerSettings | None = None) -> ListenerSettings:
    """Read the listener in a file or a table, named after it, or complete the main one but its addresses."""
    is_table = names_table(path)
    settings = main or ListenerSettings(name=table_name(path) if is_table else path.stem, upstreams=())
    table = toml_part(path, "properties of a listener") if is_table else Node(read_properties(path), str(path))
    values, problems = _taken(table, is_main=main is not None)
    if values.get("upstream_node_id") is not None and len(values.get("upstreams", settings.upstreams)) > 1:
        hint = "leave it out, or name one upstream"
        problems.append(table.problem("upstream.node.id: there are several upstreams", hint))
    if problems:
        raise UsageError(f"{path}: {problems[0].message}", hint=problems[0].hint)
    return replace(settings, **values)


def listener_problems(table: Node, name: str, *, is_main: bool = False) -> Sequence[Diagnostic]:
    """Return everything wrong with a listener's table, in which the main one has no addresses."""
    if not isinstance(table.value, dict):
        return [table.problem(f"{name} is no table", f"write [{name}] on a line of its own")]
    return _taken(table, is_main=is_main)[1]


def _taken(table: Node, *, is_main: bool) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Return the settings in a table by the names of their fields, and everything wrong with it."""
    entries = dict(flat(table))
    tls: dict[str, dict[str, str]] = {"ssl": {}, "upstream_ssl": {}}
    values: dict[str, Any] = {**tls}
    problems: list[Diagnostic] = []
    missing = [] if is_main else [entry for entry in _ADDRESSES if entry not in entries]
    if missing:
        problems.append(table.problem(f"{' and '.join(missing)} missing", "a listener needs both, as HOST:PORT"))
    for entry, part in entries.items():
        try:
            if is_main and entry in _ADDRESSES:
                raise UsageError(f"{entry} can't be given here", hint="--listen and --upstream say it")  # noqa: TRY301 - as below
            text, of_tls = property_text(entry, part), entry.removeprefix(_UPSTREAM)
            if of_tls.startswith("ssl."):
                tls["ssl" if of_tls == entry else "upstream_ssl"][of_tls] = text
            elif entry not in PROPERTIES:
                hint = "docs/reference/daemon.md lists them"
                raise UsageError(f"unknown property {entry}", hint=hint)  # noqa: TRY301 - as a property's own reader
            if entry in PROPERTIES:
                values[_FIELDS[entry].name] = PROPERTIES[entry].read(text)
        except UsageError as error:
            problems.append(
                part.problem(error.message if entry in error.message else f"{entry}: {error.message}", error.hint)
            )
    return values, problems


_NOTES: Final[dict[ListenerProperty, Field[Any]]] = {
    field.metadata[ListenerProperty]: field for field in fields(ListenerSettings) if ListenerProperty in field.metadata
}
_FIELDS: Final = {note.name: field for note, field in _NOTES.items()}
PROPERTIES: Final[Mapping[str, TextForm]] = {note.name: note.form for note in _NOTES}
"""Every property but those of TLS, with its form."""


_FIXED: Final = {
    **{field.name: note.name for note, field in _NOTES.items() if note.is_fixed},
    "tls": "ssl.*",
    "upstream_tls": "upstream.ssl.*",
}
"""Settings that need a restart, and the names of their properties."""


def refuse_restart(before: ListenerSettings, now: ListenerSettings, path: Path) -> None:
    """Refuse a change of a listener that only a restart can make."""
    fixed = [name for field, name in _FIXED.items() if getattr(before, field) != getattr(now, field)]
    if fixed:
        raise UsageError(
            f"{path}: {', '.join(fixed)} can't change while the daemon runs", hint="restart it, or put back what it was"
        )
