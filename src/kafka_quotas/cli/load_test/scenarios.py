"""`kafka-quotas load-test run`, `list`, `init` and `validate`: scenarios, from their files or by their names."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from kafka_quotas import loadtest
from kafka_quotas.cli.framework.option_groups import Without, flag, option, option_group, option_info
from kafka_quotas.cli.framework.store_choice import confirm
from kafka_quotas.cli.load_test.options import (
    ClientWindow,
    LoadWindowOptions,
    ResultOutput,
    TargetOptions,
    keep_runs,
    print_verdict,
)
from kafka_quotas.cli.load_test.views.view import live_watcher
from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.output.listing import TABLE_VIEW, Cell, json_text, listed
from kafka_quotas.cli.output.render import print_listing, write
from kafka_quotas.commands.load_test.request import (
    RunLength,
    RunRequest,
    RunTerms,
    ScenarioCheck,
    needs_broker,
    ready_scenario,
    run_length,
    validate_scenario,
)
from kafka_quotas.commands.load_test.run import RunObserver, run_scenario
from kafka_quotas.commands.load_test.target import LoadTarget
from kafka_quotas.commands.web.load_page import LoadPage, served
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.described import documents_of
from kafka_quotas.core.errors import INTERRUPTED, UsageError
from kafka_quotas.core.model.value_format import format_count
from kafka_quotas.enforcement import parse_local_address
from kafka_quotas.stores import save_text


def complete_scenarios(incomplete: str) -> list[str]:
    """Return the names of shipped scenarios that begin so."""
    return [name for name in loadtest.shipped_names() if name.startswith(incomplete)]


Schema = Annotated[bool, option_info("--schema", help="Print the JSON schema of scenario files, and nothing else.")]
MaybeScenario = Annotated[
    str | None,
    typer.Argument(
        metavar="SCENARIO",
        help="A file (with its .yaml), or the name of a scenario that is shipped.",
        show_default=False,
        autocompletion=complete_scenarios,
    ),
]
AskedQuestion = Annotated[
    loadtest.Question,
    typer.Argument(
        metavar="holds|hurts|takes",
        help="holds: does every client get its quota? hurts: is a quiet client harmed by greedy ones? takes: how much "
        "does the target take before it is late?",
        show_default=False,
    ),
]
NewFile = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="The file to write, which must not exist. Without it standard output."),
]
ScaleAlone = Annotated[
    RunTerms,
    Without("duration_s", "warmup_s", "brokers", "expect", "share", "start_at_ms", "experiment_s"),
]
_ANY_JARS = Path("jars")
"""Stands for jars where a broker would be started: nothing is started here, so it does not matter where they are."""


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    """A scenario in the list, and how long it takes."""

    DOCUMENT: ClassVar = (
        "scenario.name scenario.title scenario.source needs_broker needs_daemon scenario.clients seconds=length.load_s "
        "comparison_seconds=length.comparison_s comparison_most_seconds=length.comparison_most_s scales"
    )
    scenario: loadtest.Scenario
    length: RunLength

    @property
    def needs_broker(self) -> bool:
        """Whether the embedded cluster is not enough."""
        return needs_broker(self.scenario)

    @property
    def needs_daemon(self) -> bool:
        """Whether it needs the daemon in front."""
        return self.scenario.needs is loadtest.TargetNeed.DAEMON

    @property
    def scales(self) -> bool:
        """Whether it can be run at another scale."""
        return bool(self.scenario.scaling.multiplies)

    @property
    def cells(self) -> Sequence[Cell]:
        """Its row for people."""
        needs = "real broker" if self.needs_broker else "daemon" if self.needs_daemon else "any"
        least, most = round(self.length.comparison_s), round(self.length.comparison_most_s)
        compared = f"{least} to {most}" if most > least else str(least or "")
        return self.scenario.name, needs, round(self.length.load_s), compared, self.scenario.title


def list_(*, output: ListingView = TABLE_VIEW) -> None:
    """List the scenarios that are shipped, what each shows, and what it needs.

    Those that need no real broker run on the embedded cluster with our daemon in front.
    """
    rows = [ScenarioRow(each, run_length(each)) for each in map(loadtest.read_scenario, loadtest.shipped_names())]
    print_listing(
        listed(
            "load-scenarios",
            {"scenarios": documents_of(rows)},
            "scenario!, needs!, load (s)>, comparison (s)>, shows",
            [each.cells for each in rows],
            caption="Comparison: runs with and without the quotas that follow the load, on a target that ends with "
            "the run. Run one with: kafka-quotas load-test run SCENARIO",
        ),
        output,
    )


def init(question: AskedQuestion, file: NewFile = None) -> None:
    """Write a commented scenario that answers a question, to run as it is and to change.

    It runs on the embedded cluster with the daemon in front, or wherever 'load-test run' is pointed at.
    """
    text = loadtest.question_text(question)
    if file is None:
        write(text.rstrip(), sys.stdout)
        return
    if file.suffix not in (".yaml", ".yml"):
        raise UsageError(f"{file} is not the name of a scenario", hint="end it with .yaml")
    if file.exists():
        raise UsageError(f"{file} exists already", hint="name a new file, or remove it first")
    text = text.replace(" FILE", f" {file}")
    save_text(file, text)
    write(f"note: written to {file}; next: kafka-quotas load-test run {file}", sys.stderr)


def validate(
    scenario: MaybeScenario = None,
    *,
    schema: Schema = False,
    target: LoadTarget,
    terms: ScaleAlone,
    output: ListingView = TABLE_VIEW,
) -> int:
    """Check whether a scenario is valid and can be run, without asking any server.

    Checks the file against its schema, what the target can't do, times that are too short, and this machine's limits of
    open files and mapped regions. Without a target it is the one that 'load-test run' would take, or a broker started
    here. The exit code is 1 if anything prevents it from running.
    """
    if schema:
        if scenario is not None:
            raise UsageError("--schema is about all scenarios", hint="leave the scenario out")
        write(json_text(loadtest.scenario_json_schema()), sys.stdout)
        return 0
    if scenario is None:
        raise UsageError("name a scenario", hint="kafka-quotas load-test list shows those that are shipped")
    found = loadtest.read_scenario(scenario)
    if target.bootstrap is None and target.broker_jars is None and not target.embedded:
        jars = _ANY_JARS if needs_broker(found) else None
        target = replace(target, broker_jars=jars, through_daemon=target.through_daemon or jars is None)
    check = validate_scenario(found, target, limits=loadtest.host_limits(), scale=terms.scale)
    caption = _validation_caption(check)
    if check.ok and output == TABLE_VIEW:
        write(caption, sys.stdout)
    else:
        rows = [(each.message, each.hint or "") for each in check.findings]
        print_listing(listed("load-validate", check, "problem, what to do", rows, caption=caption), output)
    return 0 if check.ok else 1


def _validation_caption(check: ScenarioCheck) -> str:
    outcome = "can be run" if check.ok else f"can't be run ({len(check.findings)})"
    length = "a length that can't be told" if check.length is None else check.length.text
    size = f"{check.clients} clients, {check.partitions} partitions, {length}"
    scale = f"scale {check.scale:g} (a broker on this machine can bear {check.largest:g})"
    return f"{check.name} {outcome}: {size} at {scale}; this machine allows {check.limits.description}"


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
    order = with_window(order, windows, output, yes=target.change.yes, asks_always=True)
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
    if target.cluster.names_cluster():
        return target.load_target()
    if needs_broker(scenario):
        raise UsageError(
            f"{scenario.name} needs a real broker",
            hint="--broker-jars DIR starts one for it; --bootstrap-server HOST:PORT names a cluster",
        )
    return replace(target.load_target(), through_daemon=True)


def _ask_first(order: RunRequest, *, always: bool) -> None:
    scenario, _ = ready_scenario(order)
    topics, quotas = sum(not topic.is_there for topic in scenario.topics), len(scenario.quotas)
    changes = {
        f"makes {format_count(topics, 'topic')}": topics > 0,
        "floods brokers with changes of topics": scenario.mutates,
        f"sets {format_count(quotas, 'quota')}": quotas > 0 and not order.target.through_daemon,
    }
    made = [change for change, is_made in changes.items() if is_made]
    if made:
        confirm(f"{scenario.name} {' and '.join(made)} on {order.target.bootstrap}; all of it is put back at the end")
    elif always:
        confirm(f"{scenario.name} changes nothing on {order.target.bootstrap}, and puts its load on it")


def note_step(step: str) -> None:
    """Report a step of a run on standard error."""
    write(f"note: {step}", sys.stderr)


def with_window(
    order: RunRequest, windows: LoadWindowOptions, output: ResultOutput, *, yes: bool, asks_always: bool = False
) -> RunRequest:
    """Return the order with the quota window given or in force at the brokers, or its scenario's own.

    Brokers may be asked for it, so everything that can be refused without them comes before, and the question whether
    a cluster may change, unless `yes` agrees already. With `asks_always` it is asked about any load.
    """
    output.check()
    if order.target.is_theirs and not yes:
        _ask_first(order, always=asks_always)
    found = windows.given(order.target)
    if found is None:
        return order
    only_mutates = all(entity.does is loadtest.Workload.MUTATE for entity in order.scenario.entities)
    return replace(order, target=replace(order.target, window=found.controller if only_mutates else found.client))
