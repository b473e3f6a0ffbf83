"""The options of `daemon run` about the network, metrics and operation, and those of its sister commands."""

import pwd
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.completion.values import complete_contexts
from kafka_quotas.cli.daemon.setting_forms import control_mode, parse_size
from kafka_quotas.cli.framework.option_groups import option, option_group, required
from kafka_quotas.cli.framework.service_variables import variable
from kafka_quotas.cli.framework.store_choice import choose_store
from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.config.address import Address, parse_address, parse_broker_addresses, parse_local_address
from kafka_quotas.enforcement.config.fleet_settings import FLEET, Fallback, FleetSettings, read_secrets
from kafka_quotas.enforcement.config.listener_file import ListenerFiles, parse_port_range
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings
from kafka_quotas.enforcement.config.rules import UnknownApi
from kafka_quotas.enforcement.config.settings import (
    ROTATE_S,
    TOP,
    ControlAccess,
    EventLogSettings,
    FolderTarget,
    MetricsChoice,
)
from kafka_quotas.enforcement.config.topic_target import SCHEME, parse_topic
from kafka_quotas.enforcement.telemetry.log import LogFormat
from kafka_quotas.stores.files.property_file import read_properties

Control = Annotated[
    Path | None,
    typer.Option(
        "--control",
        metavar="PATH",
        help="The Unix socket for status, reload and other programs. Default: daemon-PORT.sock in your runtime folder.",
    ),
]


@option_group("Daemon")
class AskedDaemon:
    """The options that name the running daemon to ask."""

    control: Path | None = option(
        "--control PATH",
        help="The control socket of the daemon. Default: the one of the context, else that of your only daemon.",
        envvar=variable("DAEMON", "--control"),
    )
    context: str | None = option(
        "--context NAME",
        help="The context whose daemon is asked. Without it the variable KAFKA_QUOTAS_CONTEXT counts, else the context "
        "in use.",
        autocompletion=complete_contexts,
    )

    def path(self) -> Path | None:
        """Return the path of the control socket, None for the only running daemon.

        Raises:
            UsageError: There is no such context, or the context that was named has no control socket.
        """
        if self.control is not None:
            if self.context is not None:
                raise UsageError("--control and --context exclude each other", hint="each names the daemon")
            return self.control
        context = choose_store(store=None, context=self.context).context
        if self.context is not None and context is not None and context.control is None:
            raise UsageError(
                f"context {context.name} has no control socket",
                hint=f"kafka-quotas context set {context.name} --control PATH",
            )
        return None if context is None else context.control_path


@option_group("Cluster")
class BootstrapOptions:
    """The options that name the cluster, and where its clients connect."""

    upstream: list[str] = required(
        "--upstream HOST:PORT,...",
        help="Brokers of the cluster to enforce in front of, tried in turn for clients that bootstrap; may be "
        "repeated.",
    )
    listen: str = option(
        "--listen HOST:PORT",
        default="127.0.0.1:9092",
        help="Where clients bootstrap; port 0 takes free ones. Brokers get listeners of their own on this host.",
    )


@option_group("Listeners")
class ListenerOptions:
    """The options about the listeners of brokers, and about more listeners."""

    port_range: str | None = option(
        "--port-range FIRST-LAST",
        help="Ports for the brokers' listeners: FIRST + node id. Default: from the port after that of --listen on.",
    )
    broker_address: list[str] | None = option(
        "--broker-address ID=[HOST:]PORT",
        help="The port (and host) of a broker's listener, FIRST-LAST=PORT for many node ids; may be repeated.",
    )
    advertised_host: str | None = option(
        "--advertised-host HOST", help="The host that clients are sent to. Default: the one that they connected to."
    )
    listener_config: Path | None = option(
        "--listener-config FILE",
        help="Further settings of the listener of --listen: TLS on either side, PROXY protocol, host names, limits.",
    )
    listener: list[Path] | None = option(
        "--listener FILE",
        help="One more listener, whose file sets `listen` and `upstream` too; may be repeated. Listeners share the "
        "quotas.",
    )

    def files(self, bootstrap: BootstrapOptions, upstreams: tuple[Address, ...]) -> ListenerFiles:
        """Return the listener that these options describe, and the files of it and of the others."""
        main = ListenerSettings(
            upstreams=upstreams,
            listen=parse_address(bootstrap.listen, may_be_zero=True),
            port_range=None if self.port_range is None else parse_port_range(self.port_range),
            broker_addresses=parse_broker_addresses(self.broker_address or ()),
            advertised_host=self.advertised_host,
        )
        return ListenerFiles(main=main, more_of_main=self.listener_config, others=tuple(self.listener or ()))


