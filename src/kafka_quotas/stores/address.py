"""Where a store is and how it is opened: its URL, its servers, its settings and their timeouts.

Invariants: a parsed address is complete (ports filled in, `~` expanded, paths absolute) and holds no secret. Its text
opens the same store from any working folder. Client properties have Kafka's own names and may hold secrets, so they
never show in a `repr`.

    local:PATH   zk://HOST:PORT,.../CHROOT   kafka://HOST:PORT,...   static:FILE

**Source:** `AdminClientConfig` and `KafkaAdminClient.configureDefaultApiTimeoutMs`, Kafka 4.3, for the timeouts.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Self

from kafka_quotas.core.errors import StoreUnreachableError, UsageError

_GRAMMAR = "local:PATH, zk://host:2181,host2:2181/chroot, kafka://host:9092,host2:9092 or static:FILE"
_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/@\[\]]+)(?::(?P<port>\d{1,5}))?")


class StoreKind(Enum):
    """A kind of store, named by the scheme of its address, and what it can do."""

    LOCAL = "local"
    ZOOKEEPER = "zk"
    KAFKA = "kafka"
    STATIC = "static"

    @property
    def holds_thresholds(self) -> bool:
        """Whether it takes the thresholds of topics and brokers, which no Kafka has."""
        return self is StoreKind.LOCAL

    @property
    def holds_groups(self) -> bool:
        """Whether it takes groups of clients, which no Kafka has."""
        return self is StoreKind.LOCAL

    @property
    def is_static(self) -> bool:
        """Whether its quotas rank as levels 9 and 10, below all dynamic quotas."""
        return self is StoreKind.STATIC

    @property
    def broker_validates(self) -> bool:
        """Whether a broker checks alterations beside this program."""
        return self is StoreKind.KAFKA

    @property
    def takes_invalid(self) -> bool:
        """Whether its server accepts values that this program refuses (`--allow-invalid`)."""
        return self is StoreKind.ZOOKEEPER


_ALIASES = {"zookeeper": StoreKind.ZOOKEEPER, "sqlite": StoreKind.LOCAL, **{kind.value: kind for kind in StoreKind}}
_DEFAULT_PORTS = {StoreKind.ZOOKEEPER: 2181, StoreKind.KAFKA: 9092}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUrl:
    """A parsed address."""

    kind: StoreKind
    path: Path = Path()
    servers: tuple[str, ...] = ()
    """The servers as host:port, for stores on servers."""
    chroot: str = ""
    """The chroot in ZooKeeper, `""` or `/...`."""
    makes_folder: bool = field(default=False, compare=False)
    """Whether the first change to a file creates its folder too."""

    def is_same_place(self, other: "StoreUrl") -> bool:
        """Return whether both addresses certainly lead to one store: one file, or a server that both name."""
        if (self.kind, self.chroot, bool(self.servers)) != (other.kind, other.chroot, bool(other.servers)):
            return False
        if not self.servers:
            return self.path.resolve() == other.path.resolve()
        return not {*map(_one_spelling, self.servers)}.isdisjoint(map(_one_spelling, other.servers))

    def __str__(self) -> str:
        if self.servers:
            return f"{self.kind.value}://{','.join(self.servers)}{self.chroot}"
        return f"{self.kind.value}:{self.path}"


def parse_store_url(url: str) -> StoreUrl:
    """Parse the address of a store.

    Raises:
        UsageError: The scheme is unknown, the path is empty, or a server is not host:port.
    """
    scheme, colon, rest = url.strip().partition(":")
    kind = _ALIASES.get(scheme.lower()) if colon else None
    if kind is None:
        raise UsageError(f"not a store: {url!r}", hint=_unknown_scheme_hint(url, rest))
    if kind in _DEFAULT_PORTS:
        return _server_url(kind, url, rest)
    path = rest.removeprefix("//")
    if not path:
        raise UsageError(f"no file in {url!r}", hint=f"write {kind.value}:PATH")
    return StoreUrl(kind=kind, path=absolute_path(path))


def is_address_of(url: str, place: StoreUrl) -> bool:
    """Return whether an address from a file or a daemon leads to this store, which no invalid one does."""
    try:
        return parse_store_url(url).is_same_place(place)
    except UsageError:
        return False


def absolute_path(text: str) -> Path:
    """Return the absolute path for a text, with `~` expanded and links left as they are."""
    return Path(os.path.abspath(Path(text).expanduser()))  # noqa: PTH100 - resolve() would follow links


def default_store_url() -> StoreUrl:
    """Return the address of the default store: `quotas.db` in the user's data folder, which it may create."""
    from platformdirs import user_data_path  # noqa: PLC0415 - only an unchosen store needs it

    path = user_data_path("kafka-quotas", appauthor=False) / "quotas.db"
    return StoreUrl(kind=StoreKind.LOCAL, path=path, makes_folder=True)


def _unknown_scheme_hint(url: str, rest: str) -> str:
    if rest.isdigit() or rest.partition("/")[0].isdigit():
        return f"a bare host:port is kafka://{url} or zk://{url}"
    if "://" not in url and ("/" in url or url.endswith((".db", ".sqlite"))):
        return f"a file is local:{url}"
    return f"a store is {_GRAMMAR}"


