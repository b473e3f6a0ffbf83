"""The options of quota windows by Kafka's names, and figures, each parsed once into the unit it is used in."""

from pathlib import Path
from typing import Annotated

from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.commands.windows import WindowSettings, WindowSource, window_settings
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

    def settings(
        self, *sources: WindowSource, servers: str | None = None, command_config: Path | None = None
    ) -> WindowSettings:
        """Return the windows by options, else the sources, the brokers of `servers`, or Kafka's default."""
        given = {
            WINDOW_NUM: self.quota_window_num,
            WINDOW_SIZE_SECONDS: self.quota_window_size_seconds,
            CONTROLLER_WINDOW_NUM: self.controller_quota_window_num,
            CONTROLLER_WINDOW_SIZE_SECONDS: self.controller_quota_window_size_seconds,
        }
        texts = {name: str(figure) for name, figure in given.items() if figure is not None}
        brokers = () if servers is None else (_brokers(servers, command_config),)
        return window_settings(WindowSource(name="option", properties=texts), *sources, *brokers)


@option_group("Quota windows")
class BrokerWindowOptions(WindowOptions):
    """The options of quota windows where the brokers of a cluster may be asked for them."""

    bootstrap_server: str | None = option(
        "--bootstrap-server HOST:PORT",
        help="Read the window settings from the brokers of this cluster; options beat them. The login is that of its "
        "context, or of the variable KAFKA_QUOTAS_COMMAND_CONFIG.",
    )

    def in_force(self) -> WindowSettings:
        """Return the windows in force, as `settings` does for these brokers."""
        return self.settings(servers=self.bootstrap_server)


ONLY_CLIENTS = Without("controller_quota_window_num", "controller_quota_window_size_seconds")
ONLY_CONTROLLER = Without("quota_window_num", "quota_window_size_seconds")
ClientWindow = Annotated[WindowOptions, ONLY_CLIENTS]


def _brokers(servers: str, command_config: Path | None) -> WindowSource:
    # Only with a cluster.
    from kafka_quotas.cli.framework.store_choice import choose_known_store, store_options  # noqa: PLC0415
    from kafka_quotas.commands.windows import broker_source  # noqa: PLC0415

    (url,) = store_options(store=None, bootstrap_server=servers).values()
    choice = choose_known_store(url, command_config=command_config)
    return broker_source(str(choice.address), choice.settings())