@option_group("Connection limits")
class LimitOptions:
    """The options about what is let in at all."""

    connection_rate: int | None = option(
        "--connection-rate N",
        min=1,
        help="Connections per second to each broker in all, as max.connection.creation.rate; those beyond it wait.",
    )
    max_connections: int | None = option(
        "--max-connections N",
        min=1,
        help="Clients' connections in all; more wait to be accepted. Default: what the limit of open files allows.",
    )
    unknown_apis: UnknownApi = option(
        "--unknown-apis",
        default=UnknownApi.PASS,
        help="What happens to requests of APIs that the daemon doesn't know: pass (untouched) or refuse (close).",
    )


@option_group("Requests")
class BufferOptions:
    """The options about how much of requests is read."""

    max_request_bytes: str = option(
        "--max-request-bytes SIZE",
        default="100MiB",
        help="A longer request closes its connection, as socket.request.max.bytes does at a broker.",
    )
    queued_max_request_bytes: str = option(
        "--queued-max-request-bytes SIZE",
        default="256MiB",
        help="How many bytes of requests and responses that have to be read as a whole may be buffered at a time, "
        "over all connections.",
    )


@option_group("Metrics")
class MetricsOptions:
    """The options about Prometheus metrics."""

    metrics: str | None = option(
        "--metrics-port [HOST:]PORT",
        help="Serve Prometheus metrics, /healthz and /readyz there, and at / a page for browsers, on 127.0.0.1 without "
        "a host.",
    )
    metrics_top: int = option(
        "--metrics-top N",
        default=TOP,
        min=0,
        max=1000,
        help="How many buckets have series of their own: those that use most of their limit.",
    )
    metrics_user: list[str] | None = option(
        "--metrics-user NAME", help="A user whose buckets have series of their own in any case; may be repeated."
    )
    metrics_client: list[str] | None = option("--metrics-client ID", help="The same for a client-id.")

    @property
    def address(self) -> Address | None:
        """The address to serve metrics at, on 127.0.0.1 for a port alone, None to serve none."""
        return None if self.metrics is None else parse_local_address(self.metrics)

    @property
    def choice(self) -> MetricsChoice:
        """The buckets that have series of their own."""
        users, client_ids = frozenset(self.metrics_user or ()), frozenset(self.metrics_client or ())
        return MetricsChoice(top=self.metrics_top, users=users, client_ids=client_ids)


@option_group("Operation")
class OperationOptions:
    """The options about the log, the control socket, and what the daemon remembers."""

    log_format: LogFormat = option(
        "--log-format",
        default=LogFormat.TEXT,
        help="The form of a log line: key=value pairs, or one JSON object.",
    )
    control: Control = None
    control_mode: str = option("--control-mode OCTAL", default="0600", help="The mode of the control socket's file.")
    control_user: list[str] | None = option(
        "--control-user NAME|UID",
        help="Another user of this machine who may ask on the control socket; may be repeated. Needs a --control-mode "
        "that lets other users connect.",
    )
    state_file: Path | None = option(
        "--state-file FILE",
        help="Save usage to this file, so that clients don't start with a clean slate after a restart. Saved every "
        "5 seconds and at the end.",
    )
    workers: int = option(
        "--workers N",
        default=1,
        min=1,
        max=64,
        help="How many processes serve connections. They hold every limit together, for machines with many cores.",
    )
    max_bucket_memory: str = option(
        "--max-bucket-memory SIZE",
        default="256MiB",
        help="How much memory the buckets of all clients may take together, at about 1300 bytes each; those idle "
        "longest are forgotten first, never one whose client is held back by a limit of its own.",
    )

    def control_access(self) -> ControlAccess:
        """Return who may use the control socket.

        Raises:
            UsageError: The mode is invalid, or this machine does not know the user.
        """
        users = frozenset(map(_user_id, self.control_user or ()))
        return ControlAccess(mode=control_mode(self.control_mode), users=users)


