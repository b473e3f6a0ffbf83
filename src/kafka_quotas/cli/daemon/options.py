"""The options of `daemon run` and `daemon status`."""

import pwd
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.options.windows import WINDOW_PANEL
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.units import parse_bytes
from kafka_quotas.enforcement.config.address import Address, parse_address
from kafka_quotas.enforcement.config.rules import ThrottleStyle, UnknownApi
from kafka_quotas.enforcement.config.settings import SCHEME, ControlAccess, EventLogSettings, FolderTarget, parse_topic
from kafka_quotas.stores.files.property_file import read_properties

NETWORK_PANEL = "Network"
ENFORCEMENT_PANEL = "Enforcement"
IDENTITY_PANEL = "Who a client is"
OPERATION_PANEL = "Operation"
_MODE = re.compile(r"0?[0-7]{3}")

Upstream = Annotated[
    str,
    typer.Option(
        "--upstream",
        metavar="HOST:PORT",
        help="A broker of the cluster to enforce in front of.",
        rich_help_panel=NETWORK_PANEL,
    ),
]
Upstreams = Annotated[
    list[str],
    typer.Option(
        "--upstream",
        metavar="HOST:PORT,...",
        help="Brokers of the cluster to enforce in front of, tried in turn for who bootstraps; may be repeated.",
        rich_help_panel=NETWORK_PANEL,
    ),
]
BrokerAddresses = Annotated[
    list[str] | None,
    typer.Option(
        "--broker-address",
        metavar="ID=[HOST:]PORT",
        help="The port (and host) of a broker's listener, FIRST-LAST=PORT for many node ids; may be repeated.",
        rich_help_panel=NETWORK_PANEL,
    ),
]
Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="Where clients bootstrap; port 0 takes free ones. Brokers get listeners of their own on this host.",
        rich_help_panel=NETWORK_PANEL,
    ),
]
PortRange = Annotated[
    str | None,
    typer.Option(
        "--port-range",
        metavar="FIRST-LAST",
        help="Ports for the brokers' listeners: FIRST + node id. Default: from the port after that of --listen on.",
        rich_help_panel=NETWORK_PANEL,
    ),
]
AdvertisedHost = Annotated[
    str | None,
    typer.Option(
        "--advertised-host",
        metavar="HOST",
        help="The host clients are told to connect to. Default: the one that they came to.",
        rich_help_panel=NETWORK_PANEL,
    ),
]
ListenerConfig = Annotated[
    Path | None,
    typer.Option(
        "--listener-config",
        metavar="FILE",
        help="More about the listener of --listen: TLS on either side, PROXY protocol, host names, limits.",
        rich_help_panel=NETWORK_PANEL,
    ),
]
MoreListeners = Annotated[
    list[Path] | None,
    typer.Option(
        "--listener",
        metavar="FILE",
        help="One more listener, its file says `listen` and `upstream` too; may be repeated. They share the quotas.",
        rich_help_panel=NETWORK_PANEL,
    ),
]
ConnectionRate = Annotated[
    int | None,
    typer.Option(
        "--connection-rate",
        metavar="N",
        min=1,
        help="Connections per second to each broker in all, as max.connection.creation.rate; those beyond it wait.",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
MaxConnections = Annotated[
    int | None,
    typer.Option(
        "--max-connections",
        metavar="N",
        min=1,
        help="Clients' connections in all; more wait to be accepted. Default: what the limit of open files allows.",
        rich_help_panel=NETWORK_PANEL,
    ),
]
QueuedMaxRequestBytes = Annotated[
    str,
    typer.Option(
        "--queued-max-request-bytes",
        metavar="SIZE",
        help="How much of requests that have to be seen as a whole may be gathered at a time, over all connections.",
        rich_help_panel=NETWORK_PANEL,
    ),
]
UnknownApis = Annotated[
    UnknownApi,
    typer.Option(
        "--unknown-apis",
        help="What becomes of requests of APIs that the daemon doesn't know: pass untouched, or refuse (close).",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
ConnectTimeout = Annotated[
    float,
    typer.Option(
        "--connect-timeout",
        metavar="SECONDS",
        min=0.1,
        help="How long a broker is tried.",
        rich_help_panel=NETWORK_PANEL,
    ),
]
MaxRequestBytes = Annotated[
    str,
    typer.Option(
        "--max-request-bytes",
        metavar="SIZE",
        help="A longer request closes its connection, as socket.request.max.bytes does at a broker.",
        rich_help_panel=NETWORK_PANEL,
    ),
]
StaticQuotas = Annotated[
    Path | None,
    typer.Option(
        "--static-quotas",
        metavar="FILE",
        help="Properties quota.producer.default, quota.consumer.override and so on; they lie below the store's quotas.",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
UpstreamWindows = Annotated[
    bool,
    typer.Option(
        "--upstream-windows",
        help="Read the window settings from the brokers of --upstream, with --command-config; the options above win.",
        rich_help_panel=WINDOW_PANEL,
    ),
]
Style = Annotated[
    ThrottleStyle,
    typer.Option(
        "--throttle-style",
        help="mute: answer at once, then don't read (Kafka since 2.0). delay: hold the response back (before).",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
MaxThrottle = Annotated[
    int | None,
    typer.Option(
        "--max-throttle-ms",
        metavar="MS",
        min=1,
        help="Cut throttle times at this. Default: as long as Kafka makes them.",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
Principal = Annotated[
    str | None,
    typer.Option(
        "--principal",
        metavar="NAME",
        help="Count every client as this user. Default: the name from SASL, ANONYMOUS without.",
        rich_help_panel=IDENTITY_PANEL,
    ),
]
UnknownPrincipal = Annotated[
    str,
    typer.Option(
        "--unknown-principal",
        metavar="NAME",
        help="The user of clients that authenticate in a way that can't be read (GSSAPI, delegation tokens).",
        rich_help_panel=IDENTITY_PANEL,
    ),
]
InternalPrincipal = Annotated[
    list[str] | None,
    typer.Option(
        "--internal-principal",
        metavar="NAME",
        help="A user whose fetches as a replica are exempt; may be repeated. Nobody else's are.",
        rich_help_panel=IDENTITY_PANEL,
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics-port",
        metavar="[HOST:]PORT",
        help="Serve Prometheus metrics, /healthz and /readyz there, on 127.0.0.1 without a host.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
Control = Annotated[
    Path | None,
    typer.Option(
        "--control",
        metavar="PATH",
        help="The Unix socket for status, reload and other programs. Default: daemon-PORT.sock in your runtime folder.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
DrainTimeout = Annotated[
    float,
    typer.Option(
        "--drain-timeout",
        metavar="SECONDS",
        min=0.0,
        help="How long requests under way may take after SIGTERM.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
EventLog = Annotated[
    str | None,
    typer.Option(
        "--event-log",
        metavar="DIR|kafka://HOST:PORT/TOPIC",
        help="Write a line of JSON per charge: who, how much, which throttle time. To rotated files, or to a topic.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
EventLogRotate = Annotated[
    float,
    typer.Option(
        "--event-log-rotate",
        metavar="SECONDS",
        min=0.1,
        help="How long one file of the event log grows; it ends at 64 MiB in any case.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
EventLogKeep = Annotated[
    str,
    typer.Option(
        "--event-log-keep",
        metavar="SIZE",
        help="How much the event log's folder may hold before the oldest files go.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
EventLogConfig = Annotated[
    Path | None,
    typer.Option(
        "--event-log-config",
        metavar="FILE",
        help="librdkafka properties for the topic of the event log, such as security.protocol.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
StateFile = Annotated[
    Path | None,
    typer.Option(
        "--state-file",
        metavar="FILE",
        help="Remember what was charged, so that a restart forgives nobody. Saved every 5 seconds and at the end.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
ControlMode = Annotated[
    str,
    typer.Option(
        "--control-mode",
        metavar="OCTAL",
        help="The mode of the control socket's file.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
ControlUser = Annotated[
    list[str] | None,
    typer.Option(
        "--control-user",
        metavar="NAME|UID",
        help="Another user of this machine who may ask on the control socket; may be repeated. The mode must let him.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="What the cluster is called in the event log. Default: the address of --upstream.",
        rich_help_panel=OPERATION_PANEL,
    ),
]


def parse_metrics_address(text: str) -> Address:
    """Parse PORT or HOST:PORT as an address.

    A port alone means 127.0.0.1.

    Raises:
        UsageError: The text is neither.
    """
    return parse_address(f"127.0.0.1:{text}" if text.strip().isdigit() else text, may_be_zero=True)


def control_access(mode: str, users: Sequence[str]) -> ControlAccess:
    """Return who may use the control socket.

    Raises:
        UsageError: The mode is invalid, or this machine does not know the user.
    """
    if not _MODE.fullmatch(mode):
        raise UsageError(f"not a mode of a file: {mode!r}", hint="for example 0660, for the daemon's group")
    return ControlAccess(mode=int(mode, 8), users=frozenset(map(_user_id, users)))


def _user_id(name: str) -> int:
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError as error:
        raise UsageError(f"there is no user {name!r} on this machine") from error


def event_log_settings(
    target: str, *, rotate_s: float, keep: str, properties: Path | None, cluster: str
) -> EventLogSettings:
    """Return the settings of the event log.

    Raises:
        UsageError: The target is invalid, or the properties can't be read or used.
    """
    if not target.startswith(SCHEME):
        if properties is not None:
            raise UsageError("--event-log-config is for a topic", hint="leave it out: --event-log names a folder")
        folder = FolderTarget(folder=Path(target), rotate_s=rotate_s, keep_bytes=int(parse_bytes(keep)))
        return EventLogSettings(target=folder, cluster=cluster)
    topic = parse_topic(target)
    if properties is not None:
        topic = replace(topic, properties=read_properties(properties))
    return EventLogSettings(target=topic, cluster=cluster)
