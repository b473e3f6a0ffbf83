"""The options that set quota windows, by Kafka's names, for every command that needs them."""

from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.commands.windows import (
    GivenWindows,
    WindowSettings,
    WindowSource,
    file_source,
    window_settings,
)

WINDOW_PANEL = "Quota windows"

QuotaWindowNum = Annotated[
    int | None,
    typer.Option(
        "--quota-window-num",
        metavar="N",
        help="quota.window.num: samples kept, the current one included. Default 11.",
        rich_help_panel=WINDOW_PANEL,
    ),
]
QuotaWindowSize = Annotated[
    int | None,
    typer.Option(
        "--quota-window-size-seconds",
        metavar="SECONDS",
        help="quota.window.size.seconds: length of one sample. Default 1.",
        rich_help_panel=WINDOW_PANEL,
    ),
]
ControllerWindowNum = Annotated[
    int | None,
    typer.Option(
        "--controller-quota-window-num",
        metavar="N",
        help="controller.quota.window.num: samples of a burst of controller mutations. Default 11.",
        rich_help_panel=WINDOW_PANEL,
    ),
]
ControllerWindowSize = Annotated[
    int | None,
    typer.Option(
        "--controller-quota-window-size-seconds",
        metavar="SECONDS",
        help="controller.quota.window.size.seconds: length of one of these samples. Default 1.",
        rich_help_panel=WINDOW_PANEL,
    ),
]
WindowFile = Annotated[
    Path | None,
    typer.Option(
        "--window-file",
        metavar="FILE",
        help="Read the window settings from a broker's server.properties; an option beats the file.",
        rich_help_panel=WINDOW_PANEL,
    ),
]


WindowServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="Read the window settings from the brokers of this cluster; options and --window-file beat them.",
        rich_help_panel=WINDOW_PANEL,
    ),
]
WindowCommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="A file of client properties by Kafka's own names, for --bootstrap-server.",
        rich_help_panel=WINDOW_PANEL,
    ),
]


def chosen_windows(
    *,
    quota_window_num: int | None = None,
    quota_window_size_seconds: int | None = None,
    controller_window_num: int | None = None,
    controller_window_size_seconds: int | None = None,
    window_file: Path | None = None,
    bootstrap_server: str | None = None,
    command_config: Path | None = None,
) -> WindowSettings:
    """Return the windows in force: from options, then the file, the brokers and Kafka's default.

    Raises:
        UsageError: A figure is no whole number of at least 1, the file has no setting, or the brokers do not agree.
        StoreError: The brokers can't be read.
    """
    given = GivenWindows(
        quota_window_num=quota_window_num,
        quota_window_size_s=quota_window_size_seconds,
        controller_window_num=controller_window_num,
        controller_window_size_s=controller_window_size_seconds,
    )
    sources = [] if window_file is None else [file_source(window_file)]
    if bootstrap_server is not None:
        sources.append(_brokers(bootstrap_server, command_config))
    return window_settings(given, sources=tuple(sources))


def _brokers(bootstrap_server: str, command_config: Path | None) -> WindowSource:
    from kafka_quotas.cli.framework.store_choice import choose_store  # noqa: PLC0415 - only with a cluster
    from kafka_quotas.commands.windows import broker_source  # noqa: PLC0415

    choice = choose_store(store=None, bootstrap_server=bootstrap_server, command_config=command_config)
    assert choice.url.value is not None
    return broker_source(choice.url.value, choice.settings())
