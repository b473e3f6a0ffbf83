"""`kafka-quotas load-test report`: a kept run, reported and drawn again."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.charts.html_page import page_html
from kafka_quotas.cli.charts.plot import require_matplotlib, save_plot
from kafka_quotas.cli.load_test.result_output import PICTURE_FILE, REPORT_FILE, whole
from kafka_quotas.cli.load_test.views.chart import load_series
from kafka_quotas.cli.load_test.views.page import load_page
from kafka_quotas.cli.load_test.views.view import print_load
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.output.render import write
from kafka_quotas.cli.output.view import Output
from kafka_quotas.commands.load_test.kept_runs import kept_run

_INTERRUPTED = 130


def report(
    folder: Annotated[Path, typer.Argument(help="Folder that load-test wrote with --out, or its run.json.")],
    *,
    png: Annotated[bool, typer.Option("--png", help="Draw run.png as well.")] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Draw a kept run's report again, and tell its verdict.

    report.html comes to lie beside run.json. The exit code is that of the run.
    """
    result = kept_run(folder)
    require_matplotlib()
    place = folder if folder.is_dir() else folder.parent
    with whole(place) as partial:
        (partial / REPORT_FILE).write_text(page_html(load_page(result)), encoding="utf-8")
        if png:
            save_plot(load_series(result), partial / PICTURE_FILE, title=result.title)
    print_load(result, output)
    drawn = f"{REPORT_FILE} and {PICTURE_FILE}" if png else REPORT_FILE
    write(f"{drawn} drawn in {place}", sys.stderr)
    if result.interrupted:
        raise typer.Exit(_INTERRUPTED)
    if not result.ok:
        raise typer.Exit(1)
