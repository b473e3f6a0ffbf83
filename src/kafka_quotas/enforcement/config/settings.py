"""The settings of one daemon, each with its option, its section of `daemon.toml`, and its help.

A group of settings that may be absent as a whole (event log, fleet) is there if its first setting is given.
"""

import pwd
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from kafka_quotas.core.errors import StoreRefusedError, UsageError
from kafka_quotas.core.formats.documents import read_properties
from kafka_quotas.core.model.setting import TextForm, setting
from kafka_quotas.enforcement.config.address import (
    LOCAL_ADDRESS,
    SCHEME,
    TOPIC,
    TOPIC_PATTERN,
    Address,
    TopicTarget,
    parse_topic,
)
from kafka_quotas.enforcement.config.client_policy import ENFORCEMENT, OnViolation
from kafka_quotas.enforcement.config.listener_settings import (
    LISTENERS,
    UPSTREAM,
    ListenerSettings,
    ports_of,
    read_listener,
)
from kafka_quotas.enforcement.config.rules import LIMITS, MAX_QUEUED_REQUEST_BYTES, NAME, SIZE, EnforcementRules
from kafka_quotas.enforcement.telemetry.log import LogFormat

T = TypeVar("T", bound=Path | TopicTarget)
_STORE: Final = partial(setting, "store")
_TELEMETRY: Final = partial(setting, "telemetry")
_FLEET: Final = partial(setting, "fleet")
_OPERATION: Final = partial(setting, "operation")
FLEET: Final = "default"
"""Name of the fleet of daemons that give none."""
MIN_SECRET_BYTES: Final = 16
_MAX_FILE_BYTES: Final = 4096
_CONTROL_MODE: Final = re.compile("0?6[0246]{2}")
"""Modes of a control socket: its owner uses it, and a right to execute means nothing."""


def _control_mode(text: str) -> int:
    if not _CONTROL_MODE.fullmatch(text):
        raise UsageError(
            f"not a mode of a socket: {text!r}", hint="0600, 0660 for the daemon's group, 0666 for --control-user"
        )
    return int(text, 8)


def _user_id(name: str) -> int:
    NAME.read(name)
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError as error:
        raise UsageError(f"there is no user {name!r} on this machine") from error


def _event_target(text: str) -> Path | TopicTarget:
    return parse_topic(text) if text.startswith(SCHEME) else Path(NAME.read(text))


