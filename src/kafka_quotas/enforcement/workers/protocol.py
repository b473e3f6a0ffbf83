"""The messages between the parent and its workers."""

from dataclasses import dataclass, field
from enum import Enum

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.proxy.unmuting import ClientChoice
from kafka_quotas.enforcement.quotas.store_watcher import ChangedSnapshot
from kafka_quotas.enforcement.telemetry.log import LogEvent
from kafka_quotas.enforcement.telemetry.status import QuotaTotals
from kafka_quotas.enforcement.upgrade.messages import OfferedRoute
from kafka_quotas.enforcement.workers.shared_charges import SharedCharge, WaitingClients


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
    routes: tuple[OfferedRoute, ...]


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

    rows: tuple[WaitingClients, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChanged:
    """A new content of the store."""

    store_url: str
    snapshot: ChangedSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """An event for the log."""

    event: LogEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTotals:
    """A worker's counters since its start, which outlive it."""

    counters: dict[str, int] = field(default_factory=dict)
    quota_totals: tuple[QuotaTotals, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The parent's request to answer what has begun and to end."""

    timeout_s: float
    outlasts_mutes: bool


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSocket:
    """The answer where there can be none."""

    message: str
    hint: str | None


class WorkerError(KafkaQuotasError):
    """Error for workers that can't be started."""
