"""The options of `daemon run` that say on which terms clients are held to their quotas."""

from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.daemon_options import ENFORCEMENT_PANEL
from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.terms import FetchOverQuota, Mode, OnViolation, Scope

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
    """Nothing; a delay that is followed by an error has an end.

    Raises `UsageError` where it has none.
    """
    if on_violation is OnViolation.DELAY_THEN_ERROR and max_throttle_ms is None:
        raise UsageError(
            "--on-violation delay-then-error needs --max-throttle-ms", hint="it says how long the delay may be"
        )
