"""Option types of the jobs that recommend quotas."""

from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.pipeline.per import Per

TOLERANCE_PANEL = "What is tolerated"

DefaultOf = Annotated[
    Per, typer.Option("--default-of", help="Whose default: of each user, each client-id, or each pair of both.")
]
ClusterName = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME", help="Whose traffic counts, where the events are of several clusters."),
]
CapacityFile = Annotated[
    Path | None,
    typer.Option(
        "--capacity",
        metavar="FILE",
        help="What brokers can take, in the format of Cruise Control's capacity file; quotas are summed against it.",
    ),
]
ClientsShare = Annotated[
    float,
    typer.Option(
        "--clients-share",
        metavar="SHARE",
        help="Which share of the clients may need more than the default, 0 to 1; they get quotas of their own.",
        rich_help_panel=TOLERANCE_PANEL,
    ),
]
TimeShare = Annotated[
    float,
    typer.Option(
        "--time-share",
        metavar="SHARE",
        help="For which share of its active time a client may be held back, 0 to 1.",
        rich_help_panel=TOLERANCE_PANEL,
    ),
]
Headroom = Annotated[
    float,
    typer.Option(
        "--headroom",
        metavar="FACTOR",
        help="By which factor a quota of a client's own exceeds what it needed.",
        rich_help_panel=TOLERANCE_PANEL,
    ),
]
CapacityShare = Annotated[
    float,
    typer.Option(
        "--capacity-share",
        metavar="SHARE",
        help="Which share of a broker's capacity all clients together may ask for, 0 to 1.",
        rich_help_panel=TOLERANCE_PANEL,
    ),
]