@option_group("Event log")
class EventLogOptions:
    """The options of the event log."""

    event_log: str | None = option(
        "--event-log DIR|kafka://HOST:PORT/TOPIC",
        help="Write a line of JSON per charge: who, how much, which throttle time. To rotated files, or to a topic.",
    )
    event_log_rotate: float = option(
        "--event-log-rotate SECONDS",
        default=ROTATE_S,
        min=0.1,
        help="How long the event log writes to one file; a file ends at 64 MiB in any case.",
    )
    event_log_keep: str = option(
        "--event-log-keep SIZE",
        default="10GiB",
        help="How much the event log's folder may hold before the oldest files are removed.",
    )
    event_log_config: Path | None = option(
        "--event-log-config FILE",
        help="librdkafka properties for the topic of the event log, such as security.protocol.",
    )
    cluster: str | None = option(
        "--cluster NAME", help="The name of the cluster in the event log. Default: the address of --upstream."
    )

    def settings(self, servers: str) -> EventLogSettings | None:
        """Return the settings of the event log, None where there is to be none.

        Args:
            servers: The addresses that name the cluster where `--cluster` doesn't.

        Raises:
            UsageError: The target is invalid, or the properties can't be read or used.
        """
        if self.event_log is None:
            return None
        cluster = self.cluster or servers
        if not self.event_log.startswith(SCHEME):
            if self.event_log_config is not None:
                raise UsageError("--event-log-config is for a topic", hint="leave it out: --event-log names a folder")
            keep_bytes = parse_size("--event-log-keep", self.event_log_keep)
            folder = FolderTarget(folder=Path(self.event_log), rotate_s=self.event_log_rotate, keep_bytes=keep_bytes)
            return EventLogSettings(target=folder, cluster=cluster)
        topic = parse_topic(self.event_log)
        if self.event_log_config is not None:
            topic = replace(topic, properties=read_properties(self.event_log_config))
        return EventLogSettings(target=topic, cluster=cluster)


@option_group("Fleet")
class FleetOptions:
    """The options of the fleet with which limits are shared."""

    fleet: str | None = option(
        "--fleet kafka://HOST:PORT/TOPIC",
        help="Hold every limit together with all daemons that share this topic, which is created if it is missing.",
    )
    fleet_name: str = option(
        "--fleet-name NAME", default=FLEET, help="Which daemons on that topic share: those with the same name."
    )
    fleet_fallback: Fallback = option(
        "--fleet-fallback",
        default=Fallback.SHARE,
        help="What to allow while the others can't be heard: the last share of each limit, all of it, or nothing.",
    )
    fleet_config: Path | None = option(
        "--fleet-config FILE", help="librdkafka properties for the topic of the fleet, such as security.protocol."
    )
    fleet_secret_file: Path | None = option(
        "--fleet-secret-file FILE",
        help="The secret that all members share: it signs their reports, and no others count. A second line is for a "
        "change of secrets.",
    )

    def settings(self) -> FleetSettings | None:
        """Return the settings of the fleet, None where there is none.

        Raises:
            UsageError: The topic is invalid, there is none for the other options, or the properties can't be read.
        """
        if self.fleet is None:
            if self.fleet_config or self.fleet_secret_file or self.fleet_name != FLEET:
                raise UsageError(
                    "--fleet-name, --fleet-config and --fleet-secret-file are for a fleet",
                    hint="name its topic with --fleet",
                )
            return None
        target = parse_topic(self.fleet)
        if self.fleet_config is not None:
            target = replace(target, properties=read_properties(self.fleet_config))
        if self.fleet_secret_file is not None:
            read_secrets(self.fleet_secret_file)
        return FleetSettings(
            target=target,
            name=self.fleet_name,
            fallback=self.fleet_fallback,
            secret_file=self.fleet_secret_file,
        )


@option_group("Time-outs")
class TimeoutOptions:
    """The options about how long the daemon waits."""

    connect_timeout: float = option(
        "--connect-timeout SECONDS", default=10.0, min=0.1, help="How long to try to connect to a broker."
    )
    drain_timeout: float = option(
        "--drain-timeout SECONDS", default=10.0, min=0.0, help="How long requests under way may take after SIGTERM."
    )


def _user_id(name: str) -> int:
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError as error:
        raise UsageError(f"there is no user {name!r} on this machine") from error
