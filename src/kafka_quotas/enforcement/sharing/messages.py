"""The messages between the parent and its workers, beside events for the log and errors, which cross as they are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.proxy.listener import Listener
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer
from kafka_quotas.enforcement.proxy.unmuting import ClientChoice
from kafka_quotas.enforcement.quotas.quota_registry import Route
from kafka_quotas.enforcement.quotas.store_watcher import ChangedSnapshot
from kafka_quotas.enforcement.sharing.buckets import BucketId
from kafka_quotas.enforcement.sharing.charges import SharedCharge
from kafka_quotas.enforcement.telemetry.status import QuotaTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRoute:
    """A route to a broker that one process knows, for the others."""

    listener: str
    """Name of the listener."""
    node_id: int
    upstream: Address
    """Address of the broker, or of the bootstrap server."""
    is_bootstrap: bool
    """Whether it is a bootstrap server, whose node id is known."""


def known_routes(proxy: ProxyServer) -> tuple[KnownRoute, ...]:
    """Return all routes that another process can use."""
    found = (known_route(listener, route) for listener in proxy.listeners for route in listener.brokers.routes)
    return tuple(route for route in found if route is not None)


def known_route(listener: Listener, route: Route) -> KnownRoute | None:
    """Return a route for another process, None while its broker is unknown."""
    is_bootstrap = any(route is each for each in listener.brokers.bootstraps)
    if route.node_id is None or not route.is_named or not (is_bootstrap or route.is_located):
        return None
    name = listener.settings.name
    return KnownRoute(listener=name, node_id=route.node_id, upstream=route.upstream, is_bootstrap=is_bootstrap)


def meet(listeners: Iterable[Listener], route: KnownRoute) -> None:
    """Take up a route that another process knows."""
    for listener in listeners:
        if listener.settings.name == route.listener:
            listener.meet(route.node_id, route.upstream, is_bootstrap=route.is_bootstrap)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStart:
    """The first message to a worker: all that it needs."""

    worker: int
    settings: DaemonSettings
    clock_offset_ns: int
    """Difference of the daemon's clock from the monotonic one."""
    store_url: str
    snapshot: ChangedSnapshot
    """The store's content in force."""
    state: str
    """What was measured so far."""
    routes: tuple[KnownRoute, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A worker's message that it serves connections from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """An admitted connection, with its socket."""

    number: int
    listener: str
    node_id: int | None
    upstream: Address
    is_bootstrap: bool
    is_located: bool
    source: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A worker's message that a connection has ended."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargesTaken:
    """What processes charged since their last messages, by their numbers, where the parent's is 0."""

    charges: tuple[tuple[int, list[SharedCharge]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientsWaiting:
    """A worker's message about its throttled clients, in place of its last one."""

    counts: Mapping[BucketId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChanged:
    """A new content of the store."""

    store_url: str
    snapshot: ChangedSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTotals:
    """A worker's counters since its start, which outlive it."""

    counters: dict[str, int] = field(default_factory=dict)
    quota_totals: tuple[QuotaTotals, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The parent's request to answer what has begun and to end."""

    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """A worker's last message."""

    cut_connections: int


class WorkerReport(Enum):
    """What the parent requests of a worker, which returns a `WorkerAnswer`."""

    STATUS = "status"
    FIGURES = "figures"
    RELOAD = "reload"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequest:
    """A request of the parent with its number."""

    number: int
    of: WorkerReport | ClientChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAnswer:
    """A worker's answer to a request."""

    number: int
    result: object


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSocket:
    """A worker's question for the listening socket of a role, which it waits for."""

    role: str
    upstream: Address | None
    """Address of the broker, None for a bootstrap listener."""


class WorkerError(KafkaQuotasError):
    """Error for workers that can't be started."""
