"""The options that set quota windows, by Kafka's names, for every command that needs them."""

from pathlib import Path
from typing import Annotated

from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.commands.windows import WindowSettings, WindowSource, file_source, window_settings
from kafka_quotas.core.model.quota_window import (
    CONTROLLER_WINDOW_NUM,
    CONTROLLER_WINDOW_SIZE_SECONDS,
    WINDOW_NUM,
    WINDOW_SIZE_SECONDS,
)


@option_group("Quota windows")
class WindowOptions:
    """The options of both quota windows, that of controller mutations and that of everything else."""

    quota_window_num: int | None = option(
        "--quota-window-num N", min=1, help="quota.window.num: samples kept, the current one included. Default 11."
    )
    quota_window_size_seconds: int | None = option(
        "--quota-window-size-seconds SECONDS", min=1, help="quota.window.size.seconds: length of one sample. Default 1."
    )
    controller_quota_window_num: int | None = option(
        "--controller-quota-window-num N",
        min=1,
        help="controller.quota.window.num: samples of a burst of controller mutations. Default 11.",
    )
    controller_quota_window_size_seconds: int | None = option(
        "--controller-quota-window-size-seconds SECONDS",
        min=1,
        help="controller.quota.window.size.seconds: length of one of these samples. Default 1.",
    )
    window_file: Path | None = option(
        "--window-file FILE",
        help="Read the window settings from a broker's server.properties; an option beats the file.",
    )

    def settings(self, *, servers: str | None = None, command_config: Path | None = None) -> WindowSettings:
        """Return the windows in force: of options, else the file, the brokers of `servers` or Kafka's default.

        Raises:
            UsageError: A figure is no whole number of at least 1, the file has no setting, or the brokers do not agree.
            StoreError: The brokers can't be read.
        """
        given = {
            WINDOW_NUM: self.quota_window_num,
            WINDOW_SIZE_SECONDS: self.quota_window_size_seconds,
            CONTROLLER_WINDOW_NUM: self.controller_quota_window_num,
            CONTROLLER_WINDOW_SIZE_SECONDS: self.controller_quota_window_size_seconds,
        }
        sources = [] if self.window_file is None else [file_source(self.window_file)]
        if servers is not None:
            sources.append(_brokers(servers, command_config))
        return window_settings(given, sources=tuple(sources))


@option_group("Quota windows")
class BrokerWindowOptions(WindowOptions):
    """The options of quota windows where the brokers of a cluster may be asked for them."""

    bootstrap_server: str | None = option(
        "--bootstrap-server HOST:PORT",
        help="Read the window settings from the brokers of this cluster; options and --window-file beat them.",
    )
    command_config: Path | None = option(
        "--command-config FILE", help="A file of client properties by Kafka's own names, for --bootstrap-server."
    )

    def in_force(self) -> WindowSettings:
        """Return the windows in force, as `settings` does for these brokers."""
        return self.settings(servers=self.bootstrap_server, command_config=self.command_config)


ONLY_CLIENTS = Without("controller_quota_window_num", "controller_quota_window_size_seconds")
ONLY_CONTROLLER = Without("quota_window_num", "quota_window_size_seconds")
ClientWindow = Annotated[WindowOptions, ONLY_CLIENTS]


def _brokers(servers: str, command_config: Path | None) -> WindowSource:
    from kafka_quotas.cli.framework.store_choice import choose_store  # noqa: PLC0415 - only with a cluster
    from kafka_quotas.commands.windows import broker_source  # noqa: PLC0415

    choice = choose_store(store=None, bootstrap_server=servers, command_config=command_config)
    assert choice.url.value is not None
    return broker_source(choice.url.value, choice.settings())
