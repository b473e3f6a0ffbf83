"""The options of `daemon run` about enforcement, topics, metrics and the log."""

from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.daemon.options import ENFORCEMENT_PANEL, OPERATION_PANEL
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quotas.mutation_bucket import MutationAlgorithm
from kafka_quotas.enforcement.config.client_policy import FetchOverQuota, Mode, OnViolation, Scope
from kafka_quotas.enforcement.config.rules import AutoCreate, MutationMode, ThresholdError
from kafka_quotas.enforcement.telemetry.log import LogFormat

ModeOption = Annotated[
    Mode,
    typer.Option(
        "--mode",
        help="kafka: Kafka's window. smooth: a bucket of one second, without bursts and rests. "
        "shadow: count what would be done, and touch nothing.",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
ScopeOption = Annotated[
    Scope,
    typer.Option(
        "--scope",
        help="broker: each broker has the whole limit, as in Kafka. cluster: one limit over all brokers.",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
FetchOverQuotaOption = Annotated[
    FetchOverQuota,
    typer.Option(
        "--fetch-over-quota",
        help="deliver: hand the data over, it is paid for afterwards. kafka: answer empty, count nothing, as a broker.",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
OnViolationOption = Annotated[
    OnViolation,
    typer.Option(
        "--on-violation",
        help="What a client over its byte rates gets. error: its Produce and Fetch requests are refused with error 89. "
        "delay-then-error: as delay up to --max-throttle-ms, then error.",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
PolicyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="A TOML file of other terms for some users and client-ids, request rates, exemptions, topic thresholds.",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]
CostModelOption = Annotated[
    Path | None,
    typer.Option(
        "--cost-model",
        metavar="FILE",
        help="What `daemon calibrate` found that requests cost in thread time; request_percentage is estimated by it.",
        rich_help_panel=ENFORCEMENT_PANEL,
    ),
]


def check_on_violation(on_violation: OnViolation, max_throttle_ms: int | None) -> None:
    """Refuse a delay that is followed by an error but has no upper bound.

    Raises:
        UsageError: `max_throttle_ms` is missing for delay-then-error.
    """
    if on_violation is OnViolation.DELAY_THEN_ERROR and max_throttle_ms is None:
        raise UsageError(
            "--on-violation delay-then-error needs --max-throttle-ms", hint="it says how long the delay may be"
        )


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
