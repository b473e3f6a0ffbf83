"""`kafka-quotas throttle simulate`: replay events through one of Kafka's algorithms."""

import csv
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, TextIO

import typer

from kafka_quotas.cli.charts.plot import check_plot_targets, show_chart
from kafka_quotas.cli.charts.text_chart import Series, Style
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option, option_group, required
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.options.windows import (
    BrokerWindowOptions,
    GenericQuota,
    client_window,
    controller_window,
    generic_quota,
)
from kafka_quotas.cli.output.json_text import Json, json_text
from kafka_quotas.cli.output.render import (
    SCHEMA_PREFIX,
    Listing,
    Output,
    Table,
    cell_text,
    columns,
    print_listing,
    yaml_text,
)
from kafka_quotas.cli.throttle.answer import window_data
from kafka_quotas.commands.throttle.rate import without_noise
from kafka_quotas.commands.throttle.simulate import (
    Course,
    CoursePoint,
    EventFormat,
    Simulation,
    SimulationSummary,
    Tally,
    read_events,
)
from kafka_quotas.commands.throttle.simulate import simulate as run_simulation
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.value_format import MS, PERCENT, format_amount
from kafka_quotas.core.quotas.simulation import (
    MUTATION_ALGORITHMS,
    Algorithm,
    EventOperation,
    SimulatedDecision,
    operations,
    usual_operation,
)

FIELDS = ("t_ms", "due_ms", "amount", "op", "attempt", "verdict", "level", "after", "window_ms", "throttle_ms")
_WIDTHS = (13, 10, 7, 3, 9, 11, 11, 8)
"""Together, with a blank between, 79 columns; a longer cell moves the rest of its row."""
NOUN = "throttle-simulate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The units of a replay's amounts and of its algorithm's levels.

    Both are empty for plain figures.
    """

    amount: str
    level: str


class DecisionWriter(ABC):
    """Writes a replay in one form."""

    @abstractmethod
    def decision(self, decision: SimulatedDecision) -> None:
        """Write the decision."""

    def end(self, summary: Mapping[str, Json], sentence: str) -> None:  # noqa: B027 - CSV has no totals
        """Write the totals, as data or as a sentence."""

    def break_off(self) -> None:  # noqa: B027 - lines alone are whole at any time
        """Complete what is written after a replay that ended early, in the writer's form."""


def decision_writer(
    output: Output, head: Mapping[str, Json], *, title: str, level: str, units: Units
) -> DecisionWriter:
    """Return the writer of a form, after it has written what precedes the decisions.

    `head` and `title` say what was replayed, to programs and to people. `level` is what the algorithm measures: rate or
    tokens.
    """
    match output:
        case Output.CSV:
            return _CsvWriter(sys.stdout)
        case Output.JSON | Output.YAML:
            return _DocumentWriter(sys.stdout, head, as_json=output is Output.JSON)
        case Output.TABLE | Output.MARKDOWN:
            return _TextWriter(sys.stdout, title, level, units, markdown=output is Output.MARKDOWN)


def verdict(decision: SimulatedDecision) -> str:
    """Return the outcome of an event: admitted, admitted and delayed, or refused."""
    if not decision.outcome.admitted:
        return "refused"
    return "delayed" if decision.outcome.throttle_ms > 0 else "admitted"


def decision_values(decision: SimulatedDecision) -> tuple[str | int | float | None, ...]:
    """Return the values of `FIELDS`."""
    outcome = decision.outcome
    return (
        decision.t_ms,
        decision.due_ms,
        decision.amount,
        decision.operation.value,
        decision.attempt,
        verdict(decision),
        without_noise(outcome.level),
        without_noise(outcome.after),
        outcome.window_ms,
        outcome.throttle_ms,
    )


