"""`kafka-quotas pipeline report`: recorded traffic as one page for people who don't run Kafka."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.charts.html_page import require_jinja, save_page
from kafka_quotas.cli.charts.plot import require_matplotlib
from kafka_quotas.cli.options.figures import client_window, controller_window
from kafka_quotas.cli.options.stores import CommandConfig, ContextName, StoreUrl
from kafka_quotas.cli.options.windows import (
    ControllerWindowNum,
    ControllerWindowSize,
    QuotaWindowNum,
    QuotaWindowSize,
    WindowFile,
    chosen_windows,
)
from kafka_quotas.cli.output.render import write
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
from kafka_quotas.cli.pipeline.proposals import proposal_in_force
from kafka_quotas.cli.pipeline.report_sections import report_page
from kafka_quotas.commands.pipeline.recommend import RecommendRequest
from kafka_quotas.commands.pipeline.report import ReportRequest
from kafka_quotas.commands.pipeline.report import report as run_report
from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.buckets.default_scope import DefaultScope
from kafka_quotas.pipeline.engine.choice import Engine, require_libraries
from kafka_quotas.pipeline.engine.progress import JobProgress
from kafka_quotas.pipeline.engine.runner import EventsWatcher
from kafka_quotas.pipeline.recommend.advice import Tolerance

Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="The page: one HTML file that needs nothing else.")]
Title = Annotated[str, typer.Option("--title", metavar="TEXT", help="The page's heading.")]
Quotas = Annotated[
    str | None,
    typer.Option("--quotas", metavar="FILE", help="The quotas in force; without it those in the store."),
]


def report(
    *,
    data: Data,
    out: Out,
    title: Title = "Who uses Kafka, and which limits fit",
    quotas: Quotas = None,
    default_of: DefaultOf = DefaultScope.USER,
    clients_share: ClientsShare = 0.05,
    time_share: TimeShare = 0.01,
    headroom: Headroom = 1.2,
    capacity: CapacityFile = None,
    capacity_share: CapacityShare = 0.8,
    cluster: ClusterName = None,
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
) -> None:
    """Write a page with charts and plain words: who uses what, when, how near to the limits, and which limits to set.

    It is one HTML file that can be sent by mail; it loads nothing and runs no script.
    """
    require_libraries()
    _check_target(out)
    windows = chosen_windows(
        quota_window_num=quota_window_num,
        quota_window_size_seconds=quota_window_size_seconds,
        controller_window_num=controller_quota_window_num,
        controller_window_size_seconds=controller_quota_window_size_seconds,
        window_file=window_file,
    )
    request = ReportRequest(
        recommend=RecommendRequest(
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
        ),
        quotas=proposal_in_force(quotas, store=store, context=context, command_config=command_config),
    )
    with job_progress() as progress:
        result = run_report(
            request,
            EventsWatcher(progress=progress, chosen=engine_notes()),
            step=lambda stage: progress(JobProgress(stage=stage, done=0, total=0)),
        )
        progress(JobProgress(stage="draw the page", done=0, total=0))
        save_page(report_page(result, title=title), out)
    write(f"the report is in {out} ({out.stat().st_size // 1024:,} KiB)", sys.stderr)


def _check_target(out: Path) -> None:
    """Check that the page can be drawn and written, before any work is done.

    Raises:
        UsageError: The page can't be written to this path.
        KafkaQuotasError: matplotlib or Jinja is not installed.
    """
    require_matplotlib()
    require_jinja()
    if out.is_dir() or not out.parent.is_dir():
        reason = "it is a folder" if out.is_dir() else f"there is no folder {out.parent}"
        raise UsageError(f"can't write {out}: {reason}", hint="--out report.html")
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise UsageError(f"can't write {out}: permission denied", hint="choose another place")
