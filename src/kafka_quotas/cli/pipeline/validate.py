"""`kafka-quotas pipeline validate`: whether the replay predicts what brokers did."""

import sys
from typing import Annotated

import typer

from kafka_quotas.cli.options.stores import ListingView, StoreOrContext
from kafka_quotas.cli.options.windows import WindowOptions
from kafka_quotas.cli.output.render import TABLE_VIEW, print_listing, write
from kafka_quotas.cli.pipeline.options import Data, EngineOptions
from kafka_quotas.cli.pipeline.progress import job_watcher
from kafka_quotas.cli.pipeline.proposals import proposal_in_force
from kafka_quotas.cli.pipeline.validate_view import remarks, validation_listing
from kafka_quotas.commands.pipeline.validate import validate as run_validate
from kafka_quotas.pipeline.engine.choice import require_libraries
from kafka_quotas.pipeline.validate.check import ValidatePlan

Quotas = Annotated[
    str | None,
    typer.Option(
        "--quotas",
        metavar="FILE",
        help="The quotas that were in force during the recording; without it those in the store.",
    ),
]
Tolerance = Annotated[
    float,
    typer.Option(
        "--tolerance", metavar="SHARE", help="The error to tolerate, as a share of what was observed, from 0."
    ),
]


def validate(
    *,
    data: Data,
    quotas: Quotas = None,
    tolerance: Tolerance = 0.1,
    store: StoreOrContext,
    windows: WindowOptions,
    engine: EngineOptions,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Compare what brokers did with a replay of the same traffic under the quotas that were in force.

    The throttle times that brokers announced are compared with those of the replay, and scraped byte rates with
    those of the events. The exit code is 1 where an error exceeds the tolerance, or nothing can be compared.
    """
    require_libraries()
    settings = windows.settings()
    plan = ValidatePlan(
        quotas=proposal_in_force(quotas, store),
        tolerance=tolerance,
        window=settings.client,
        controller_window=settings.controller,
    )
    with job_watcher() as watcher:
        result = run_validate(engine.events(data), plan, watcher)
    print_listing(validation_listing(result), output)
    for line in remarks(result.validation):
        write(line, sys.stderr)
    if not result.validation.ok:
        raise typer.Exit(1)
