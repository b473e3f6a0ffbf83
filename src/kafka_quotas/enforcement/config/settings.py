"""The settings of one daemon, with those of its event log and its metrics."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.fleet_settings import FleetSettings
from kafka_quotas.enforcement.config.listener_file import ListenerFiles
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings
from kafka_quotas.enforcement.config.rules import MAX_QUEUED_REQUEST_BYTES, EnforcementRules
from kafka_quotas.enforcement.config.topic_target import TopicTarget
from kafka_quotas.enforcement.telemetry.log import LogFormat

ROTATE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTarget:
    """A folder of event files as the destination of the event log."""

    folder: Path
    rotate_bytes: int = 64 * 1024 * 1024
    """Size at which a file is closed."""
    rotate_s: float = ROTATE_S
    """Age at which a file is closed."""
    keep_bytes: int = 10 * 1024**3
    """Size of all files above which the oldest are removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogSettings:
    """The destination of events, and the name of the cluster in each of them."""

    target: FolderTarget | TopicTarget
    cluster: str


TOP: Final = 50
"""Default number of buckets shown beside the named ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsChoice:
    """The choice of buckets that get series of their own.

    It bounds the number of series, whatever clients call themselves.
    """

    top: int = TOP
    """Number of buckets by the share of their limit that is used."""
    users: frozenset[str] = frozenset()
    """Users, by raw name, all of whose buckets are shown."""
    client_ids: frozenset[str] = frozenset()
    """Client-ids all of whose buckets are shown."""


MAX_BUCKET_BYTES: Final = 256 * 1024 * 1024
"""Default memory for all buckets together: some 200,000 of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlAccess:
    """The rights on the control socket."""

    mode: int = 0o600
    """Permissions of the socket file."""
    users: frozenset[int] = frozenset()
    """Ids of the users that may connect beside the daemon's own and root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """The settings of a daemon: its listeners, rules, files and limits."""

    listeners: tuple[ListenerSettings, ...]
    """Listeners, the main one first, each with a name of its own."""
    listener_files: ListenerFiles | None = None
    """Files to read again at a reload."""
    connection_rate: float | None = None
    """Most new connections per second to each broker, over all listeners, None for any number."""
    rules: EnforcementRules = field(default_factory=EnforcementRules)
    static_quotas: Path | None = None
    policy_file: Path | None = None
    cost_model: Path | None = None
    control: Path | None = None
    """Path of the Unix socket, None for one in the user's runtime folder."""
    control_access: ControlAccess = field(default_factory=ControlAccess)
    """Rights on the Unix socket."""
    metrics: Address | None = None
    """Address of the Prometheus endpoint, None for no endpoint."""
    metrics_choice: MetricsChoice = field(default_factory=MetricsChoice)
    """Buckets that have series of their own."""
    log_format: LogFormat = LogFormat.TEXT
    event_log: EventLogSettings | None = None
    """Destination of a line per charge, None for no event log."""
    fleet: FleetSettings | None = None
    """The fleet with which limits are shared, None for none."""
    workers: int = 1
    """Processes that serve connections; one serves them itself."""
    takes_over: bool = False
    """Whether to take the place of the daemon that runs."""
    state_file: Path | None = None
    """File that keeps charges across a restart, None for no such file."""
    max_connections: int | None = None
    """Most connections in all, None for as many as the process may open files for."""
    queued_max_request_bytes: int = MAX_QUEUED_REQUEST_BYTES
    """Most bytes gathered at a time, over all connections, of requests that are looked at from beginning to end."""
    max_bucket_bytes: int = MAX_BUCKET_BYTES
    """Memory that all buckets may take together."""
    connect_timeout_s: float = 10.0
    drain_timeout_s: float = 10.0

    @property
    def upstreams(self) -> tuple[Address, ...]:
        """The bootstrap servers of the main listener."""
        return self.listeners[0].upstreams
