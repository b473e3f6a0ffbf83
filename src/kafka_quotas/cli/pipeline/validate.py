"""`kafka-quotas pipeline validate`: whether the replay predicts what brokers did."""

import sys
from typing import Annotated

import typer

from kafka_quotas.cli.options.figures import client_window, controller_window
from kafka_quotas.cli.options.stores import CommandConfig, ContextName, ListingView, StoreUrl
from kafka_quotas.cli.options.windows import (
    ControllerWindowNum,
    ControllerWindowSize,
    QuotaWindowNum,
    QuotaWindowSize,
    WindowFile,
    chosen_windows,
)
from kafka_quotas.cli.output.render import print_listing, write
from kafka_quotas.cli.output.view import TABLE_VIEW
from kafka_quotas.cli.pipeline.options import (
    Data,
    DriverMemory,
    EngineName,
    EnvArchive,
    Master,
    SparkConf,
    SparkLog,
    events_request,
)
from kafka_quotas.cli.pipeline.progress import engine_notes, job_progress
from kafka_quotas.cli.pipeline.proposals import proposal_in_force
from kafka_quotas.cli.pipeline.validate_view import remarks, validation_listing
from kafka_quotas.commands.pipeline.validate import ValidateRequest
from kafka_quotas.commands.pipeline.validate import validate as run_validate
from kafka_quotas.pipeline.engine.choice import Engine, require_libraries
from kafka_quotas.pipeline.engine.runner import EventsWatcher

Quotas = Annotated[
    str | None,
    typer.Option(
        "--quotas", metavar="FILE", help="The quotas that were in force meanwhile; without it those in the store."
    ),
]
Tolerance = Annotated[
    float,
    typer.Option(
        "--tolerance",
        metavar="SHARE",
        help="Which error is tolerated, as a share of what was observed, from 0.",
    ),
]


def validate(
    *,
    data: Data,
    quotas: Quotas = None,
    tolerance: Tolerance = 0.1,
    store: StoreUrl = None,
    context: ContextName = None,
    command_config: CommandConfig = None,
    quota_window_num: QuotaWindowNum = None,
    quota_window_size_seconds: QuotaWindowSize = None,
    controller_quota_window_num: ControllerWindowNum = None,
    controller_quota_window_size_seconds: ControllerWindowSize = None,
    window_file: WindowFile = None,
    engine: EngineName = Engine.AUTO,
    master: Master = None,
    env_archive: EnvArchive = None,
    driver_memory: DriverMemory = "2g",
    spark_conf: SparkConf = None,
    spark_log: SparkLog = None,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Compare what brokers did with a replay of the same traffic under the quotas that were in force.

    Throttle times as brokers answered them stand beside those that the replay gives, and scraped byte rates beside
    those of the events. The exit code is 1 where an error exceeds the tolerance, or nothing can be compared.
    """
    require_libraries()
    windows = chosen_windows(
        quota_window_num=quota_window_num,
        quota_window_size_seconds=quota_window_size_seconds,
        controller_window_num=controller_quota_window_num,
        controller_window_size_seconds=controller_quota_window_size_seconds,
        window_file=window_file,
    )
    request = ValidateRequest(
        events=events_request(
            data,
            engine,
            master=master,
            env_archive=env_archive,
            driver_memory=driver_memory,
            conf=spark_conf,
            log=spark_log,
        ),
        quotas=proposal_in_force(quotas, store=store, context=context, command_config=command_config),
        tolerance=tolerance,
        window=client_window(windows)[0],
        controller_window=controller_window(windows)[0],
    )
    with job_progress() as progress:
        result = run_validate(request, EventsWatcher(progress=progress, chosen=engine_notes()))
    print_listing(validation_listing(result), output)
    for line in remarks(result.validation):
        write(line, sys.stderr)
    if not result.validation.ok:
        raise typer.Exit(1)
