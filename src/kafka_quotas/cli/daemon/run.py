"""`kafka-quotas daemon run`: every option of the enforcing proxy."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from kafka_quotas.cli.daemon.config_file import take_config
from kafka_quotas.cli.daemon.enforcement_options import EnforcementOptions, PrincipalOptions, UpstreamWindowOptions
from kafka_quotas.cli.daemon.options import (
    BootstrapOptions,
    BufferOptions,
    EventLogOptions,
    FleetOptions,
    LimitOptions,
    ListenerOptions,
    MetricsOptions,
    OperationOptions,
    TimeoutOptions,
)
from kafka_quotas.cli.daemon.setting_forms import parse_size
from kafka_quotas.cli.framework.exit_codes import INTERRUPTED
from kafka_quotas.cli.framework.help_page import OPTIONS_HEADING
from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.cli.framework.service_variables import service
from kafka_quotas.cli.framework.store_choice import StoreChoice
from kafka_quotas.cli.options.journal import open_journal
from kafka_quotas.cli.options.stores import StoreOptions
from kafka_quotas.commands.web.daemon_quotas import daemon_pages
from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.config.address import parse_addresses
from kafka_quotas.enforcement.config.listener_file import all_listeners
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.daemon.run import run_daemon
from kafka_quotas.system_clock import SystemClock


@option_group(OPTIONS_HEADING)
class DaemonOptions:
    """All options of `daemon run`."""

    config: Path | None = option(
        "--config FILE",
        help="A TOML file with these options in sections, see `daemon config`. Options and variables beat it.",
        is_eager=True,
        callback=take_config,
    )
    bootstrap: BootstrapOptions
    store: Annotated[StoreOptions, Without("context", "bootstrap_server", "zookeeper")]
    static_quotas: Path | None = option(
        "--static-quotas FILE",
        help="Properties quota.producer.default, quota.consumer.override and so on; they apply below the store's "
        "quotas.",
    )
    windows: UpstreamWindowOptions
    enforcement: EnforcementOptions
    listeners: ListenerOptions
    limits: LimitOptions
    principals: PrincipalOptions
    buffers: BufferOptions
    metrics: MetricsOptions
    operation: OperationOptions
    event_log: EventLogOptions
    fleet: FleetOptions
    timeouts: TimeoutOptions

    def settings(self, *, takes_over: bool = False) -> DaemonSettings:
        """Parse all options, once, into settings.

        Args:
            takes_over: Whether to take the place of the daemon that runs.

        Raises:
            UsageError: An option has no value that it takes, or two contradict each other.
            StoreError: The brokers can't be asked for their windows.
        """
        upstreams = parse_addresses(self.bootstrap.upstream)
        servers = ",".join(map(str, upstreams))
        windows = self.windows.settings(
            servers=servers if self.windows.upstream_windows else None, command_config=self.store.command_config
        )
        rules = self.enforcement.rules(
            self.principals,
            windows,
            max_request_bytes=parse_size("--max-request-bytes", self.buffers.max_request_bytes),
            unknown_apis=self.limits.unknown_apis,
        )
        fleet = self.fleet.settings()
        rules = replace(rules, fleet_topic=None if fleet is None else fleet.target.topic)
        files = self.listeners.files(self.bootstrap, upstreams)
        return DaemonSettings(
            listeners=all_listeners(files),
            listener_files=files,
            connection_rate=self.limits.connection_rate,
            max_connections=self.limits.max_connections,
            queued_max_request_bytes=parse_size("--queued-max-request-bytes", self.buffers.queued_max_request_bytes),
            rules=rules,
            static_quotas=self.static_quotas,
            policy_file=self.enforcement.policy,
            cost_model=self.enforcement.cost_model,
            control=self.operation.control,
            control_access=self.operation.control_access(),
            state_file=self.operation.state_file,
            max_bucket_bytes=parse_size("--max-bucket-memory", self.operation.max_bucket_memory),
            metrics=self.metrics.address,
            metrics_choice=self.metrics.choice,
            log_format=self.operation.log_format,
            connect_timeout_s=self.timeouts.connect_timeout,
            drain_timeout_s=self.timeouts.drain_timeout,
            event_log=self.event_log.settings(servers),
            fleet=fleet,
            workers=self.operation.workers,
            takes_over=takes_over,
        )


def checked_settings(asked: DaemonOptions, *, takes_over: bool = False) -> tuple[DaemonSettings, StoreChoice]:
    """Return the settings and the store that the options make.

    Raises:
        UsageError: As `DaemonOptions.settings` does, or two options name properties of quotas.
        StoreError: The brokers can't be asked for their windows.
    """
    settings, choice = asked.settings(takes_over=takes_over), asked.store.choose()
    if asked.static_quotas is not None and choice.address.kind.is_static:
        raise UsageError("--static-quotas goes below another store", hint="leave it out: --store names such a file")
    return settings, choice


@service("DAEMON")
def run(*, asked: DaemonOptions) -> int:
    """Run the daemon until a signal ends it: SIGTERM and Ctrl-C drain, SIGHUP reads the quotas again.

    It stays in the foreground and writes its log to standard error.
    """
    return _run(asked, takes_over=False)


@service("DAEMON")
def upgrade(*, asked: DaemonOptions) -> int:
    """Replace the running daemon without refusing a client.

    The new process takes over the listening sockets and all that was measured through the control socket of the
    running daemon: --control names it. The old daemon answers what it has begun, keeps the clients it throttles
    until their throttle times are over, and ends. If the new process can't start, the old one continues. All
    options of run may be given, the same ones or others.
    """
    return _run(asked, takes_over=True)


def _run(asked: DaemonOptions, *, takes_over: bool) -> int:
    settings, choice = checked_settings(asked, takes_over=takes_over)
    choice.check_place()
    pages = daemon_pages(open_journal(), SystemClock())
    result = run_daemon(settings, choice.open, log=sys.stderr, pages=pages)
    return INTERRUPTED if result.signal_name == "SIGINT" else int(result.cut_connections > 0)
