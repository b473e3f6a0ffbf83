"""`kafka-quotas load-test run`: a scenario from its file or by its name."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer

from kafka_quotas import loadtest
from kafka_quotas.cli.framework.option_groups import flag, option, option_group, option_info
from kafka_quotas.cli.framework.store_choice import confirm
from kafka_quotas.cli.load_test.result_output import ResultOutput, keep_runs, print_verdict
from kafka_quotas.cli.load_test.target_options import ClientWindow, LoadWindowOptions, TargetOptions
from kafka_quotas.cli.load_test.views.live import live_watcher
from kafka_quotas.cli.output.render import write
from kafka_quotas.commands.load_test.request import RunRequest, needs_broker, ready_scenario
from kafka_quotas.commands.load_test.run import RunObserver, run_scenario
from kafka_quotas.commands.load_test.target import LoadTarget
from kafka_quotas.commands.web.load_page import LoadPage, served
from kafka_quotas.core.clock import SystemClock, parse_instant
from kafka_quotas.core.errors import INTERRUPTED, UsageError
from kafka_quotas.core.model.value_format import format_count, parse_duration_ms
from kafka_quotas.enforcement import parse_local_address


def complete_scenarios(incomplete: str) -> list[str]:
    """Return the names of shipped scenarios that begin so."""
    return [name for name in loadtest.shipped_names() if name.startswith(incomplete)]


ScenarioName = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO",
        help="A file (with its .yaml), or the name of a scenario that is shipped, see 'load-test list'.",
        autocompletion=complete_scenarios,
    ),
]
Scale = Annotated[
    float | None,
    option_info(
        "--scale FACTOR",
        help="Multiply the figures that the scenario lists under `scale`. Default: the full size on an existing "
        "cluster, else a size that suits a laptop and fits this machine's limits.",
    ),
]


Duration = Annotated[
    str | None,
    option_info(
        "--duration TIME",
        help="How long to measure: 60s, 2min. Default: as long as verdicts take, which is five quota windows, "
        "and no less than the scenario or command does without quotas.",
    ),
]
Expect = Annotated[
    list[str] | None,
    option_info(
        "--expect THRESHOLD",
        help="A threshold of your own that has to be met: 'achieved/quota in 0.9..1.05', 'throttle.count > 0', "
        "'entity(app).response.p99 < 50ms'; may be repeated.",
    ),
]


@option_group("Verdict")
class VerdictOptions:
    """The options about what of a scenario is run and judged."""

    scale: Scale = None
    duration: Duration = None
    brokers: int | None = option(
        "--brokers N",
        min=1,
        help="How many brokers keep the quota, each for itself. Default: those that lead the topic.",
    )
    expect: Expect = None
    shard: str | None = option(
        "--shard NUMBER/COUNT",
        help="Put this share of every client's load on the target, as 2/4: every fourth arrival, from the second on. "
        "Shards have the same options and start together, and 'load-test merge' joins what they wrote with --out.",
    )
    start_at: str | None = option(
        "--start-at TIME", help="When the load begins, as 2026-11-22T19:30:00Z, late enough for all to be ready."
    )
    experiment: str | None = option(
        "--experiment TIME",
        help="How long the same load may be run without the scenario's quotas, and with and without them in turn where "
        "there are control clients, to show what they change; 0s leaves it out. Default: 3min on a target that ends "
        "with the run, 0s on an existing cluster.",
    )
    prometheus: list[str] | None = option(
        "--prometheus URL",
        help="Read the brokers' own metrics beside the run, every 5 s: an exporter of a broker (with a path, as "
        "http://BROKER:7071/metrics) or a Prometheus server (without one). May be repeated.",
    )

    @property
    def share(self) -> loadtest.LoadShare:
        """The share of the load, the whole of it without the option."""
        if self.shard is None:
            return loadtest.WHOLE
        match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", self.shard, re.ASCII)
        if match is None:
            raise UsageError(f"not a shard: {self.shard!r}", hint="write NUMBER/COUNT, such as 2/4")
        return loadtest.LoadShare(number=int(match[1]), count=int(match[2]))

    @property
    def start_at_ms(self) -> int | None:
        """The start of the load, None for as soon as all is ready."""
        try:
            return None if self.start_at is None else parse_instant(self.start_at)
        except ValueError as error:
            raise UsageError(f"not a time: {self.start_at!r}", hint="write it as 2026-11-22T19:30:00Z") from error


def seconds(text: str) -> float:
    """Parse a duration such as `60s` or `2min` into seconds."""
    return float(parse_duration_ms(text) / 1000)


@option_group("Page")
class LivePageOptions:
    """The options about a page for browsers."""

    ui: bool = flag("--ui", help="Serve a live page for browsers during the run.")
    listen: str = option(
        "--listen [HOST:]PORT",
        default="9480",
        help="With --ui: where the page is, on 127.0.0.1 without a host; port 0 is any free one.",
    )


def run(
    scenario: ScenarioName,
    *,
    target: TargetOptions,
    verdict: VerdictOptions,
    windows: ClientWindow,
    page: LivePageOptions,
    output: ResultOutput,
) -> int:
    """Run a scenario: set its quotas, make its topics, apply its load, judge, and put everything back.

    Without a target it runs on the embedded cluster with our daemon in front, if that can do what it needs. Ctrl-C
    and SIGTERM end it, and quotas are put back even then; after kill -9 'load-test restore' does.
    """
    found = loadtest.read_scenario(scenario)
    found = replace(
        found, expect=(*found.expect, *(loadtest.parse_expectation(each).text for each in verdict.expect or ()))
    )
    order = RunRequest(
        scenario=found,
        target=_target(target, found, enforcers=verdict.brokers),
        journal_folder=target.change.journal_folder,
        scale=verdict.scale,
        duration_s=None if verdict.duration is None else seconds(verdict.duration),
        share=verdict.share,
        start_at_ms=verdict.start_at_ms,
        experiment_s=None if verdict.experiment is None else seconds(verdict.experiment),
        prometheus=tuple(verdict.prometheus or ()),
    )
    output.check()
    _ask_first(order, yes=target.change.yes)
    order = with_window(order, windows)
    with _served(page, order) as shown:
        return run_and_keep(order, output, step=note_step, page=shown)


@contextmanager
def _served(page: LivePageOptions, order: RunRequest) -> Iterator[LoadPage | None]:
    if not page.ui:
        yield None
        return
    shown = LoadPage(f"load-test {order.scenario.name}")
    with served(shown, parse_local_address(page.listen)) as address:
        note_step(f"the page is at http://{address}/")
        yield shown


def run_and_keep(
    order: RunRequest, output: ResultOutput, *, step: Callable[[str], None], page: LoadPage | None = None
) -> int:
    """Run a scenario with a live view, print and keep its results, and return the worst exit code.

    `step` receives a line for each step, and `page` is the live page for browsers.
    """
    codes: list[int] = []
    for kept in output.repeats():
        with live_watcher(f"load-test {order.scenario.name}") as watcher:
            observer = RunObserver(warn=note_step, step=step, watcher=watcher)
            if page is not None:
                observer = replace(observer, step=page.step(step), watcher=page.watcher(watcher))
            result = run_scenario(order, clock=SystemClock(), observer=observer)
        keep_runs(result, kept)
        if result.interrupted:
            return INTERRUPTED
        codes.append(0 if result.ok else 1)
    if len(codes) > 1:
        passed = codes.count(0)
        outcome = "PASS" if passed == len(codes) else "FAIL"
        print_verdict(f"{outcome}: {passed} of {format_count(len(codes), 'repeat')} passed", output.output)
    return max(codes)


def _target(target: TargetOptions, scenario: loadtest.Scenario, *, enforcers: int | None) -> LoadTarget:
    if target.cluster.is_named():
        return target.load_target(window=None, enforcers=enforcers)
    if needs_broker(scenario):
        raise UsageError(
            f"{scenario.name} needs a real broker",
            hint="--broker-jars DIR starts one for it; --bootstrap-server HOST:PORT names a cluster",
        )
    return target.load_target(window=None, enforcers=enforcers, through_daemon=True)


def _ask_first(order: RunRequest, *, yes: bool) -> None:
    if yes or not order.target.is_theirs:
        return
    scenario, _ = ready_scenario(order)
    flood = ", floods it with changes of topics" if scenario.mutates else ""
    changes = (
        f" and sets {format_count(len(scenario.quotas), 'quota')}"
        if scenario.quotas and not order.target.through_daemon
        else ""
    )
    confirm(
        f"{scenario.name} makes {format_count(len(scenario.topics), 'topic')} on {order.target.bootstrap}"
        f"{flood}{changes}; all of it is put back at the end"
    )


def note_step(step: str) -> None:
    """Report a step of a run on standard error."""
    write(f"note: {step}", sys.stderr)


def with_window(order: RunRequest, windows: LoadWindowOptions) -> RunRequest:
    """Return the order with the quota window given or in force at the brokers, or its scenario's own.

    Brokers may be asked, so everything that can be refused without them comes before.
    """
    found = windows.given(order.target)
    if found is None:
        return order
    only_mutates = all(entity.does is loadtest.Workload.MUTATE for entity in order.scenario.entities)
    return replace(order, target=replace(order.target, window=found.controller if only_mutates else found.client))