def _server_url(kind: StoreKind, url: str, rest: str) -> StoreUrl:
    servers, slash, chroot = rest.removeprefix("//").partition("/")
    if "@" in servers:
        raise UsageError(
            f"a {kind.value}:// address takes no user or password",
            hint="put credentials in a file and name it with --command-config",
        )
    if kind is StoreKind.KAFKA and chroot:
        raise UsageError(f"a kafka:// address has no path: {url!r}", hint="write kafka://host:9092,host2:9092")
    cleaned = chroot.strip("/")
    return StoreUrl(
        kind=kind,
        servers=tuple(_host_port(kind, url, server) for server in servers.split(",")),
        chroot=f"/{cleaned}" if slash and cleaned else "",
    )


def _one_spelling(server: str) -> str:
    host, _, port = server.lower().rpartition(":")
    return f"localhost:{port}" if host in ("127.0.0.1", "[::1]") else f"{host}:{port}"


def _host_port(kind: StoreKind, url: str, server: str) -> str:
    match = _HOST_PORT.fullmatch(server.strip())
    port = int(match["port"]) if match and match["port"] else _DEFAULT_PORTS[kind]
    if match is None or not 0 < port <= 65535:
        raise UsageError(
            f"not a host:port in {url!r}: {server!r}",
            hint=f"write {kind.value}://host:{_DEFAULT_PORTS[kind]}; several servers are separated by commas",
        )
    return f"{match['host']}:{port}"


REMEMBERED_S: Final = 60.0
"""Seconds until a store that stays open, such as that of `apply --watch`, sends to a silent broker again."""


class ServerAddress(NamedTuple):
    """The host, without brackets, and the port of a server."""

    host: str
    port: int

    @classmethod
    def parse(cls, server: str) -> Self:
        """Return the address in a text of the form host:port or [IPv6 address]:port."""
        host, _, port = server.rpartition(":")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UnresponsiveBrokerError(StoreUnreachableError):
    """One broker that does not answer, whatever the others of its cluster do."""


class UnresponsiveBrokers:
    """The brokers that lately gave no answer, so that a command waits for each only once."""

    def __init__(self, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._found: dict[ServerAddress, tuple[str, float]] = {}

    def add(self, address: ServerAddress, reason: str) -> None:
        """Remember an address that gave no answer."""
        self._found[address] = (reason, self._monotonic_s() + REMEMBERED_S)

    def discard(self, address: ServerAddress) -> None:
        """Forget an address that has answered."""
        self._found.pop(address, None)

    def reason(self, address: ServerAddress) -> str | None:
        """Return why an address gave no answer, None where it is worth an attempt."""
        reason, until_s = self._found.get(address, (None, 0.0))
        return reason if until_s > self._monotonic_s() else None


def network_reason(error: OSError) -> str:
    """Return the reason in lower case, such as "connection refused" or "no answer"."""
    if isinstance(error, TimeoutError):
        return "no answer"
    return (error.strerror or str(error)).lower()


DEFAULT_TIMEOUT_S: Final = 30.0
_REQUEST: Final = "request.timeout.ms"
_CALL: Final = "default.api.timeout.ms"
_LARGEST_MS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Settings for every kind of store, which ignores those that do not concern it."""

    client_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_invalid: bool = False
    """Whether a store leaves out our own refusals and applies those of its server only."""
    wait: bool = True
    """Whether a Kafka store reads a change back until every broker shows it."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Seconds for each connection attempt, each request and that wait, where the properties set none."""
    warn: Callable[[str], None] = field(default=lambda _: None, repr=False, compare=False)
    """Receives warnings that are not part of a result."""
    unresponsive: UnresponsiveBrokers = field(default_factory=UnresponsiveBrokers, repr=False, compare=False)
    """The brokers that do not answer, shared by all stores that one command opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The longest waits for a store's servers (seconds)."""

    call_s: float
    """For a whole call, all its attempts included, and for a change to show."""
    request_s: float | None = None
    """For one attempt at one server, None where the kind of attempt decides."""


def timeouts(settings: StoreSettings) -> Timeouts:
    """Return the timeouts of the client properties, or else those of the settings."""
    properties = settings.client_properties
    call_s, request_s = _seconds(properties, _CALL), _seconds(properties, _REQUEST)
    if call_s is None:
        return Timeouts(call_s=max(settings.timeout_s, request_s or 0), request_s=request_s)
    if request_s is not None and request_s > call_s:
        raise UsageError(f"{_CALL} is shorter than {_REQUEST}", hint=f"lower {_REQUEST}, or raise {_CALL}")
    return Timeouts(call_s=call_s, request_s=request_s)


def _seconds(properties: Mapping[str, str], name: str) -> float | None:
    text = properties.get(name, "").strip()
    if not text:
        return None
    milliseconds = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < milliseconds <= _LARGEST_MS:
        raise UsageError(f"{name}: {text!r} is not a time", hint="it is a positive whole number of milliseconds")
    return milliseconds / 1000
