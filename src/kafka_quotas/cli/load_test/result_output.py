"""The output of a load test's result: printed, drawn, and kept in a folder.

Invariant: every file is written in a scratch folder first and moves to its place when all are complete. A failed write
leaves none of the new files. Files of an earlier run with the same names are replaced, others stay.
"""

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kafka_quotas.cli.charts.html_page import page_html
from kafka_quotas.cli.charts.plot import check_plot_targets, save_plot
from kafka_quotas.cli.load_test.views.chart import load_series
from kafka_quotas.cli.load_test.views.view import load_listing, print_load
from kafka_quotas.cli.output.json_text import json_text
from kafka_quotas.cli.output.render import envelope, write
from kafka_quotas.cli.output.view import Output
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.loadtest.result.hgrm import hgrm_files
from kafka_quotas.loadtest.result.reading import RUN_FILE
from kafka_quotas.loadtest.result.result import LoadResult
from kafka_quotas.loadtest.result.samples_file import SAMPLES_FILE, can_write_samples, write_samples


def make_folder(folder: Path) -> None:
    """Create the folder and check that it can be written into.

    Commands call it before a run, not after it.

    Raises:
        KafkaQuotasError: It can't be created or written into.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise KafkaQuotasError(
            f"can't make the folder {folder}, or write into it: {error.strerror or error}",
            hint="name another one with --out",
        ) from error


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """Yield a scratch folder whose files move into `folder` when the context ends without an error.

    Raises:
        KafkaQuotasError: The files can't be written. Then the folder keeps what it held before.
    """
    partial: Path | None = None
    try:
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
        yield partial
        for path in sorted(partial.iterdir()):
            path.replace(folder / path.name)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else error.strerror or str(error)
        raise KafkaQuotasError(
            f"can't keep the run in {folder}: {reason}; nothing of it was kept",
            hint="make room, or name another folder with --out" if full else "name another folder with --out",
        ) from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)


REPORT_FILE = "report.html"
PICTURE_FILE = "run.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultOutput:
    """The output of a result: its form on standard output, its plots, and its folder."""

    output: Output
    plots: Sequence[Path]
    folder: Path | None

    def check(self) -> None:
        """Check that everything can be written.

        Commands call it before the run, not after it.

        Raises:
            UsageError: A plot can't be written where it was asked for.
            KafkaQuotasError: The folder can't be written into, or matplotlib is not installed.
        """
        if self.folder is not None:
            make_folder(self.folder)
        check_plot_targets(self.plots)

    def keep(self, result: LoadResult) -> None:
        """Print the result, draw its plots and write its folder."""
        print_load(result, self.output)
        for plot in self.plots:
            save_plot(load_series(result), plot, title=result.title)
        if self.folder is not None:
            keep_result(result, self.folder)


def keep_result(result: LoadResult, folder: Path, *, picture: bool = False) -> None:
    """Write the run into its folder: run.json, hgrm files and what installed libraries can produce.

    These are samples.parquet (pyarrow), report.html and, for `picture`, run.png (matplotlib). The folder must exist.

    Raises:
        KafkaQuotasError: A file can't be written. Then none of them is.
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
    """Draw report.html and, if asked for, run.png into a folder.

    A note on standard error names the libraries that are missing for it.
    """
    missing = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        told = " and ".join(missing)
        write(f"note: no {REPORT_FILE} without {told}: pip install 'kafka-quotas[plot]'", sys.stderr)
        return
    from kafka_quotas.cli.load_test.views.page import load_page  # noqa: PLC0415 - charts are drawn seldom

    (place / REPORT_FILE).write_text(page_html(load_page(result)), encoding="utf-8")
    if picture:
        save_plot(load_series(result), place / PICTURE_FILE, title=result.title)
