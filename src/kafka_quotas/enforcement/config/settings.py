"""How one daemon is run."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.event_log_settings import EventLogSettings
from kafka_quotas.enforcement.config.listener_file import ListenerFiles
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings
from kafka_quotas.enforcement.config.metrics_choice import MetricsChoice
from kafka_quotas.enforcement.config.rules import MAX_QUEUED_REQUEST_BYTES, EnforcementRules
from kafka_quotas.enforcement.telemetry.log import LogFormat

MAX_BUCKET_BYTES: Final = 256 * 1024 * 1024
"""What buckets may take in memory together by default: some 200,000 of them."""

CONTROL_MODE: Final = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlAccess:
    """The socket file's mode, and the ids of users who may ask beside the daemon's own and root."""

    mode: int = CONTROL_MODE
    users: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """Where the daemon listens and what it stands in front of.

    The first listener is the main one; their names differ. `listener_files` says what to read again at a reload.
    `connection_rate` is how many connections per second may be
    made to each broker, through whichever listener, None for any number. `control` is
    the path of the Unix socket, None puts it in the user's runtime folder; `control_access` is who may use it.
    `metrics` serves Prometheus, `event_log` writes a line per charge, `state_file` remembers what was charged across a
    restart, each where it is set. `max_connections` is how many connections there may be in all; None leaves it to the
    number of files that the process may open. `queued_max_request_bytes` is how much of requests that have to be seen
    as a whole may be gathered at a time, over all connections. `metrics_choice` says which buckets have
    series of their own. `max_bucket_bytes` is what buckets may take in memory together.
    """

    listeners: tuple[ListenerSettings, ...]
    listener_files: ListenerFiles | None = None
    connection_rate: float | None = None
    rules: EnforcementRules = field(default_factory=EnforcementRules)
    static_quotas: Path | None = None
    policy_file: Path | None = None
    cost_model: Path | None = None
    control: Path | None = None
    control_access: ControlAccess = field(default_factory=ControlAccess)
    metrics: Address | None = None
    metrics_choice: MetricsChoice = field(default_factory=MetricsChoice)
    log_format: LogFormat = LogFormat.TEXT
    event_log: EventLogSettings | None = None
    state_file: Path | None = None
    max_connections: int | None = None
    queued_max_request_bytes: int = MAX_QUEUED_REQUEST_BYTES
    max_bucket_bytes: int = MAX_BUCKET_BYTES
    connect_timeout_s: float = 10.0
    drain_timeout_s: float = 10.0

    @property
    def upstreams(self) -> tuple[Address, ...]:
        """The bootstrap servers of the main listener."""
        return self.listeners[0].upstreams

    @property
    def listen(self) -> Address:
        """Where clients bootstrap at the main listener."""
        return self.listeners[0].listen
