"""`kafka-quotas throttle simulate`: a file of events, decision by decision."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.charts.plot import check_plot_targets, show_chart
from kafka_quotas.cli.charts.text_chart import Series, Style
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option, option_group, required
from kafka_quotas.cli.options.figures import GenericQuota, client_window, controller_window, generic_quota
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.options.windows import BrokerWindowOptions
from kafka_quotas.cli.output.json_text import Json
from kafka_quotas.cli.output.render import Listing, Output, Table, columns, print_listing
from kafka_quotas.cli.throttle.answer import window_data
from kafka_quotas.cli.throttle.decision_writer import NOUN, DecisionWriter, Units, decision_writer
from kafka_quotas.commands.throttle.arithmetic import without_noise
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
    operations,
    usual_operation,
)


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
