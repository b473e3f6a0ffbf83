"""`kafka-quotas pipeline recommend`: which quotas to set, and why."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.options.figures import client_window, controller_window
from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.options.windows import (
    ControllerWindowNum,
    ControllerWindowSize,
    QuotaWindowNum,
    QuotaWindowSize,
    WindowFile,
    chosen_windows,
)
from kafka_quotas.cli.output.render import print_listing, write
from kafka_quotas.cli.output.view import TABLE_VIEW, View
from kafka_quotas.cli.pipeline.options import (
    CapacityFile,
    CapacityShare,
    ClientsShare,
    ClusterName,
    Data,
    DefaultOf,
    DriverMemory,
    EngineName,
    EnvArchive,
    Headroom,
    Master,
    SparkConf,
    SparkLog,
    TimeShare,
    events_request,
)
from kafka_quotas.cli.pipeline.progress import engine_notes, job_progress
from kafka_quotas.cli.pipeline.recommend_view import advice_listing, demand_listing, warnings
from kafka_quotas.commands.pipeline.recommend import RecommendRequest
from kafka_quotas.commands.pipeline.recommend import recommend as run_recommend
from kafka_quotas.pipeline.buckets.default_scope import DefaultScope
from kafka_quotas.pipeline.engine.choice import Engine, require_libraries
from kafka_quotas.pipeline.engine.progress import JobProgress
from kafka_quotas.pipeline.engine.runner import EventsWatcher
from kafka_quotas.pipeline.recommend.advice import Tolerance

QuotaFile = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="Write the quotas there, as diff and apply take them.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write the table recommendation there, as Parquet.")
]
Explain = Annotated[
    str | None,
    typer.Option(
        "--explain",
        metavar="NAME",
        help="Show what one client did at each broker and what each limit would have done: a user, a client-id, or "
        "USER/CLIENT-ID, as --default-of says.",
    ),
]


def recommend(
    *,
    data: Data,
    default_of: DefaultOf = DefaultScope.USER,
    clients_share: ClientsShare = 0.05,
    time_share: TimeShare = 0.01,
    headroom: Headroom = 1.2,
    capacity: CapacityFile = None,
    capacity_share: CapacityShare = 0.8,
    cluster: ClusterName = None,
    explain: Explain = None,
    file: QuotaFile = None,
    out: Out = None,
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
    """Recommend a default for each quota type, and quotas of their own for the few clients who need more.

    Limits are tried by exact replay: the default is the smallest that holds back no more clients, for no more of their
    time, than is tolerated. Every value is per broker, from each client's busiest one. --file writes what apply reads.
    """
    require_libraries()
    windows = chosen_windows(
        quota_window_num=quota_window_num,
        quota_window_size_seconds=quota_window_size_seconds,
        controller_window_num=controller_quota_window_num,
        controller_window_size_seconds=controller_quota_window_size_seconds,
        window_file=window_file,
    )
    request = RecommendRequest(
        events=events_request(
            data,
            engine,
            master=master,
            env_archive=env_archive,
            driver_memory=driver_memory,
            conf=spark_conf,
            log=spark_log,
        ),
        per=default_of,
        tolerance=Tolerance(
            clients_share=clients_share, time_share=time_share, headroom=headroom, capacity_share=capacity_share
        ),
        cluster=cluster,
        capacities=capacity,
        window=client_window(windows)[0],
        controller_window=controller_window(windows)[0],
        file=file,
        tables=out,
    )
    _run(request, explain, output)


def _run(request: RecommendRequest, explain: str | None, output: View) -> None:
    with job_progress() as progress:
        result = run_recommend(
            request,
            EventsWatcher(progress=progress, chosen=engine_notes()),
            step=lambda stage: progress(JobProgress(stage=stage, done=0, total=0)),
        )
    if explain is None:
        print_listing(advice_listing(result), output)
    else:
        print_listing(demand_listing(result, explain), output)
    for line in warnings(result):
        write(line, sys.stderr)
    if request.file is not None:
        write(f"note: the quotas are in {request.file}; next: kafka-quotas diff {request.file}", sys.stderr)
    if request.tables is not None:
        write(f"note: the table recommendation is in {request.tables}", sys.stderr)
