"""The options of `daemon run` about topics: creating and deleting them, and their thresholds."""

from typing import Annotated

import typer

from kafka_quotas.cli.daemon_options import ENFORCEMENT_PANEL
from kafka_quotas.core.mutation_bucket import MutationAlgorithm
from kafka_quotas.enforcement.mutation_rules import AutoCreate, MutationMode
from kafka_quotas.enforcement.threshold_rules import ThresholdError

MutationsOption = Annotated[
    MutationMode,
    typer.Option(
        "--mutations",
        help="What becomes of topics over controller_mutation_rate. strict: error 89. permissive: admitted, and waited "
        "for. auto: strict in versions whose clients know the error, as a broker does.",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
MutationAlgorithmOption = Annotated[
    MutationAlgorithm,
    typer.Option(
        "--mutation-algorithm",
        help="How controller_mutation_rate is measured: as Kafka does, or as one of the drafts of KIP-599.",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
AutoCreateOption = Annotated[
    AutoCreate,
    typer.Option(
        "--auto-create",
        help="What becomes of topics that would be made because a Metadata request names them. count: charged to "
        "controller_mutation_rate. forbid: not made. pass: made, and free.",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
ThresholdErrorOption = Annotated[
    ThresholdError,
    typer.Option(
        "--threshold-error",
        help="The error for data of topics over a threshold: 44, which clients give up on, or 89, which some repeat.",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
