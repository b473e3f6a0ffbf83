"""A file that describes a listener, in Kafka's own property names where Kafka has them.

| property | meaning |
|---|---|
| `listen`, `upstream` | HOST:PORT where clients bootstrap; that of one or more brokers, with commas between |
| `upstream.node.id` | which broker the only upstream is, where its address does not show it |
| `port.range`, `advertised.host` | ports of the brokers' listeners, FIRST-LAST; the host that clients connect to |
| `broker.addresses` | ports (and hosts) of some brokers' listeners, ID=[HOST:]PORT |
| `broker.host.pattern` | names of the brokers' listeners, with $(nodeId) in them |
| `security.protocol` | PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL: SSL ends TLS here, SASL has to come first |
| `ssl.*`, `ssl.client.auth`, `ssl.principal.mapping.rules` | as a broker's |
| `upstream.security.protocol`, `upstream.ssl.*` | TLS towards the brokers, as a client's |
| `principal`, `sasl.oauthbearer.sub.claim.name` | who every client is; the claim that names a bearer |
| `proxy.protocol.trusted` | networks whose connections start with a PROXY protocol header (version 2) |
| `max.connections`, `max.connections.per.ip`, `max.connection.creation.rate` | as a broker's |
| `connections.max.idle.ms` | as a broker's, 10 minutes by default; -1 for ever |
| `max.in.flight.requests.per.connection` | requests that may wait for their responses, 1000 by default |
| `apis.allow`, `apis.deny` | names or keys of the APIs that clients may use, or may not |
"""

import dataclasses
import re
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.java.utf8 import well_formed
from kafka_quotas.enforcement.config.address import parse_address, parse_addresses
from kafka_quotas.enforcement.config.api_access import ALLOW, DENY, parse_api_access
from kafka_quotas.enforcement.config.broker_ports import parse_broker_addresses, ports_of
from kafka_quotas.enforcement.config.listener_settings import MAX_IDLE_MS, NODE_ID_MARK, ListenerSettings, Network
from kafka_quotas.enforcement.config.principal_mapping import DEFAULT_RULES, PROPERTY, PrincipalMapping
from kafka_quotas.enforcement.config.rules import MAX_IN_FLIGHT
from kafka_quotas.stores.files.property_file import read_properties

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_UPSTREAM: Final = "upstream."
_PLACES: Final = ("listen", "upstream")
MAX_IDLE: Final = "connections.max.idle.ms"
IN_FLIGHT: Final = "max.in.flight.requests.per.connection"
_KNOWN: Final = frozenset(
    {
        *_PLACES,
        "upstream.node.id",
        "port.range",
        "advertised.host",
        "broker.host.pattern",
        "broker.addresses",
        "security.protocol",
        "upstream.security.protocol",
        "principal",
        "sasl.oauthbearer.sub.claim.name",
        "proxy.protocol.trusted",
        "max.connections",
        "max.connections.per.ip",
        "max.connection.creation.rate",
        MAX_IDLE,
        IN_FLIGHT,
        ALLOW,
        DENY,
    }
)
_PORT_RANGE: Final = re.compile(r"(\d{1,5})-(\d{1,5})")


def parse_port_range(text: str) -> tuple[int, int]:
    """Return the first and last port of FIRST-LAST.

    Raises:
        UsageError: The text is no such range.
    """
    match = _PORT_RANGE.fullmatch(text.strip())
    first, last = (int(match[1]), int(match[2])) if match else (1, 0)
    if not 1 <= first <= last <= 65535:
        raise UsageError(f"not a range of ports: {text!r}", hint="for example 19093-19199")
    return first, last


def read_listener(path: Path) -> ListenerSettings:
    """Read the listener that a file describes, under the file's name.

    Raises:
        UsageError: The file can't be read, or a property is unknown, missing or not valid.
    """
    properties = read_properties(path)
    missing = [name for name in _PLACES if name not in properties]
    if missing:
        raise UsageError(f"{path}: {' and '.join(missing)} missing", hint="a listener needs both, as HOST:PORT")
    return _completed(
        ListenerSettings(
            name=path.stem,
            listen=parse_address(properties["listen"], may_be_zero=True),
            upstreams=parse_addresses([properties["upstream"]]),
        ),
        properties,
        path,
    )


def complete_listener(settings: ListenerSettings, path: Path) -> ListenerSettings:
    """Complete a listener with the properties of a file, except its addresses.

    Raises:
        UsageError: The file can't be read, a property is unknown or not valid, or it names `listen` or `upstream`.
    """
    properties = read_properties(path)
    twice = [name for name in _PLACES if name in properties]
    if twice:
        raise UsageError(f"{path}: {' and '.join(twice)} can't be given here", hint="--listen and --upstream say it")
    return _completed(settings, properties, path)


def _completed(settings: ListenerSettings, properties: Mapping[str, str], path: Path) -> ListenerSettings:
    for name in properties:
        if name not in _KNOWN and not name.removeprefix(_UPSTREAM).startswith("ssl."):
            raise UsageError(f"{path}: unknown property {name}", hint="docs/daemon.md lists those of listeners")
    try:
        return _replaced(settings, properties)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from error


