"""The options of `daemon run` that say what is told about it: metrics and log."""

from typing import Annotated

import typer

from kafka_quotas.cli.daemon_options import OPERATION_PANEL
from kafka_quotas.enforcement.log import LogFormat

LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        help="How a line of the log is written: key=value pairs, or one JSON object.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
MetricsTop = Annotated[
    int,
    typer.Option(
        "--metrics-top",
        metavar="N",
        min=0,
        max=1000,
        help="How many buckets have series of their own: those that use most of their limit.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
MetricsUser = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics-user",
        metavar="NAME",
        help="A user whose buckets have series of their own in any case; may be repeated.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
MetricsClient = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics-client",
        metavar="ID",
        help="The same for a client-id.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
MaxBucketMemory = Annotated[
    str,
    typer.Option(
        "--max-bucket-memory",
        metavar="SIZE",
        help="What the buckets of all clients may take in memory together, at about 1300 bytes each; those idle "
        "longest are forgotten first, never one whose client is held back by a limit of its own.",
        rich_help_panel=OPERATION_PANEL,
    ),
]
