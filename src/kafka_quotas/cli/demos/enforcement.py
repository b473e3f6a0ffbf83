"""`kafka-quotas demo`: what the product does, shown step by step in under a minute."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TextIO

import typer

from kafka_quotas.cli.charts.text_chart import print_chart
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option_info
from kafka_quotas.cli.load_test.result_output import keep_result, make_folder
from kafka_quotas.cli.load_test.views.charts import load_series
from kafka_quotas.cli.load_test.views.live import live_watcher
from kafka_quotas.cli.load_test.views.view import print_load
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.output.listing import Cell, Output, Table
from kafka_quotas.cli.output.render import is_terminal, print_table, write
from kafka_quotas.commands.demo import CLIENTS, DURATION_S, WINDOW, DemoClient, DemoTestBed
from kafka_quotas.commands.demo import demo as run_demo
from kafka_quotas.commands.load_test.cleanup import interruptible
from kafka_quotas.commands.quotas.alter import AlterResult
from kafka_quotas.commands.quotas.describe import EffectiveResult
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.errors import INTERRUPTED
from kafka_quotas.core.model.value_format import format_byte_rate, format_bytes, format_quota
from kafka_quotas.loadtest import LoadResult, RunProgress, State, Watcher


class Narrator:
    """An observer of the demo that prints each of its steps."""

    def __init__(self, stream: TextIO, watcher: Watcher | None) -> None:
        self._stream = stream
        self._watcher = watcher
        self._loading = False
        self._repeats = False
        heading(stream, "Quotas, in a local store")

    def quota_is_set(self, client: DemoClient, result: AlterResult) -> None:
        """Show the command that sets the same quota."""
        for change in result.changes:
            value = format_bytes(change.new or 0).replace(" ", "")
            self._write(f"$ kafka-quotas alter --client {client.client_id} --add-config {change.key}={value}")

    def servers_run(self, servers: DemoTestBed) -> None:
        """List what runs: the daemon, the embedded cluster and the quota window."""
        if self._repeats:
            return
        heading(self._stream, "The daemon, between clients and cluster")
        self._write(f"clients -> daemon {servers.daemon} -> embedded cluster {servers.cluster}")
        self._write(f"quota window {window_text()} (Kafka's default is 11 x 1 s: too long for a demo)")

    def applies(self, result: EffectiveResult) -> None:
        """Show the effective quotas of each client."""
        if self._repeats:
            return
        heading(self._stream, "What applies to each client")
        self._write("$ kafka-quotas describe --effective --client ...")
        print_table(_limits(result), self._stream)

    def load_runs(self, progress: RunProgress) -> None:
        """Announce the load at the first call, and pass the progress to the live view."""
        if not self._loading:
            self._loading = True
            heading(self._stream, f"Load for {DURATION_S:.0f} s, after a window of warm-up")
            for client in CLIENTS:
                offers = "all it can" if client.offers is None else format_byte_rate(client.offers)
                quota = "no quota" if client.quota is None else f"quota {format_bytes(client.quota)}/s"
                self._write(f"{client.client_id:<10} {client.workload.value}s {offers}, {quota}")
        if self._watcher is not None:
            self._watcher(progress)

    def load_repeats(self) -> None:
        """Announce the second load."""
        self._repeats = True
        heading(self._stream, "Clients got less than they should, as on a busy machine: the same load once more")

    def _write(self, text: str) -> None:
        write(f"  {text}", self._stream)
        self._stream.flush()


def heading(stream: TextIO, text: str) -> None:
    """Print a heading, bold on a terminal."""
    write("", stream)
    if not is_terminal(stream):
        write(text, stream)
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal pays for Rich
    from rich.text import Text  # noqa: PLC0415

    Console(file=stream, highlight=False).print(Text(text, style="bold"))


def window_text() -> str:
    """Return the demo's quota window in words."""
    return f"{WINDOW.samples} x {WINDOW.window_s} s"


def _limits(result: EffectiveResult) -> Table:
    """Return one row per client and limit.

    A client without limits has one row that says "unlimited".
    """
    rows: list[list[Cell]] = []
    for client, quotas in result.outcomes:
        limited = [(each.key.name, each) for each in quotas if each.limit is not None]
        shown: list[list[Cell]] = [
            [key, format_quota(key, each.limit or 0.0), str(each.level), str(each.entity)] for key, each in limited
        ]
        rows += [[str(client.client_id), *cells] for cells in shown or [["(any)", "unlimited", "", ""]]]
    return Table.of("client-id, key, limit>, level, set on", rows)


_TITLE = "kafka-quotas demo"

Out = Annotated[
    Path,
    option_info(
        "--out DIR", rich_help_panel=OUTPUT_HEADING, help="Where run.json and report.html go; created if needed."
    ),
]


def demo(out: Out = Path("demo-output"), output: OutputForm = Output.TABLE) -> None:
    """Show it all in under a minute, on an embedded cluster.

    A Kafka cluster inside this process, the local store and the daemon are started; quotas are set for three
    client-ids; a greedy, a modest and an unlimited producer and a greedy consumer run through the daemon. Where clients
    get too little, which a busy machine explains as well, the load runs once more. The exit code is 0 only if every
    quota held. Everything that was started is gone at the end.
    """
    make_folder(out)
    if any(out.iterdir()):
        write(f"note: the results in {out} are replaced; --out DIR keeps others apart", sys.stderr)
    stream = sys.stdout if output is Output.TABLE else sys.stderr
    with interruptible(lambda: write("note: already ending", sys.stderr)), live_watcher("load") as watcher:
        result = run_demo(Narrator(stream, watcher), clock=SystemClock())
    heading(stream, "What they got")
    print_load(result, output)
    write("", stream)
    title = f"Rate over the last {window_text()} and throttle times: the clients held back"
    print_chart(load_series(result, limited_only=True), stream, title=title, height=6)
    keep_result(replace(result, title=_TITLE), out, plot=True)
    _conclude(result, out, stream)


def _conclude(result: LoadResult, out: Path, stream: TextIO) -> None:
    """Report how the demo ended, and raise `Exit` with the matching code unless every quota held."""
    write("", stream)
    write(f"kept in {out}: {', '.join(sorted(each.name for each in out.iterdir()))}", stream)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if result.state is State.VOID:
        write("This run proves nothing, for the reason above: try again when the machine has less to do.", stream)
        raise typer.Exit(1)
    if not result.ok:
        write("A quota did NOT hold.", stream)
        raise typer.Exit(1)
    write("Every quota held.", stream)