class _CsvWriter(DecisionWriter):
    """Writes CSV without the totals."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = csv.writer(stream, lineterminator="\n")
        self._writer.writerow(FIELDS)

    def decision(self, decision: SimulatedDecision) -> None:
        self._writer.writerow([cell_text(value) for value in decision_values(decision)])


class _DocumentWriter(DecisionWriter):
    """Writes JSON or YAML: the head, the decisions, the totals."""

    def __init__(self, stream: TextIO, head: Mapping[str, Json], *, as_json: bool) -> None:
        self._stream, self._as_json, self._separator = stream, as_json, "\n"
        document: dict[str, Json] = {"schema": f"{SCHEMA_PREFIX}.{NOUN}/1", **head}
        if as_json:
            stream.write(json_text(document).removesuffix("\n}") + ',\n  "decisions": [')
        else:
            stream.write(yaml_text(document) + "decisions:")

    def decision(self, decision: SimulatedDecision) -> None:
        pairs = zip(FIELDS, decision_values(decision), strict=True)
        row = "{" + ", ".join(f'"{name}": {_scalar(value)}' for name, value in pairs) + "}"
        self._stream.write(f"{self._separator}    {row}" if self._as_json else f"\n- {row}")
        self._separator = ",\n"

    def end(self, summary: Mapping[str, Json], sentence: str) -> None:  # noqa: ARG002 - one signature for every form
        self._close(summary)

    def break_off(self) -> None:
        self._close(None)

    def _close(self, summary: Mapping[str, Json] | None) -> None:
        totals = json_text({"summary": summary}).removeprefix("{")
        self._stream.write("\n  ]," + totals + "\n" if self._as_json else "\n" + yaml_text({"summary": summary}))


def _scalar(value: str | float | None) -> str:
    return json.dumps(value) if isinstance(value, str | None) else cell_text(value)


class _TextWriter(DecisionWriter):
    """A table of fixed widths, or of Markdown, and a sentence at the end."""

    def __init__(self, stream: TextIO, title: str, level: str, units: Units, *, markdown: bool) -> None:
        self._stream, self._markdown = stream, markdown
        self._amount_unit, self._level_unit = units.amount, units.level
        stream.write(f"{title}\n\n")
        self._row(("time ms", "amount", "op", "try", "verdict", level, "after", "delay"))
        if markdown:
            self._stream.write("|" + "---|" * len(_WIDTHS) + "\n")
        else:
            self._row(tuple("-" * width for width in _WIDTHS))

    def decision(self, decision: SimulatedDecision) -> None:
        outcome = decision.outcome
        self._row(
            (
                str(decision.t_ms),
                self._figure(decision.amount, self._amount_unit),
                decision.operation.value,
                str(decision.attempt),
                verdict(decision),
                self._figure(outcome.level, self._level_unit),
                self._figure(outcome.after, self._level_unit),
                format_amount(outcome.throttle_ms, MS) if outcome.throttle_ms else "-",
            )
        )

    def end(self, summary: Mapping[str, Json], sentence: str) -> None:  # noqa: ARG002 - one signature for every form
        self._stream.write(f"\n{sentence}\n")

    def _figure(self, value: float, unit: str) -> str:
        return format_amount(value, unit).strip()

    def _row(self, cells: tuple[str, ...]) -> None:
        if self._markdown:
            self._stream.write("| " + " | ".join(cells) + " |\n")
            return
        line = " ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
        self._stream.write(line.rstrip() + "\n")


@option_group("Simulation")
class SimulateOptions:
    """The options of `throttle simulate` about the algorithm, the events and what is shown."""

    quota: str = required("--quota RATE", help="The bound per second: 5MB/s, 0.1%, 5, as amounts count.")
    algorithm: Algorithm = option(
        "--algorithm",
        default=Algorithm.RATE,
        help="rate, bounded (cut at one sample), count-rate, simple-rate, token-bucket, rate-spread-even "
        "or rate-spread-fill.",
    )
    op: EventOperation | None = option(
        "--op", help="Operation of events that name none. Default: record for rates, strict for the others."
    )
    closed_loop: bool = option(
        "--closed-loop", default=False, help="One client that waits out every delay and repeats what was refused."
    )
    form: EventFormat | None = option("--format", help="jsonl or csv. Default: by the name, else by the content.")
    summary: bool = option("--summary", default=False, help="Only the totals, not each decision.")
    chart: bool = option(
        "--chart", rich_help_panel=OUTPUT_HEADING, default=False, help="Draw rate, bound and delay over time."
    )
    plot: list[Path] | None = option(
        "--plot FILE", rich_help_panel=OUTPUT_HEADING, help="Draw the same into a .png or .svg file; may be repeated."
    )


def simulate(
    *,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Events as JSON lines or CSV with t_ms (whole milliseconds), amount, and optionally op (record, "
            "record_nocheck, unrecord, strict, check); - is standard input.",
        ),
    ],
    asked: SimulateOptions,
    windows: BrokerWindowOptions,
    output: OutputForm = Output.TABLE,
) -> None:
    """Replay a file of events through an algorithm and print each decision.

    The token bucket and the spreads use the controller.* window, the other algorithms the quota window. Decisions
    are printed as they are made; a bad line ends the replay and is reported, and JSON and YAML then end without a
    summary.
    """
    check_plot_targets(asked.plot or ())
    bound, algorithm, op = generic_quota("--quota", asked.quota), asked.algorithm, asked.op
    window, origin = _window(algorithm, windows)
    if op is not None and op not in operations(algorithm):
        raise UsageError(f"{algorithm} does not take {op}", hint=f"it takes {' and '.join(operations(algorithm))}")
    simulation = Simulation(
        algorithm=algorithm, quota=bound.per_second, window=window, operation=op, closed_loop=asked.closed_loop
    )
    view = _View(simulation, bound, origin, output)
    course = _run(simulation, view, file, asked)
    if course is not None:
        show_chart(view.series(course.points()), output, title=view.title, chart=asked.chart, plots=asked.plot or ())


def _window(algorithm: Algorithm, windows: BrokerWindowOptions) -> tuple[QuotaWindow, str]:
    """Return the window that the algorithm goes by, and where it came from.

    Raises:
        UsageError: An option sets a figure of the other window, or as `in_force` does.
    """
    settings = windows.in_force()
    by_controller = algorithm in MUTATION_ALGORITHMS and algorithm is not Algorithm.RATE
    ours = (windows.quota_window_num, windows.quota_window_size_seconds)
    others = (windows.controller_quota_window_num, windows.controller_quota_window_size_seconds)
    if any(figure is not None for figure in (ours if by_controller else others)):
        taken = "--controller-quota-window-" if by_controller else "--quota-window-"
        raise UsageError(
            f"{algorithm} does not go by the window that was given", hint=f"it takes {taken}num and {taken}size-seconds"
        )
    return controller_window(settings) if by_controller else client_window(settings)


def _run(simulation: Simulation, view: "_View", file: str, asked: SimulateOptions) -> Course | None:
    """Run the replay and print decisions and totals as they come.

    Returns:
        The course of the replay, None where no chart is asked for.
    """
    events = read_events(file, form=asked.form, allowed=operations(simulation.algorithm))
    tally, course = Tally(simulation.window), Course() if asked.chart or asked.plot else None
    writer: DecisionWriter | None = None
    whole = False
    try:
        for decision in run_simulation(simulation, events):
            if not asked.summary:
                writer = writer or view.writer()  # not before the first event was read: a bad file prints nothing
                writer.decision(decision)
            tally.add(decision)
            if course is not None:
                course.add(decision)
        whole = True
    finally:
        if writer is not None and not whole:
            writer.break_off()
    totals = tally.summary()
    if writer is None:
        view.print_summary(totals)
    else:
        writer.end(_summary_data(totals), view.sentence(totals))
    return course


class _View:
    """How one replay is named and drawn."""

    def __init__(self, simulation: Simulation, bound: GenericQuota, window_origin: str, output: Output) -> None:
        self._simulation, self._bound, self._origin, self._output = simulation, bound, window_origin, output
        # an amount of thread time is % times seconds, which has no sign of its own, and per second it is %
        self._per_second = PERCENT if bound.unit == PERCENT else f"{bound.unit}/s"
        window, loop = simulation.window, "closed loop" if simulation.closed_loop else "open loop"
        self.title = (
            f"{simulation.algorithm}, quota {self._rate(bound.per_second)}, "
            f"window {window.samples} x {window.window_s} s ({window_origin}), {loop}"
        )
        self._level = "tokens" if simulation.algorithm is Algorithm.TOKEN_BUCKET else "rate"

    def writer(self) -> DecisionWriter:
        """Return the writer of the decisions, after it has written the head."""
        amount = "" if self._bound.unit == PERCENT else self._bound.unit
        level = amount if self._level == "tokens" else self._per_second if self._bound.unit else ""
        units = Units(amount=amount, level=level)
        return decision_writer(self._output, self._head(), title=self.title, level=self._level, units=units)

    def print_summary(self, summary: SimulationSummary) -> None:
        """Print the totals alone."""
        totals = _summary_data(summary)
        rows = [[name, value if isinstance(value, int | float) else str(value)] for name, value in totals.items()]
        table = Table(columns=columns("figure, value>"), rows=rows)
        data: dict[str, Json] = {**self._head(), "decisions": None, "summary": totals}
        print_listing(Listing(noun=NOUN, data=data, table=table, rows=("summary",)), self._output)

    def sentence(self, summary: SimulationSummary) -> str:
        """Return the totals in words."""
        total, longest = format_amount(summary.total_delay_ms, MS), format_amount(summary.longest_delay_ms, MS)
        return (
            f"{summary.decisions} decisions: {summary.admitted} admitted, {summary.refused} refused, "
            f"{summary.delayed} of all with a delay\n"
            f"delays {total} in total, {longest} at most; "
            f"mean rate {self._rate(summary.mean_rate)}, the last delay included"
        )

    def series(self, points: tuple[CoursePoint, ...]) -> list[Series]:
        """Return the course as level, bound and delay, in seconds from its first point."""
        start_ms = points[0].t_ms if points else 0
        times = [(point.t_ms - start_ms) / 1000 for point in points]
        ends = [times[0], times[-1]] if times else []
        tokens = self._level == "tokens"
        unit = (self._bound.unit or "tokens") if tokens else self._per_second
        levels = [(time, point.level) for time, point in zip(times, points, strict=True)]
        delays = [(time, point.delay_ms / 1000) for time, point in zip(times, points, strict=True) if point.delay_ms]
        limit = 0.0 if tokens else self._bound.per_second
        name = "admitted from 0 on" if tokens else f"bound {self._rate(limit)}"
        return [
            Series(name=self._level, points=levels, unit=unit, style=Style.LINE if tokens else Style.AREA),
            Series(name=name, points=[(time, limit) for time in ends], unit=unit, style=Style.LIMIT),
            Series(name="delay", points=delays, unit="s", style=Style.BARS),
        ]

    def _rate(self, value: float) -> str:
        return format_amount(value, self._per_second).replace(" /s", "/s")

    def _head(self) -> Mapping[str, Json]:
        simulation = self._simulation
        return {
            "algorithm": simulation.algorithm.value,
            "quota": self._bound.per_second,
            "unit": self._per_second,
            "window": window_data(simulation.window, self._origin),
            "operation": (simulation.operation or usual_operation(simulation.algorithm)).value,
            "closed_loop": simulation.closed_loop,
        }


def _summary_data(summary: SimulationSummary) -> dict[str, Json]:
    return {
        name: without_noise(value) if isinstance(value, float) else value for name, value in asdict(summary).items()
    }
