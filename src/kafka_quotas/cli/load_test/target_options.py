"""The options of `load-test` that say what is put under load, and how it is reached."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.framework.store_choice import COMMAND_CONFIG_VARIABLE
from kafka_quotas.cli.load_test.options import TARGET_PANEL
from kafka_quotas.commands.load_test.target import LoadTarget
from kafka_quotas.commands.load_test.typed_scenario import credentials_of
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.stores.files.property_file import read_properties
from kafka_quotas.stores.settings import StoreSettings

BrokerJars = Annotated[
    Path | None,
    typer.Option(
        "--broker-jars",
        metavar="DIR",
        help="Start a real broker from Kafka's jars in DIR (fetched into it by Maven where it is not there), and end "
        "it afterwards.",
        rich_help_panel=TARGET_PANEL,
    ),
]
ThroughDaemon = Annotated[
    bool,
    typer.Option(
        "--through-daemon",
        help="Start our daemon in front and connect through it. It keeps the quotas; those of the cluster stay.",
        rich_help_panel=TARGET_PANEL,
    ),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", help="Don't ask before topics are made on a cluster, or flooded.", rich_help_panel=TARGET_PANEL
    ),
]
QuotaPlace = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Where the quotas of --bootstrap-server are set and put back, if not in the cluster itself: zk://...",
        rich_help_panel=TARGET_PANEL,
    ),
]
JournalFolder = Annotated[
    Path | None,
    typer.Option(
        "--journal-dir",
        metavar="DIR",
        help="Where the journals of running tests are, by which 'load-test restore' finishes what was killed. Default: "
        "load-test in your state folder.",
        rich_help_panel=TARGET_PANEL,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """The options about the target, as they were typed."""

    bootstrap_server: str | None
    embedded: bool
    broker_jars: Path | None
    through_daemon: bool
    store: str | None
    command_config: Path | None
    properties: list[str] | None
    property_file: Path | None
    passwords: Path | None

    def named(self) -> bool:
        """Return whether any target was named.

        Raises:
            UsageError: Two targets were named.
        """
        given = {
            "--bootstrap-server": self.bootstrap_server is not None,
            "--embedded": self.embedded,
            "--broker-jars": self.broker_jars is not None,
        }
        names = [name for name, is_given in given.items() if is_given]
        if len(names) > 1:
            raise UsageError(f"{' and '.join(names)} exclude each other", hint="each says what to put under load")
        return bool(names)

    def target(self, *, window: QuotaWindow | None, enforcers: int | None, through_daemon: bool) -> LoadTarget:
        """Parse all options, once, into a target."""
        if self.store is not None and self.bootstrap_server is None:
            raise UsageError("--store says where a cluster's quotas are", hint="name it with --bootstrap-server")
        properties = client_properties(self.properties or [], self.property_file)
        passwords = read_properties(self.passwords) if self.passwords else {}
        config = self.command_config or _of_environment()
        return LoadTarget(
            bootstrap=self.bootstrap_server,
            broker_jars=self.broker_jars,
            through_daemon=through_daemon,
            store_url=self.store,
            settings=settings_of(config),
            command_config=config,
            window=window,
            enforcers=enforcers,
            properties=properties,
            credentials=lambda name: credentials_of(name, properties, passwords),
        )


def settings_of(command_config: Path | None) -> StoreSettings:
    """Return the settings to administer a cluster with.

    Raises:
        UsageError: The file can't be read.
    """
    return StoreSettings(client_properties=read_properties(command_config) if command_config else {})


def client_properties(pairs: list[str], file: Path | None) -> dict[str, str]:
    """Return the client properties of `-X KEY=VALUE` over those of a file.

    Raises:
        UsageError: A text is not KEY=VALUE.
    """
    properties = read_properties(file) if file else {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"not a property: {pair!r}", hint="write -X KEY=VALUE")
        properties[key.strip()] = value.strip()
    return properties


def _of_environment() -> Path | None:
    named = os.environ.get(COMMAND_CONFIG_VARIABLE)
    return Path(named) if named else None
