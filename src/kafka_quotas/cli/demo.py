"""`kafka-quotas demo`: what the product does, shown in under a minute."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, TextIO

import typer

from kafka_quotas.cli.chart import print_chart
from kafka_quotas.cli.demo_narrator import Narrator, heading, window_text
from kafka_quotas.cli.load_chart import load_series
from kafka_quotas.cli.load_folder import make_folder
from kafka_quotas.cli.load_keeping import keep_result
from kafka_quotas.cli.load_live import live_watcher
from kafka_quotas.cli.load_view import print_load
from kafka_quotas.cli.options import OutputForm
from kafka_quotas.cli.output import Output
from kafka_quotas.cli.render import write
from kafka_quotas.commands.demo import demo as run_demo
from kafka_quotas.loadtest.hgrm import SUFFIX
from kafka_quotas.loadtest.result import LoadResult
from kafka_quotas.system_clock import SystemClock

_INTERRUPTED = 130
_TITLE = "kafka-quotas demo"

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where run.json and report.html go; made if need be.")]


def demo(out: Out = Path("demo-output"), output: OutputForm = Output.TABLE) -> None:
    """Show it all in under a minute, on an embedded cluster.

    A Kafka cluster inside this process, the local store and the daemon are started; quotas are set for three
    client-ids; a greedy, a modest and an unlimited producer and a greedy consumer run through the daemon. The exit code
    is 0 only if every quota held. Everything that was started is gone at the end.
    """
    make_folder(out)
    stream = sys.stdout if output is Output.TABLE else sys.stderr
    with _terminable(), live_watcher("load") as watcher:
        result = run_demo(Narrator(stream, watcher), clock=SystemClock())
    heading(stream, "What they got")
    print_load(result, output)
    write("", stream)
    title = f"Rate over the last {window_text()} and throttle times: the clients held back"
    print_chart(load_series(result, limited_only=True), stream, title=title, height=6)
    keep_result(replace(result, title=_TITLE), out, picture=True)
    _conclude(result, out, stream)


@contextmanager
def _terminable() -> Iterator[None]:
    """A context in which SIGTERM is an interrupt, so that everything started is ended."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _conclude(result: LoadResult, out: Path, stream: TextIO) -> None:
    """Nothing; says how it ended, and ends with the exit code that says the same."""
    write("", stream)
    write(f"kept in {out}: {', '.join(sorted(each.name for each in out.iterdir() if each.suffix != SUFFIX))}", stream)
    if result.interrupted:
        raise typer.Exit(_INTERRUPTED)
    if not result.ok:
        write("A quota did NOT hold.", stream)
        raise typer.Exit(1)
    write("Every quota held.", stream)
