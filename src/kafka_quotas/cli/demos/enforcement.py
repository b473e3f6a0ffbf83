"""`kafka-quotas demo`: the whole product in half a minute, step by step: quotas, the daemon, load and verdicts.

The load is the scenario beside this module. Throttle times are judged by the daemon's own event log, since
acknowledgements reach a client late if the machine is busy. A load in which clients only got too little runs once more:
a lack of CPU may be why, and no quota is.
"""

import secrets
import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, TextIO

from kafka_quotas import loadtest
from kafka_quotas.cli.charts.text_chart import print_chart
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option_info
from kafka_quotas.cli.load_test.options import exit_code, keep_result, make_folder
from kafka_quotas.cli.load_test.views.charts import load_series
from kafka_quotas.cli.load_test.views.view import live_watcher, print_load
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.output.listing import Cell, Output, Table
from kafka_quotas.cli.output.render import BOLD, coloured, print_table, write
from kafka_quotas.commands.load_test.cleanup import interruptible
from kafka_quotas.commands.load_test.target import (
    EVENT_LOG,
    LoadTarget,
    TestBed,
    running_environment,
    running_test_bed,
)
from kafka_quotas.commands.quotas.alter import alter
from kafka_quotas.commands.quotas.describe import EffectiveResult, effective
from kafka_quotas.commands.testbed.daemon_process import work_folder
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.extras import require_linux
from kafka_quotas.core.model.value_format import format_byte_rate, format_bytes, format_quota
from kafka_quotas.core.resolution.effective import QuotaClient
from kafka_quotas.stores import Store

SCENARIO: Final = loadtest.read_scenario(str(Path(__file__).with_suffix(".yaml")))
CLIENTS: Final = loadtest.own_plan(SCENARIO).entities
WINDOW: Final = SCENARIO.window
_TARGET: Final = LoadTarget(through_daemon=True)
_BUSY: Final = "clients got too little while the machine was too busy, see the warnings"
_WINDOW_TEXT: Final = f"{WINDOW.samples} x {WINDOW.window_s} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrator:
    """Where the demo says what it does, and who watches its load."""

    stream: TextIO
    watcher: loadtest.Watcher | None = None
    repeats: bool = False
    """Whether all but the load was shown before."""

    def heading(self, text: str) -> None:
        """Print a heading, bold on a terminal."""
        write(f"\n{coloured(text, BOLD, self.stream)}", self.stream)

    def say(self, text: str) -> None:
        """Print a line below the last heading."""
        write(f"  {text}", self.stream)
        self.stream.flush()


def measured_twice(narrator: Narrator) -> loadtest.LoadResult:
    """Run the load, again if clients only got too little, and return the result with its verdicts."""
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder())
        bed = stack.enter_context(running_test_bed(_TARGET, SCENARIO, folder))
        bed.make(SCENARIO.topics, prefix="")
        bed.fill(SCENARIO.topics, prefix="")
        store = stack.enter_context(closing(bed.store()))
        _set_quotas(store, narrator)
        result = measured(bed, store, "first", narrator)
        if not result.interrupted and is_shortfall(result):
            narrator.heading("Clients got less than they should, as on a busy machine: the same load once more")
            result = measured(bed, store, "second", replace(narrator, repeats=True))
        if not result.interrupted and is_shortfall(result) and result.warnings:
            return loadtest.judge_run(result, loadtest.Evidence(outages=(_BUSY,)))
        return result


def is_shortfall(result: loadtest.LoadResult) -> bool:
    """Return whether all that failed is that clients got too little, or that the run was void."""
    failed = [each for each in result.judgements if not each.ok]
    short = {each.name.label for each in result.entities if _fell_short(each)}
    return bool(failed) and all(
        each.aspect is loadtest.Aspect.RUN
        or (
            each.aspect in (loadtest.Aspect.RATE, loadtest.Aspect.BOOKS)
            and each.state is loadtest.State.NOT_MET
            and each.entity in short
        )
        for each in failed
    )


def _fell_short(client: loadtest.ClientResult) -> bool:
    """Return whether a client got no more than its quota, and was throttled for nothing else."""
    verdict = client.verdict
    if verdict.kind is loadtest.ObservationKind.GREEDY:
        return verdict.ratio is not None and verdict.upper is not None and verdict.ratio <= verdict.upper
    return not client.throttle.count


