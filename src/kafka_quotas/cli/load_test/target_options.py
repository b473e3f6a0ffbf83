"""The options of `load-test` that say what is put under load, and how it is reached."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from kafka_quotas.cli.framework.option_groups import flag, option, option_group, option_info
from kafka_quotas.cli.framework.store_choice import COMMAND_CONFIG_VARIABLE
from kafka_quotas.cli.options.stores import CommandConfig
from kafka_quotas.cli.options.windows import ONLY_CLIENTS, WindowOptions
from kafka_quotas.cli.output.render import write
from kafka_quotas.commands.load_test.target import LoadTarget
from kafka_quotas.commands.windows import WindowSettings
from kafka_quotas.core.errors import StoreRefusedError, UsageError
from kafka_quotas.core.formats.documents import read_properties
from kafka_quotas.core.resolution.effective import ANONYMOUS
from kafka_quotas.loadtest import ClientName, default_journal_folder
from kafka_quotas.stores import StoreSettings

JournalFolder = Annotated[
    Path | None,
    option_info(
        "--journal-dir DIR",
        help="Where the journals of running tests are, from which 'load-test restore' puts back what a killed run "
        "changed. Default: "
        "load-test in your state folder.",
    ),
]


@option_group("Connection and login")
class _CredentialOptions:
    properties: list[str] | None = option(
        "-X KEY=VALUE",
        help="A client property by librdkafka's name, or of a login by Kafka's own; may be repeated, and wins over the "
        "tool's.",
    )
    config: Path | None = option("--config FILE", help="A file of such properties; -X wins over it.")
    passwords: Path | None = option("--passwords FILE", help="SASL passwords, a line USER=PASSWORD for each user.")

    def client_properties(self) -> dict[str, str]:
        """Return the properties of `-X` over those of the file."""
        properties = read_properties(self.config) if self.config else {}
        for pair in self.properties or ():
            key, equals, value = pair.partition("=")
            if not equals or not key.strip():
                raise UsageError(f"not a property: {pair!r}", hint="write -X KEY=VALUE")
            properties[key.strip()] = value.strip()
        return properties


@option_group("What a run may change")
class _ChangeOptions:
    yes: bool = flag("--yes", "-y", help="Don't ask before topics are made on a cluster, or flooded.")
    journal_dir: JournalFolder = None

    @property
    def journal_folder(self) -> Path:
        """The folder of the journals of running tests."""
        return self.journal_dir or default_journal_folder()


@option_group("Target")
class TargetOptions:
    """The options about the target of a run."""

    cluster: LoadTarget
    store: str | None = option(
        "--store URL",
        help="The store of the quotas, which judge the clients, and where they are set and put back; without it the "
        "cluster itself: zk://...",
    )
    command_config: CommandConfig = None
    credentials: _CredentialOptions
    change: _ChangeOptions

    def load_target(self) -> LoadTarget:
        """Parse all options, once, into a target."""
        if self.store is not None and self.cluster.bootstrap is None:
            raise UsageError("--store says where a cluster's quotas are", hint="name it with --bootstrap-server")
        properties = self.credentials.client_properties()
        passwords = read_properties(self.credentials.passwords) if self.credentials.passwords else {}
        variable = os.environ.get(COMMAND_CONFIG_VARIABLE)
        config = self.command_config or (Path(variable) if variable else None)
        return replace(
            self.cluster,
            store_url=self.store,
            settings=settings_of(config),
            command_config=config,
            properties=properties,
            credentials=lambda name: credentials_of(name, properties, passwords),
        )


@option_group("Quota windows")
class LoadWindowOptions(WindowOptions):
    """The options about quota windows, which the target's brokers are asked for if none is given."""

    def given(self, target: LoadTarget) -> WindowSettings | None:
        """Return the windows of the options or the brokers, None for a target that takes any.

        Where the brokers refuse an answer, or end the connection of who asks without the login of the load's clients,
        Kafka's default is assumed, with a note on standard error.
        """
        from kafka_quotas.stores import LostAnswerError  # noqa: PLC0415 - only with a cluster

        is_theirs = target.bootstrap is not None and not target.through_daemon
        settings = self.settings()
        is_whole = all(
            None not in window
            for window in (
                (self.quota_window_num, self.quota_window_size_seconds),
                (self.controller_quota_window_num, self.controller_quota_window_size_seconds),
            )
            if any(window)
        )
        if not is_theirs or (is_whole and not settings.untouched):
            return None if settings.untouched else settings
        try:
            # Where quotas are set, which may have another login than the clients.
            scheme, _, servers = (target.store_url or "").partition("://")
            asked = servers if scheme == "kafka" else target.bootstrap
            return self.settings(servers=asked, command_config=target.command_config)
        except (StoreRefusedError, LostAnswerError) as error:
            window = f"{settings.client.samples} x {settings.client.window_s} s"
            write(
                f"note: the quota window is not known, and Kafka's default of {window} is assumed: {error.message}; "
                "--quota-window-num and --quota-window-size-seconds name another",
                sys.stderr,
            )
            return settings


ClientWindow = Annotated[LoadWindowOptions, ONLY_CLIENTS]


def settings_of(command_config: Path | None) -> StoreSettings:
    """Return the settings to administer a cluster with."""
    return StoreSettings(client_properties=read_properties(command_config) if command_config else {})


def credentials_of(
    name: ClientName, properties: Mapping[str, str], passwords: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return the client properties that authenticate a connection as this user."""
    if name.user in (None, ANONYMOUS):
        return ()
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol == "plaintext":
        raise UsageError(
            f"user {name.user} can't be recognised on a plaintext connection, where everybody is ANONYMOUS",
            hint="give -X security.protocol=SASL_PLAINTEXT -X sasl.mechanism=PLAIN and --passwords FILE",
        )
    if not protocol.startswith("sasl"):
        return ()
    password = passwords.get(name.user or "", properties.get("sasl.password"))
    if password is None:
        raise UsageError(
            f"user {name.user} has no password",
            hint="give --passwords FILE with lines USER=PASSWORD, or -X sasl.password=..",
        )
    return (("sasl.username", name.user or ""), ("sasl.password", password))
