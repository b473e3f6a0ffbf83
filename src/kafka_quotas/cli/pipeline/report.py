"""`kafka-quotas pipeline report`: recorded traffic as one page for people who don't run Kafka."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from kafka_quotas.cli.charts.html_page import require_jinja, save_page
from kafka_quotas.cli.charts.plot import require_matplotlib
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option_info
from kafka_quotas.cli.options.stores import StoreOrContext
from kafka_quotas.cli.options.windows import WindowOptions
from kafka_quotas.cli.output.render import write
from kafka_quotas.cli.pipeline.options import (
    Data,
    EngineOptions,
    Quotas,
    note_changes,
    proposal_in_force,
    recorded_events,
)
from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.engine.job import require_libraries
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan

Out = Annotated[
    Path,
    option_info("--out FILE", rich_help_panel=OUTPUT_HEADING, help="The page: one HTML file that needs nothing else."),
]
_TITLE = "Who uses Kafka, and which limits fit"


def report(
    *,
    data: Data,
    out: Out,
    quotas: Quotas = None,
    advice: RecommendPlan,
    store: StoreOrContext,
    windows: WindowOptions,
    engine: EngineOptions,
) -> None:
    """Write a page with charts: who uses what, when, how close to the limits, and which limits to set.

    It is one HTML file that can be sent by mail; it loads nothing and runs no script.
    """
    require_libraries()
    _check_target(out)
    from kafka_quotas.cli.pipeline.report_sections import report_page  # noqa: PLC0415 - loads the kernels
    from kafka_quotas.pipeline.jobs import report as job  # noqa: PLC0415

    window, in_force = windows.settings(), proposal_in_force(quotas, store, engine.events(data))
    plan = replace(advice, window=window.client, controller_window=window.controller)
    with recorded_events(engine, data) as (events, show_stage):
        found = job.report(events, plan, in_force, step=show_stage)
        show_stage("draw the page")
        save_page(report_page(found, title=_TITLE), out)
    note_changes(quotas, in_force, events.recorded)
    write(f"the report is in {out} ({out.stat().st_size // 1024:,} KiB)", sys.stderr)


def _check_target(out: Path) -> None:
    require_matplotlib()
    require_jinja()
    if out.is_dir() or not out.parent.is_dir():
        reason = "it is a folder" if out.is_dir() else f"there is no folder {out.parent}"
        raise UsageError(f"can't write {out}: {reason}", hint="--out report.html")
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise UsageError(f"can't write {out}: permission denied", hint="choose another path")
