"""What becomes of a load test's result: printed, drawn, kept in a folder."""

import errno
import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kafka_quotas.cli.json_text import json_text
from kafka_quotas.cli.load_chart import load_series
from kafka_quotas.cli.load_view import load_listing, print_load
from kafka_quotas.cli.output import Output
from kafka_quotas.cli.plot import check_plot_target, save_plot
from kafka_quotas.cli.render import envelope, write
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.loadtest.result import LoadResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What to do with the result: its form on standard output, a plot, a folder to keep both in."""

    output: Output
    plot: Path | None
    folder: Path | None

    def check(self) -> None:
        """Nothing, if everything can be written; asked before the run, not after it."""
        if self.folder is not None:
            make_folder(self.folder)
        if self.plot is not None:
            check_plot_target(self.plot)

    def keep(self, result: LoadResult) -> None:
        """Nothing; the result is printed and kept."""
        print_load(result, self.output)
        title = "load-test"
        if self.plot is not None:
            save_plot(load_series(result), self.plot, title=title)
        if self.folder is not None:
            keep_result(result, self.folder, title=title)


def keep_result(result: LoadResult, folder: Path, *, title: str) -> None:
    """Nothing; `run.json` and, where matplotlib is installed, `run.png` are in the folder, which is there."""
    document = folder / "run.json"
    try:
        document.write_text(json_text(envelope(load_listing(result))) + "\n", encoding="utf-8")
    except OSError as error:
        raise KafkaQuotasError(
            f"can't write {document}: {error.strerror or error}", hint="name another folder with --out"
        ) from error
    if find_spec("matplotlib") is None:
        write("note: no plot was drawn, for matplotlib is not installed", sys.stderr)
    else:
        save_plot(load_series(result), folder / "run.png", title=title)


def make_folder(folder: Path) -> None:
    """Nothing; the folder is there and can be written into. Asked before a run, not after it.

    Raises `KafkaQuotasError` where it can't be made or written into.
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
