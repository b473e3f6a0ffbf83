"""`kafka-quotas pipeline validate`: whether the replay predicts what brokers did."""

import sys
from typing import Annotated

import typer

from kafka_quotas.cli.options.stores import ListingView, StoreOrContext
from kafka_quotas.cli.options.windows import WindowOptions
from kafka_quotas.cli.output.render import TABLE_VIEW, print_listing, write
from kafka_quotas.cli.pipeline.options import Data, EngineOptions
from kafka_quotas.cli.pipeline.progress import job_watcher
from kafka_quotas.cli.pipeline.proposals import QUOTAS_HELP, note_changes, proposal_in_force
from kafka_quotas.cli.pipeline.validate_view import remarks, validation_listing
from kafka_quotas.pipeline.engine.choice import require_libraries
from kafka_quotas.pipeline.engine.runner import open_events
from kafka_quotas.pipeline.validate.check import ValidatePlan

_SHOWN_ROWS = 30

Quotas = Annotated[
    str | None,
    typer.Option(
        "--quotas",
        metavar="FILE|journal",
        help=QUOTAS_HELP,
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
    from kafka_quotas.pipeline.validate import job  # noqa: PLC0415 - loads the kernels

    settings, request = windows.settings(), engine.events(data)
    plan = ValidatePlan(
        quotas=proposal_in_force(quotas, store, request),
        tolerance=tolerance,
        window=settings.client,
        controller_window=settings.controller,
    )
    limit = (output.limit_or(_SHOWN_ROWS) or None) if output.is_table else None
    with (
        job_watcher() as watcher,
        open_events(request, watcher) as events,
        events.errors("summing up what was compared"),
    ):
        found = job.validate(events, plan, limit=limit)
    print_listing(validation_listing(found), output)
    note_changes(quotas, plan.quotas, found.events)
    for line in remarks(found):
        write(line, sys.stderr)
    if not found.ok:
        raise typer.Exit(1)