def _replaced(settings: ListenerSettings, properties: Mapping[str, str]) -> ListenerSettings:
    protocol = _protocol(properties, "security.protocol")
    pattern = properties.get("broker.host.pattern")
    if pattern is not None and NODE_ID_MARK not in pattern:
        raise UsageError(f"broker.host.pattern: {pattern!r} names all brokers alike", hint=f"put {NODE_ID_MARK} in it")
    mapping = properties.get(PROPERTY, DEFAULT_RULES)
    PrincipalMapping(mapping)
    ports, addresses = properties.get("port.range"), properties.get("broker.addresses")
    node_id = _whole(properties, "upstream.node.id", least=0)
    if node_id is not None and len(settings.upstreams) > 1:
        raise UsageError("upstream.node.id: there are several upstreams", hint="leave it out, or name one upstream")
    is_upstream_tls = _protocol(properties, "upstream.security.protocol").endswith("SSL")
    return dataclasses.replace(
        settings,
        upstream_node_id=node_id,
        port_range=settings.port_range if ports is None else parse_port_range(ports),
        advertised_host=properties.get("advertised.host", settings.advertised_host),
        host_pattern=pattern,
        broker_addresses=settings.broker_addresses if addresses is None else parse_broker_addresses([addresses]),
        principal=well_formed(properties["principal"]) if "principal" in properties else settings.principal,
        requires_authentication=protocol.startswith("SASL"),
        oauthbearer_claim=properties.get("sasl.oauthbearer.sub.claim.name", settings.oauthbearer_claim),
        principal_mapping=mapping,
        tls=_tls(properties, "") if protocol.endswith("SSL") else None,
        upstream_tls=_tls(properties, _UPSTREAM) if is_upstream_tls else None,
        proxy_sources=_networks(properties),
        connection_rate=_whole(properties, "max.connection.creation.rate", least=1),
        max_connections=_whole(properties, "max.connections", least=1),
        max_connections_per_ip=_whole(properties, "max.connections.per.ip", least=1),
        max_idle_ms=_idle_ms(properties),
        max_in_flight=_whole(properties, IN_FLIGHT, least=1) or MAX_IN_FLIGHT,
        apis=parse_api_access(allow=properties.get(ALLOW), deny=properties.get(DENY)),
    )


def _protocol(properties: Mapping[str, str], name: str) -> str:
    protocol = properties.get(name, "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise UsageError(f"{name}: {protocol!r} is no security protocol", hint=", ".join(_PROTOCOLS))
    return protocol


def _tls(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    start = f"{prefix}ssl."
    return {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(start)}


def _whole(properties: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < least:
        raise UsageError(f"{name}: not a whole number of at least {least}: {text!r}")
    return int(text)


def _idle_ms(properties: Mapping[str, str]) -> int | None:
    """Return the longest idle time, None for the -1 that means no limit in a broker."""
    if properties.get(MAX_IDLE, "").strip() == "-1":
        return None
    return _whole(properties, MAX_IDLE, least=1) or MAX_IDLE_MS


def _networks(properties: Mapping[str, str]) -> tuple[Network, ...] | None:
    text = properties.get("proxy.protocol.trusted")
    if text is None:
        return None
    try:
        networks = tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise UsageError(f"proxy.protocol.trusted: {error}", hint="for example 10.0.0.0/8,127.0.0.1") from error
    if not networks:
        raise UsageError("proxy.protocol.trusted names no network", hint="for example 10.0.0.0/8,127.0.0.1")
    return networks


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListenerFiles:
    """The main listener and the files that describe listeners."""

    main: ListenerSettings
    """Main listener, as options describe it."""
    more_of_main: Path | None = None
    """File with further properties of the main listener, None without one."""
    others: tuple[Path, ...] = ()
    """Files of all other listeners."""

    @property
    def paths(self) -> dict[int, Path]:
        """The files of listeners by the listener's place among `all_listeners`."""
        more = {} if self.more_of_main is None else {0: self.more_of_main}
        return more | dict(enumerate(self.others, start=1))

    def read(self, number: int) -> ListenerSettings:
        """Return the listener at a place, read anew from its file.

        Raises:
            UsageError: The file can't be understood.
        """
        if number:
            return read_listener(self.others[number - 1])
        return self.main if self.more_of_main is None else complete_listener(self.main, self.more_of_main)


_FIXED: Final = {
    "listen": "listen",
    "upstreams": "upstream",
    "upstream_node_id": "upstream.node.id",
    "port_range": "port.range",
    "host_pattern": "broker.host.pattern",
    "broker_addresses": "broker.addresses",
    "requires_authentication": "security.protocol",
    "tls": "ssl.*",
    "upstream_tls": "upstream.ssl.*",
    "proxy_sources": "proxy.protocol.trusted",
}
"""Settings that need a restart, and the names of their properties."""


def refuse_restart(before: ListenerSettings, now: ListenerSettings, path: Path) -> None:
    """Refuse a change of a listener that only a restart can make.

    Raises:
        UsageError: One of the settings in `_FIXED` differs.
    """
    fixed = [name for setting, name in _FIXED.items() if getattr(before, setting) != getattr(now, setting)]
    if fixed:
        raise UsageError(
            f"{path}: {', '.join(fixed)} can't change while the daemon runs", hint="restart it, or put back what it was"
        )


def all_listeners(files: ListenerFiles) -> tuple[ListenerSettings, ...]:
    """Return the main listener and those of the other files.

    Raises:
        UsageError: A file can't be understood, or two listeners have one name or the same ports.
    """
    listeners = tuple(files.read(number) for number in range(1 + len(files.others)))
    names = [listener.name for listener in listeners]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"two listeners are called {twice}", hint="a listener is called as its file, without the suffix"
        )
    ports_of(listeners)
    return listeners
