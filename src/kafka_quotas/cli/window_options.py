"""The options that set quota windows, by Kafka's names, for every command that needs them."""

from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.commands.window_settings import (
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


def chosen_windows(
    *,
    quota_window_num: int | None = None,
    quota_window_size_seconds: int | None = None,
    controller_window_num: int | None = None,
    controller_window_size_seconds: int | None = None,
    window_file: Path | None = None,
    broker_source: WindowSource | None = None,
) -> WindowSettings:
    """The windows that the options make together: option, then file, then brokers, then Kafka's default.

    Raises `UsageError` for a figure that is no whole number of at least 1, and for a file without any setting.
    """
    given = GivenWindows(
        quota_window_num=quota_window_num,
        quota_window_size_s=quota_window_size_seconds,
        controller_window_num=controller_window_num,
        controller_window_size_s=controller_window_size_seconds,
    )
    sources = () if window_file is None else (file_source(window_file),)
    return window_settings(given, sources=sources if broker_source is None else (*sources, broker_source))