CONTROL_MODE: Final = TextForm(
    read=_control_mode, pattern=f"^{_CONTROL_MODE.pattern}$", write=lambda mode: f"{mode:04o}"
)
EVENT_TARGET: Final = TextForm(read=_event_target, pattern=rf"^(?:{TOPIC_PATTERN}|(?!{SCHEME})[\s\S]+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogSettings:
    """The destination of events, and the name of the cluster in each of them."""

    target: Path | TopicTarget = _TELEMETRY(
        "--event-log DIR|kafka://HOST:PORT/TOPIC",
        "Write a line of JSON per charge: who, how much, which throttle time. To rotated files, or to a topic.",
        EVENT_TARGET,
    )
    rotate_s: float = _TELEMETRY(
        "--event-log-rotate SECONDS",
        "How long the event log writes to one file; a file ends at 64 MiB in any case.",
        default=60.0,
        least=0.1,
    )
    rotate_bytes: int = 64 * 1024 * 1024
    """Size at which a file is closed."""
    keep_bytes: int = _TELEMETRY(
        "--event-log-keep SIZE",
        "How much the event log's folder may hold before the oldest files are removed.",
        SIZE,
        default=10 * 1024**3,
    )
    properties_file: Path | None = _TELEMETRY(
        "--event-log-config FILE",
        "Properties for the topic of the event log by librdkafka's names, with a login by Kafka's own too.",
        default=None,
    )
    cluster: str = _TELEMETRY(
        "--cluster NAME",
        "The name of the cluster in the event log. Default: the address of --upstream.",
        NAME,
        default="",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsChoice:
    """The choice of buckets that get series of their own.

    It bounds the number of series, whatever clients call themselves.
    """

    top: int = _TELEMETRY(
        "--metrics-top N",
        "How many buckets have series of their own: those that use most of their limit.",
        default=50,
        least=0,
        most=1000,
    )
    users: frozenset[str] = _TELEMETRY(
        "--metrics-user NAME",
        "A user whose buckets have series of their own in any case; may be repeated.",
        NAME,
        default=frozenset(),
    )
    """Raw names."""
    client_ids: frozenset[str] = _TELEMETRY(
        "--metrics-client ID", "The same for a client-id.", NAME, default=frozenset()
    )


class Fallback(StrEnum):
    """What a member that is cut off from the others allows."""

    SHARE = "share"
    WHOLE = "whole"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """The topic that the members of a fleet share, and how this one behaves."""

    refused_alone: ClassVar = ("name", "properties_file", "secret_file")
    """Settings that are refused without the first one."""

    target: TopicTarget = _FLEET(
        "--fleet kafka://HOST:PORT/TOPIC",
        "Hold every limit together with all daemons that share this topic, which is created if it is missing.",
        TOPIC,
    )
    name: str = _FLEET(
        "--fleet-name NAME", "Which daemons on that topic share: those with the same name.", NAME, default=FLEET
    )
    fallback: Fallback = _FLEET(
        "--fleet-fallback",
        "What to allow while the others can't be heard: the last share of each limit, all of it, or nothing.",
        default=Fallback.SHARE,
    )
    properties_file: Path | None = _FLEET(
        "--fleet-config FILE",
        "Properties for the topic of the fleet by librdkafka's names, with a login by Kafka's own too.",
        default=None,
    )
    secret_file: Path | None = _FLEET(
        "--fleet-secret-file FILE",
        "The secret that all members share: it signs their reports, and no others count. A second line is for a "
        "change of secrets.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """The settings of a daemon: its listeners, rules, files and limits."""

    main: ListenerSettings
    listener_config: Path | None = LISTENERS(
        "--listener-config FILE",
        "Further settings of the listener of --listen: TLS on either side, PROXY protocol, host names, limits.",
        default=None,
    )
    listener_files: tuple[Path, ...] = LISTENERS(
        "--listener FILE",
        "One more listener, whose file sets `listen` and `upstream` too; may be repeated. Listeners share the quotas.",
        default=(),
    )
    listeners: tuple[ListenerSettings, ...] = ()
    """All listeners, the main one first, each with a name of its own."""
    connect_timeout_s: float = UPSTREAM(
        "--connect-timeout SECONDS", "How long to try to connect to a broker.", default=10.0, least=0.1
    )
    static_quotas: Path | None = _STORE(
        "--static-quotas FILE",
        "Properties quota.producer.default, quota.consumer.override and so on; they apply below the store's quotas.",
        default=None,
    )
    rules: EnforcementRules = field(default_factory=EnforcementRules)
    policy_file: Path | None = ENFORCEMENT(
        "--policy FILE",
        "A TOML file with modes for some users and client-ids, request rates, exemptions and topic thresholds.",
        default=None,
    )
    cost_model: Path | None = ENFORCEMENT(
        "--cost-model FILE",
        "The thread time of requests as measured by `daemon calibrate`; request_percentage is estimated by it.",
        default=None,
    )
    connection_rate: int | None = LIMITS(
        "--connection-rate N",
        "Connections per second to each broker in all, as max.connection.creation.rate; those beyond it wait.",
        default=None,
        least=1,
    )
    max_connections: int | None = LIMITS(
        "--max-connections N",
        "Clients' connections in all; more wait to be accepted. Default: what the limit of open files allows.",
        default=None,
        least=1,
    )
    queued_max_request_bytes: int = LIMITS(
        "--queued-max-request-bytes SIZE",
        "How many bytes of requests and responses that have to be read as a whole may be buffered at a time, "
        "over all connections.",
        SIZE,
        default=MAX_QUEUED_REQUEST_BYTES,
    )
    max_bucket_bytes: int = LIMITS(
        "--max-bucket-memory SIZE",
        "How much memory the buckets of all clients may take together, at about 1300 bytes each; those idle "
        "longest are forgotten first, never one whose client is held back by a limit of its own.",
        SIZE,
        default=256 * 1024**2,
    )
    metrics: Address | None = _TELEMETRY(
        "--metrics-port [HOST:]PORT",
        "Serve Prometheus metrics, /healthz and /readyz there, and at / a page for browsers, on 127.0.0.1 without "
        "a host.",
        LOCAL_ADDRESS,
        default=None,
    )
    metrics_choice: MetricsChoice = field(default_factory=MetricsChoice)
    log_format: LogFormat = _TELEMETRY(
        "--log-format", "The form of a log line: key=value pairs, or one JSON object.", default=LogFormat.TEXT
    )
    event_log: EventLogSettings | None = None
    fleet: FleetSettings | None = None
    control: Path | None = _OPERATION(
        "--control PATH",
        "The Unix socket for status, reload and other programs. Default: daemon-PORT.sock in your runtime folder.",
        default=None,
    )
    control_mode: int = _OPERATION(
        "--control-mode OCTAL", "The mode of the control socket's file.", CONTROL_MODE, default=0o600
    )
    control_users: frozenset[int] = _OPERATION(
        "--control-user NAME|UID",
        "Another user of this machine who may ask on the control socket; may be repeated. Needs a --control-mode "
        "that lets other users connect.",
        TextForm(read=_user_id, pattern=NAME.pattern, integers=NAME.integers),
        default=frozenset(),
    )
    state_file: Path | None = _OPERATION(
        "--state-file FILE",
        "Save usage to this file, so that clients don't start with a clean slate after a restart. Saved every "
        "5 seconds and at the end.",
        default=None,
    )
    drain_timeout_s: float = _OPERATION(
        "--drain-timeout SECONDS", "How long requests under way may take after SIGTERM.", default=10.0, least=0.0
    )
    workers: int = _OPERATION(
        "--workers N",
        "How many processes serve connections. They hold every limit together, for machines with many cores.",
        default=1,
        least=1,
        most=64,
    )

    @property
    def upstreams(self) -> tuple[Address, ...]:
        """The bootstrap servers of the main listener."""
        return self.main.upstreams

    @property
    def listener_paths(self) -> dict[int, Path]:
        """The files of listeners by the listener's index in `listeners`."""
        main = {} if self.listener_config is None else {0: self.listener_config}
        return main | dict(enumerate(self.listener_files, start=1))

    def read_listener(self, number: int) -> ListenerSettings:
        """Return the listener with an index, read anew from its file."""
        if number:
            return read_listener(self.listener_files[number - 1])
        return self.main if self.listener_config is None else read_listener(self.listener_config, self.main)

    def completed(self) -> "DaemonSettings":
        """Return the settings with what follows from several of them, or is in the files that they name.

        Raises:
            UsageError: Two settings contradict each other, or a file can't be read or used.
        """
        rules, event_log, fleet = self.rules, self.event_log, self.fleet
        if rules.on_violation is OnViolation.DELAY_THEN_ERROR and rules.max_throttle_ms is None:
            raise UsageError(
                "--on-violation delay-then-error needs --max-throttle-ms", hint="it says how long the delay may be"
            )
        if event_log is not None:
            if event_log.properties_file is not None and isinstance(event_log.target, Path):
                raise UsageError("--event-log-config is for a topic", hint="leave it out: --event-log names a folder")
            target = _with_properties(event_log.target, event_log.properties_file)
            cluster = event_log.cluster or ",".join(map(str, self.upstreams))
            event_log = replace(event_log, target=target, cluster=cluster)
        if fleet is not None:
            if fleet.secret_file is not None:
                read_secrets(fleet.secret_file)
            fleet = replace(fleet, target=_with_properties(fleet.target, fleet.properties_file))
            rules = replace(rules, fleet_topic=fleet.target.topic)
        listeners = tuple(map(self.read_listener, range(1 + len(self.listener_files))))
        ports_of(listeners)
        return replace(self, listeners=listeners, rules=rules, event_log=event_log, fleet=fleet)


def _with_properties(target: T, path: Path | None) -> T:
    if path is None or not isinstance(target, TopicTarget):
        return target
    from kafka_quotas.stores.security.librdkafka import (  # noqa: PLC0415 - only with such a file
        librdkafka_properties,
        refuse_without_kerberos,
    )

    properties = read_properties(path)
    refuse_without_kerberos(properties)
    with suppress(StoreRefusedError):  # a wrong login is refused now, not in a thread; tokens may be had later
        librdkafka_properties({"bootstrap.servers": target.bootstrap, **properties})
    return replace(target, properties=properties)


def read_secrets(path: Path) -> tuple[bytes, ...]:
    """Return the secrets in a file, one a line: the first signs, the second is for a change of secrets."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", hint="--fleet-secret-file names a file") from error
    secrets = tuple(line.strip() for line in content.splitlines() if line.strip())
    hint = "one secret a line, at most two; for example: openssl rand -hex 32"
    if len(content) > _MAX_FILE_BYTES or not 1 <= len(secrets) <= 2:
        raise UsageError(f"{path}: not a file of one or two secrets", hint=hint)
    if min(map(len, secrets)) < MIN_SECRET_BYTES:
        raise UsageError(f"{path}: a secret has fewer than {MIN_SECRET_BYTES} characters", hint=hint)
    return secrets


def acls_needed(topic: str) -> str:
    """Return what keeps others from a fleet's topic if its reports are not signed."""
    return (
        f"--fleet-secret-file, or ACLs on topic {topic}: Create, Describe, DescribeConfigs, Read and Write for the "
        "daemons' user; for nobody else Write, Delete, Alter or AlterConfigs, and no Alter on the cluster"
    )
