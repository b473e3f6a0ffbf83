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
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.java.strings import well_formed
from kafka_quotas.core.model.setting import SettingSpec
from kafka_quotas.enforcement.config.address import (
    MAX_NODE_ID,
    parse_address,
    parse_addresses,
    parse_broker_addresses,
    parse_port_range,
)
from kafka_quotas.enforcement.config.listener_settings import NODE_ID_MARK, ListenerSettings, Network, ports_of
from kafka_quotas.enforcement.config.principal_mapping import PROPERTY, PrincipalMapping
from kafka_quotas.enforcement.config.rules import ALLOW, DENY, parse_api_access
from kafka_quotas.enforcement.config.toml_table import names_table, properties_in, table_name
from kafka_quotas.stores.files.property_file import read_properties

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_UPSTREAM: Final = "upstream."
_ADDRESSES: Final = ("listen", "upstream")
_LONGEST_MS: Final = 2**63 - 1


def read_listener(path: Path) -> ListenerSettings:
    """Read the listener that a file describes, under the file's name.

    Raises:
        UsageError: The file can't be read, or a property is unknown, missing or not valid.
    """
    properties = _properties(path)
    missing = [name for name in _ADDRESSES if name not in properties]
    if missing:
        raise UsageError(f"{path}: {' and '.join(missing)} missing", hint="a listener needs both, as HOST:PORT")
    return _completed(
        ListenerSettings(
            name=table_name(path) if names_table(path) else path.stem,
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
    properties = _properties(path)
    twice = [name for name in _ADDRESSES if name in properties]
    if twice:
        raise UsageError(f"{path}: {' and '.join(twice)} can't be given here", hint="--listen and --upstream say it")
    return _completed(settings, properties, path)


def _properties(path: Path) -> dict[str, str]:
    return properties_in(path) if names_table(path) else read_properties(path)


def _completed(settings: ListenerSettings, properties: Mapping[str, str], path: Path) -> ListenerSettings:
    try:
        for name in properties:
            _refuse_unknown(name)
        return _replaced(settings, properties)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from error


def _refuse_unknown(name: str) -> None:
    if name not in PROPERTIES and not name.removeprefix(_UPSTREAM).startswith("ssl."):
        raise UsageError(f"unknown property {name}", hint="docs/reference/daemon.md lists them")


def check_property(name: str, text: str) -> None:
    """Refuse a property of a listener that is unknown, or whose value can't be meant.

    Raises:
        UsageError: It is such a property.
    """
    _refuse_unknown(name)
    if name in _SETTINGS:
        _SETTINGS[name][1](name, text)
    elif name in _ADDRESSES:
        parse_address(text, may_be_zero=True) if name == "listen" else parse_addresses([text])
    elif name.endswith("security.protocol"):
        _protocol(name, text)
    elif name in (ALLOW, DENY):
        parse_api_access(allow=text if name == ALLOW else None, deny=text if name == DENY else None)


def _replaced(settings: ListenerSettings, properties: Mapping[str, str]) -> ListenerSettings:
    values = {
        setting: parse(name, properties[name]) for name, (setting, parse) in _SETTINGS.items() if name in properties
    }
    if values.get("upstream_node_id") is not None and len(settings.upstreams) > 1:
        raise UsageError("upstream.node.id: there are several upstreams", hint="leave it out, or name one upstream")
    protocol, upstream_protocol = (
        _protocol(f"{side}security.protocol", properties.get(f"{side}security.protocol", "PLAINTEXT"))
        for side in ("", _UPSTREAM)
    )
    return dataclasses.replace(
        settings,
        **values,
        requires_authentication=protocol.startswith("SASL"),
        tls=_tls(properties, "") if protocol.endswith("SSL") else None,
        upstream_tls=_tls(properties, _UPSTREAM) if upstream_protocol.endswith("SSL") else None,
        apis=parse_api_access(allow=properties.get(ALLOW), deny=properties.get(DENY)),
    )


def _protocol(name: str, text: str) -> str:
    protocol = text.strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise UsageError(f"{name}: {protocol!r} is not a security protocol", hint=", ".join(SECURITY_PROTOCOLS))
    return protocol


def _tls(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(f"{prefix}ssl.")}


def _text(_name: str, text: str) -> str:
    return text


def _integer(name: str, text: str) -> int:
    least, most = INTEGERS[name]
    digits = text.strip()
    if not digits.isdecimal() or len(digits) > len(str(most)) or not least <= int(digits) <= most:
        raise UsageError(f"{name}: not a whole number from {least} to {most}: {text!r}")
    return int(digits)


def _idle_ms(name: str, text: str) -> int | None:
    """Return the longest idle time, None for the -1 that means no limit in a broker."""
    return None if text.strip() == "-1" else _integer(name, text)


def _host_pattern(name: str, text: str) -> str:
    if NODE_ID_MARK not in text:
        raise UsageError(f"{name}: {text!r} names all brokers alike", hint=f"put {NODE_ID_MARK} in it")
    return text


def _principal_mapping(_name: str, text: str) -> str:
    PrincipalMapping(text)  # refuses rules that can't be read
    return text


def _networks(name: str, text: str) -> tuple[Network, ...]:
    hint = "for example 10.0.0.0/8,127.0.0.1"
    try:
        networks = tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise UsageError(f"{name}: {error}", hint=hint) from error
    if not networks:
        raise UsageError(f"{name} names no network", hint=hint)
    return networks


INTEGERS: Final = {
    "upstream.node.id": (0, MAX_NODE_ID),
    "max.connection.creation.rate": (1, MAX_NODE_ID),
    "max.connections": (1, MAX_NODE_ID),
    "max.connections.per.ip": (1, MAX_NODE_ID),
    "connections.max.idle.ms": (1, _LONGEST_MS),
    "max.in.flight.requests.per.connection": (1, MAX_NODE_ID),
}
"""Properties that are whole numbers, with the least and the greatest."""
_SETTINGS: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
    "broker.host.pattern": ("host_pattern", _host_pattern),
    PROPERTY: ("principal_mapping", _principal_mapping),
    "upstream.node.id": ("upstream_node_id", _integer),
    "port.range": ("port_range", lambda _, text: parse_port_range(text)),
    "advertised.host": ("advertised_host", _text),
    "broker.addresses": ("broker_addresses", lambda _, text: parse_broker_addresses([text])),
    "principal": ("principal", lambda _, text: well_formed(text)),
    "sasl.oauthbearer.sub.claim.name": ("oauthbearer_claim", _text),
    "proxy.protocol.trusted": ("proxy_sources", _networks),
    "max.connection.creation.rate": ("connection_rate", _integer),
    "max.connections": ("max_connections", _integer),
    "max.connections.per.ip": ("max_connections_per_ip", _integer),
    "connections.max.idle.ms": ("max_idle_ms", _idle_ms),
    "max.in.flight.requests.per.connection": ("max_in_flight", _integer),
}
"""Properties that set one setting each, and their parsers: (name, text) -> value."""
PROPERTIES: Final = (*_ADDRESSES, *_SETTINGS, "security.protocol", "upstream.security.protocol", ALLOW, DENY)
"""Every property but those of TLS."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListenerFiles:
    """The main listener and the files that describe listeners."""

    main: ListenerSettings
    """Main listener, as options describe it."""
    more_of_main: Annotated[
        Path | None,
        SettingSpec(
            "--listener-config FILE",
            "listeners",
            "Further settings of the listener of --listen: TLS on either side, PROXY protocol, host names, limits.",
        ),
    ] = None
    others: Annotated[
        tuple[Path, ...],
        SettingSpec(
            "--listener FILE",
            "listeners",
            "One more listener, whose file sets `listen` and `upstream` too; may be repeated. Listeners share the "
            "quotas.",
        ),
    ] = ()

    @property
    def paths(self) -> dict[int, Path]:
        """The files of listeners by the listener's index in `all_listeners`."""
        more = {} if self.more_of_main is None else {0: self.more_of_main}
        return more | dict(enumerate(self.others, start=1))

    def read(self, number: int) -> ListenerSettings:
        """Return the listener with an index, read anew from its file.

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