def measured(bed: TestBed, store: Store, name: str, narrator: Narrator) -> loadtest.LoadResult:
    """Run the load through a daemon of its own, and judge it by that daemon's event log as well."""
    with running_environment(_TARGET, bed, SCENARIO, prefix="", with_policy=False, name=name) as environment:
        if not narrator.repeats:
            _introduce(narrator, daemon=environment.bootstrap, cluster=bed.bootstrap, store=store)
        plan = load_plan(environment.bootstrap)
        result = loadtest.run_load(plan, clock=SystemClock(), watcher=narrator.watcher)
    events, ended_ms = bed.folder / name / EVENT_LOG, result.started_ms + round(result.elapsed_s * 1000)
    charges = loadtest.logged_charges(events, plan.entities, started_ms=result.started_ms, ended_ms=ended_ms)
    return loadtest.judge_run(result, loadtest.Evidence(charges=charges))


def _set_quotas(store: Store, narrator: Narrator) -> None:
    narrator.heading("Quotas, in a local store")
    for quota in SCENARIO.quotas:
        for key, limit in quota.values:
            alter(store, entity=quota.entity, changes={key: limit})
            value = format_bytes(limit).replace(" ", "")
            narrator.say(f"$ kafka-quotas alter --client {quota.entity.client_id} --add-config {key}={value}")


def _introduce(narrator: Narrator, *, daemon: str, cluster: str, store: Store) -> None:
    narrator.heading("The daemon, between clients and cluster")
    narrator.say(f"clients -> daemon {daemon} -> embedded cluster {cluster}")
    narrator.say(f"quota window {_WINDOW_TEXT} (Kafka's default is 11 x 1 s: too long for a demo)")
    narrator.heading("What applies to each client")
    narrator.say("$ kafka-quotas describe --effective --client ...")
    found = effective(store, clients=[QuotaClient(client_id=client.name.client_id) for client in CLIENTS])
    print_table(_limits(found), narrator.stream)
    narrator.heading(f"Load for {SCENARIO.duration_s:.0f} s, after a window of warm-up")
    for client in CLIENTS:
        arrivals = client.arrivals_per_second
        offers = "all it can" if arrivals is None else format_byte_rate(float(arrivals * client.record_size))
        quota = "no quota" if client.quota is None else f"quota {format_bytes(client.quota)}/s"
        narrator.say(f"{client.name.label:<10} {client.workload.value}s {offers}, {quota}")


def _limits(result: EffectiveResult) -> Table:
    rows: list[list[Cell]] = []
    for client, quotas in result.outcomes:
        limited = [(each.key.name, each) for each in quotas if each.limit is not None]
        shown: list[list[Cell]] = [
            [key, format_quota(key, each.limit or 0.0), str(each.level), str(each.entity)] for key, each in limited
        ]
        rows += [[str(client.client_id), *cells] for cells in shown or [["(any)", "unlimited", "", ""]]]
    return Table.of("client-id, key, limit>, level, set on", rows)


def load_plan(bootstrap: str) -> loadtest.LoadPlan:
    """Return the load of all clients at a daemon."""
    plan = loadtest.own_plan(SCENARIO)
    # One daemon keeps the quotas, however many brokers are behind it.
    return replace(plan, bootstrap=bootstrap, run_id=secrets.randbits(64), enforcers=1)


Out = Annotated[
    Path,
    option_info(
        "--out DIR", rich_help_panel=OUTPUT_HEADING, help="Where run.json and report.html go; created if needed."
    ),
]


def demo(out: Out = Path("demo-output"), output: OutputForm = Output.TABLE) -> int:
    """Show it all in under a minute, on an embedded cluster.

    A Kafka cluster inside this process, the local store and the daemon are started; quotas are set for three
    client-ids; a greedy, a modest and an unlimited producer and a greedy consumer run through the daemon. Where clients
    get too little, which a busy machine explains as well, the load runs once more. The exit code is 0 only if every
    quota held. Everything that was started is gone at the end.
    """
    require_linux("the daemon of the demo")
    make_folder(out)
    if any(out.iterdir()):
        write(f"note: the results in {out} are replaced; --out DIR keeps others apart", sys.stderr)
    stream = sys.stdout if output is Output.TABLE else sys.stderr
    with interruptible(lambda: write("note: already ending", sys.stderr)), live_watcher("load") as watcher:
        narrator = Narrator(stream=stream, watcher=watcher)
        result = measured_twice(narrator)
    narrator.heading("What they got")
    print_load(result, output)
    write("", stream)
    title = f"Rate over the last {_WINDOW_TEXT} and throttle times: the clients held back"
    print_chart(load_series(result, limited_only=True), stream, title=title, height=6)
    keep_result(replace(result, title="kafka-quotas demo"), out, plot=True)
    write("", stream)
    write(f"kept in {out}: {', '.join(sorted(each.name for each in out.iterdir()))}", stream)
    void = "This run proves nothing, for the reason above: try again when the machine has less to do."
    is_void = result.state is loadtest.State.VOID
    if not result.interrupted:
        write(void if is_void else "Every quota held." if result.ok else "A quota did NOT hold.", stream)
    return exit_code(result)
