"""`kafka-quotas load-test run`: a scenario from its file or by its name."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.load_test import options, target_options
from kafka_quotas.cli.load_test.result_output import ResultOutput
from kafka_quotas.cli.load_test.scenario_view import keep_scenario
from kafka_quotas.cli.load_test.views.live import live_watcher
from kafka_quotas.cli.options.stores import CommandConfig, OutputForm
from kafka_quotas.cli.options.windows import QuotaWindowNum, QuotaWindowSize, WindowFile, chosen_windows
from kafka_quotas.cli.output.render import is_terminal, write
from kafka_quotas.cli.output.view import Output
from kafka_quotas.commands.load_test.order import RunRequest, ready_scenario
from kafka_quotas.commands.load_test.run import RunObserver, run_scenario
from kafka_quotas.commands.load_test.scenarios import needs_broker
from kafka_quotas.commands.load_test.target import LoadTarget
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.judge.expectation import parse_expectation
from kafka_quotas.loadtest.run.journal import default_journal_folder
from kafka_quotas.loadtest.scenario.file import read_scenario, shipped_names
from kafka_quotas.loadtest.scenario.model import Scenario
from kafka_quotas.system_clock import SystemClock

_INTERRUPTED = 130


def complete_scenarios(incomplete: str) -> list[str]:
    """Return the names of shipped scenarios that begin so."""
    return [name for name in shipped_names() if name.startswith(incomplete)]


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
    typer.Option(
        "--scale",
        metavar="FACTOR",
        help="Multiply what the scenario says can be multiplied. Default: all of it on a cluster that is there, else "
        "what suits a laptop and fits this machine's limits.",
        rich_help_panel=options.LOAD_PANEL,
    ),
]
Expect = Annotated[
    list[str] | None,
    typer.Option(
        "--expect",
        metavar="THRESHOLD",
        help="A threshold of your own that has to be met: 'achieved/quota in 0.9..1.05', "
        "'entity(app).response.p99 < 50ms'; may be repeated.",
        rich_help_panel=options.RESULT_PANEL,
    ),
]
ControlFactor = Annotated[
    float | None,
    typer.Option(
        "--control-factor",
        metavar="N",
        min=1.0,
        help="How many times its p99 alone a control client's p99 may be beside the others. Default: what the scenario "
        "says, else 3.",
        rich_help_panel=options.RESULT_PANEL,
    ),
]


def run(
    scenario: ScenarioName,
    *,
    bootstrap_server: options.Target = None,
    embedded: options.Embedded = False,
    broker_jars: target_options.BrokerJars = None,
    through_daemon: target_options.ThroughDaemon = False,
    store: target_options.QuotaPlace = None,
    command_config: CommandConfig = None,
    properties: options.Property = None,
    config: options.PropertyFile = None,
    passwords: options.Passwords = None,
    yes: target_options.Yes = False,
    journal_dir: target_options.JournalFolder = None,
    scale: Scale = None,
    brokers: options.Brokers = None,
    expect: Expect = None,
    control_factor: ControlFactor = None,
    prometheus: options.Prometheus = None,
    quota_window_num: QuotaWindowNum = None,
    quota_window_size_seconds: QuotaWindowSize = None,
    window_file: WindowFile = None,
    broker_windows: options.BrokerWindows = False,
    output: OutputForm = Output.TABLE,
    plot: options.Plot = None,
    out: options.Out = None,
) -> int:
    """Run a scenario: set its quotas, make its topics, put its load on, judge, and put everything back.

    Without a target it runs on the embedded cluster with our daemon in front, where that can do what it needs. Ctrl-C
    and SIGTERM end it, and quotas are put back all the same; after kill -9 'load-test restore' does.
    """
    given = target_options.TargetOptions(
        bootstrap_server=bootstrap_server,
        embedded=embedded,
        broker_jars=broker_jars,
        through_daemon=through_daemon,
        store=store,
        command_config=command_config,
        properties=properties,
        property_file=config,
        passwords=passwords,
    )
    found = read_scenario(scenario)
    window = _window(
        quota_window_num,
        quota_window_size_seconds,
        window_file,
        bootstrap_server if broker_windows else None,
        command_config,
    )
    order = RunRequest(
        scenario=found,
        target=chosen_target(given, found, window=window, enforcers=brokers),
        journal_folder=journal_dir or default_journal_folder(),
        scale=scale,
        expectations=tuple(parse_expectation(text) for text in expect or []),
        control_factor=control_factor,
        prometheus=tuple(prometheus or ()),
    )
    keeping = ResultOutput(output=output, plots=plot or (), folder=out)
    keeping.check()
    ask_first(order, yes=yes)
    return carried_out(order, keeping, step=tell)


def carried_out(order: RunRequest, keeping: ResultOutput, *, step: Callable[[str], None]) -> int:
    """Run a scenario with a live view, print and keep its result, and return the exit code.

    `step` receives a line for each step.
    """
    with live_watcher(f"load-test {order.scenario.name}") as watcher:
        result = run_scenario(order, clock=SystemClock(), audience=RunObserver(warn=tell, step=step, watcher=watcher))
    keep_scenario(result, keeping)
    if result.interrupted:
        return _INTERRUPTED
    return 0 if result.ok else 1


def chosen_target(
    given: target_options.TargetOptions, scenario: Scenario, *, window: QuotaWindow | None, enforcers: int | None
) -> LoadTarget:
    """Return the named target, or the embedded cluster with the daemon where that is enough.

    Raises:
        UsageError: No target was named and the scenario needs a real broker.
    """
    if given.named():
        return given.target(window=window, enforcers=enforcers, through_daemon=given.through_daemon)
    if needs_broker(scenario):
        raise UsageError(
            f"{scenario.name} needs a real broker",
            hint="--broker-jars DIR starts one for it; --bootstrap-server HOST:PORT names a cluster",
        )
    return given.target(window=window, enforcers=enforcers, through_daemon=True)


def ask_first(order: RunRequest, *, yes: bool) -> None:
    """Ask before a scenario changes a user's cluster.

    Raises:
        UsageError: Nobody can be asked, because standard input is no terminal.
        typer.Abort: The user does not confirm the change.
    """
    if yes or not order.target.is_theirs:
        return
    scenario, _ = ready_scenario(order)
    flood = ", floods it with changes of topics" if scenario.mutates else ""
    changes = f" and sets {len(scenario.quotas)} quotas" if scenario.quotas and not order.target.through_daemon else ""
    question = (
        f"{scenario.name} makes {len(scenario.topics)} topics on {order.target.bootstrap}{flood}{changes}; "
        "all of it is put back at the end. Go on?"
    )
    if not is_terminal(sys.stdin):
        raise UsageError(question.removesuffix(" Go on?"), hint="--yes agrees to that")
    typer.confirm(question, abort=True, err=True)


def tell(step: str) -> None:
    """Report a step of a run on standard error."""
    write(f"note: {step}", sys.stderr)


def _window(
    num: int | None, size_s: int | None, file: Path | None, bootstrap: str | None, command_config: Path | None
) -> QuotaWindow | None:
    """Return the quota window that was given or that the brokers report.

    Returns:
        None leaves the scenario its own window.
    """
    if num is None and size_s is None and file is None and bootstrap is None:
        return None
    return chosen_windows(
        quota_window_num=num,
        quota_window_size_seconds=size_s,
        window_file=file,
        bootstrap_server=bootstrap,
        command_config=command_config if bootstrap else None,
    ).client
