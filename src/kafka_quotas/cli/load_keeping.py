"""What becomes of a load test's result: printed, drawn, kept in a folder."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kafka_quotas.cli.json_text import json_text
from kafka_quotas.cli.load_chart import load_series
from kafka_quotas.cli.load_folder import make_folder, whole
from kafka_quotas.cli.load_view import load_listing, print_load
from kafka_quotas.cli.output import Output
from kafka_quotas.cli.plot import check_plot_targets, save_plot
from kafka_quotas.cli.render import envelope, write
from kafka_quotas.cli.report_page import page_html
from kafka_quotas.loadtest.hgrm import hgrm_files
from kafka_quotas.loadtest.result import LoadResult
from kafka_quotas.loadtest.run_reading import RUN_FILE
from kafka_quotas.loadtest.samples_file import SAMPLES_FILE, can_write_samples, write_samples

REPORT_FILE = "report.html"
PICTURE_FILE = "run.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What to do with the result: its form on standard output, plots, a folder to keep all in."""

    output: Output
    plots: Sequence[Path]
    folder: Path | None

    def check(self) -> None:
        """Nothing, if everything can be written; asked before the run, not after it."""
        if self.folder is not None:
            make_folder(self.folder)
        check_plot_targets(self.plots)

    def keep(self, result: LoadResult) -> None:
        """Nothing; the result is printed and kept."""
        print_load(result, self.output)
        for plot in self.plots:
            save_plot(load_series(result), plot, title=result.title)
        if self.folder is not None:
            keep_result(result, self.folder)


def keep_result(result: LoadResult, folder: Path, *, picture: bool = False) -> None:
    """Nothing; the folder, which is there, holds the run: run.json, hgrm files, and what installed libraries can make.

    These are samples.parquet (pyarrow), report.html and, for `picture`, run.png (matplotlib).

    Raises `KafkaQuotasError` where they can't be written; then none of them is.
    """
    with whole(folder) as place:
        (place / RUN_FILE).write_text(json_text(envelope(load_listing(result))) + "\n", encoding="utf-8")
        for name, text in hgrm_files(result):
            (place / name).write_text(text, encoding="ascii")
        if can_write_samples():
            write_samples(result, place / SAMPLES_FILE)
        else:
            write(f"note: no {SAMPLES_FILE} without pyarrow: pip install 'kafka-quotas[spark]'", sys.stderr)
        draw_result(result, place, picture=picture)


def draw_result(result: LoadResult, place: Path, *, picture: bool) -> None:
    """Nothing; report.html and, if asked for, run.png are in a folder; a note says what is missing to draw them."""
    missing = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        told = " and ".join(missing)
        write(f"note: no {REPORT_FILE} without {told}: pip install 'kafka-quotas[plot]'", sys.stderr)
        return
    from kafka_quotas.cli.load_page import load_page  # noqa: PLC0415 - charts are drawn seldom

    (place / REPORT_FILE).write_text(page_html(load_page(result)), encoding="utf-8")
    if picture:
        save_plot(load_series(result), place / PICTURE_FILE, title=result.title)
