"""`kafka-quotas load-test run`: a scenario from its file or by its name."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer

from kafka_quotas import loadtest
from kafka_quotas.cli.framework.option_groups import Without, flag, option, option_group
from kafka_quotas.cli.framework.store_choice import confirm
from kafka_quotas.cli.load_test.result_output import ResultOutput, keep_runs, print_verdict
from kafka_quotas.cli.load_test.target_options import ClientWindow, LoadWindowOptions, TargetOptions
from kafka_quotas.cli.load_test.views.live import live_watcher
from kafka_quotas.cli.output.render import write
from kafka_quotas.commands.load_test.request import RunRequest, RunTerms, needs_broker, ready_scenario
from kafka_quotas.commands.load_test.run import RunObserver, run_scenario
from kafka_quotas.commands.load_test.target import LoadTarget
from kafka_quotas.commands.web.load_page import LoadPage, served
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.errors import INTERRUPTED, UsageError
from kafka_quotas.core.model.value_format import format_count
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


@option_group("Page")
class _LivePageOptions:
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
    terms: Annotated[RunTerms, Without("warmup_s")],
    windows: ClientWindow,
    page: _LivePageOptions,
    output: ResultOutput,
) -> int:
    """Run a scenario: set its quotas, make its topics, apply its load, judge, and put everything back.

    Without a target it runs on the embedded cluster with our daemon in front, if that can do what it needs. Ctrl-C
    and SIGTERM end it, and quotas are put back even then; after kill -9 'load-test restore' does.
    """
    found = loadtest.read_scenario(scenario)
    order = RunRequest(
        scenario=found, target=_target(target, found), journal_folder=target.change.journal_folder, terms=terms
    )
    output.check()
    _ask_first(order, yes=target.change.yes)
    order = with_window(order, windows)
    with _served(page, order) as shown:
        return run_and_keep(order, output, step=note_step, page=shown)


@contextmanager
def _served(page: _LivePageOptions, order: RunRequest) -> Iterator[LoadPage | None]:
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


def _target(target: TargetOptions, scenario: loadtest.Scenario) -> LoadTarget:
    if target.cluster.is_named:
        return target.load_target()
    if needs_broker(scenario):
        raise UsageError(
            f"{scenario.name} needs a real broker",
            hint="--broker-jars DIR starts one for it; --bootstrap-server HOST:PORT names a cluster",
        )
    return replace(target.load_target(), through_daemon=True)


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
