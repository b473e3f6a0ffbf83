"""`kafka-quotas throttle simulate`: replay events through one of Kafka's algorithms."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.charts.plot import check_plot_targets, save_plot
from kafka_quotas.cli.charts.text_chart import Series, Style, print_chart
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import flag, option, option_group
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.options.windows import BrokerWindowOptions
from kafka_quotas.cli.output.listing import NO_TABLE, Listing, Output, json_text
from kafka_quotas.cli.output.render import cell_text, envelope, yaml_text
from kafka_quotas.commands.throttle.rate import BYTES_FORM, PERCENT_FORM
from kafka_quotas.commands.throttle.simulate import (
    Course,
    DecisionRow,
    EventFormat,
    Simulation,
    SimulationSummary,
    decision_row,
    read_events,
)
from kafka_quotas.commands.throttle.simulate import simulate as run_simulation
from kafka_quotas.core.described import document_of
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.setting import TextForm, setting
from kafka_quotas.core.model.value_format import BYTES, MS, PERCENT, format_amount
from kafka_quotas.core.quotas.simulation import (
    MUTATION_ALGORITHMS,
    Algorithm,
    SimulatedDecision,
    operations,
)

_WIDTHS = (13, 10, 7, 3, 9, 11, 11, 8)
"""Together, with a blank between, 79 columns; a longer cell moves the rest of its row."""


def _bound(text: str) -> tuple[float, str]:
    """Return a quota per second, and the unit of amounts, from a text as `5MB/s`, `0.1%` or `5`."""
    text = text.strip()
    if text.endswith("%"):
        return PERCENT_FORM.read(text), PERCENT
    return BYTES_FORM.read(text), BYTES if "b" in text.lower() else ""


@option_group("Simulation")
class _SimulateOptions:
    quota: tuple[float, str] = setting(
        "simulation",
        "--quota RATE",
        "The bound per second: 5MB/s, 0.1%, 5, as amounts count.",
        TextForm(read=_bound, pattern=""),
    )
    algorithm: Algorithm = option(
        "--algorithm",
        default=Algorithm.RATE,
        help="rate, bounded (cut at one sample), count-rate, simple-rate, token-bucket, rate-spread-even "
        "or rate-spread-fill.",
    )
    closed_loop: bool = flag(
        "--closed-loop", help="One client that waits out every delay and repeats what was refused."
    )
    form: EventFormat | None = option("--format", help="jsonl or csv. Default: by the name, else by the content.")


@option_group(OUTPUT_HEADING)
class _ChartOptions:
    """The options about how a course over time is drawn."""

    chart: bool = flag("--chart", help="Draw the course over time below the tables, or beside data.")
    plot: list[Path] | None = option("--plot FILE", help="Draw it into a .png or .svg file; may be repeated.")

    @property
    def asked(self) -> bool:
        """Whether anything is to be drawn."""
        return self.chart or bool(self.plot)

    def show(self, series: Sequence[Series], output: Output, *, title: str) -> None:
        """Draw the series as characters, if asked for, and into every file."""
        if self.chart:
            stream = sys.stdout if output in (Output.TABLE, Output.MARKDOWN) else sys.stderr
            fenced = output is Output.MARKDOWN
            stream.write("\n```\n" if fenced else "\n")
            print_chart(series, stream, title=title)
            stream.write("```\n" if fenced else "")
        for plot in self.plot or ():
            save_plot(series, plot, title=title)
            sys.stderr.write(f"drawn: {plot}\n")


def simulate(
    *,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Events as JSON lines or CSV with t_ms (whole milliseconds), amount, and optionally op (record, "
            "record_nocheck, unrecord, strict, check; else record for rates and strict for the others); - is standard "
            "input.",
        ),
    ],
    asked: _SimulateOptions,
    charts: _ChartOptions,
    windows: BrokerWindowOptions,
    output: OutputForm = Output.TABLE,
) -> None:
    """Replay a file of events through an algorithm and print each decision.

    The token bucket and the spreads use the controller.* window, the other algorithms the quota window. Decisions
    are printed as they are made; a bad line ends the replay and is reported, and JSON and YAML then end without a
    summary.
    """
    check_plot_targets(charts.plot or ())
    (quota, amount_unit), algorithm = asked.quota, asked.algorithm
    window, origin = _window(algorithm, windows)
    replay = Simulation(
        algorithm=algorithm,
        quota=quota,
        window=window,
        closed_loop=asked.closed_loop,
        amount_unit=amount_unit,
        origin=origin,
    )
    events = read_events(file, form=asked.form, allowed=operations(algorithm))
    tally = SimulationSummary(least_ms=window.window_ms)
    course = Course() if charts.asked else None
    decisions = _counted(run_simulation(replay, events), tally, course)
    first = list(islice(decisions, 1))  # a bad file prints nothing
    _print_decisions(replay, chain(first, decisions), tally, output)
    if course is not None:
        charts.show(_series(replay, course.points()), output, title=_title(replay))


def _window(algorithm: Algorithm, windows: BrokerWindowOptions) -> tuple[QuotaWindow, str]:
    settings = windows.in_force()
    by_controller = algorithm in MUTATION_ALGORITHMS and algorithm is not Algorithm.RATE
    ours = (windows.quota_window_num, windows.quota_window_size_seconds)
    others = (windows.controller_quota_window_num, windows.controller_quota_window_size_seconds)
    if any(figure is not None for figure in (ours if by_controller else others)):
        taken = "--controller-quota-window-" if by_controller else "--quota-window-"
        raise UsageError(
            f"{algorithm} does not go by the window that was given", hint=f"it takes {taken}num and {taken}size-seconds"
        )
    if by_controller:
        return settings.controller, settings.controller_origin
    return settings.client, settings.client_origin


def _counted(
    decisions: Iterator[SimulatedDecision], tally: SimulationSummary, course: Course | None
) -> Iterator[SimulatedDecision]:
    for decision in decisions:
        tally.add(decision)
        if course is not None:
            course.add(decision)
        yield decision


def _print_decisions(
    replay: Simulation, decisions: Iterator[SimulatedDecision], tally: SimulationSummary, output: Output
) -> None:
    """Print the decisions as they come, then the totals.

    CSV has no totals, and a document is whole, without them, even if a bad line ends the replay.
    """
    match output:
        case Output.CSV:
            rows = csv.writer(sys.stdout, lineterminator="\n")
            rows.writerow(DecisionRow._fields)
            rows.writerows(map(cell_text, decision_row(each)) for each in decisions)
        case Output.JSON | Output.YAML:
            _print_document(replay, decisions, tally, as_json=output is Output.JSON)
        case Output.TABLE | Output.MARKDOWN:
            _print_text(replay, decisions, markdown=output is Output.MARKDOWN)
            total, longest = format_amount(tally.total_delay_ms, MS), format_amount(tally.longest_delay_ms, MS)
            sys.stdout.write(
                f"\n{tally.decisions} decisions: {tally.admitted} admitted, {tally.refused} refused, "
                f"{tally.delayed} of all with a delay\n"
                f"delays {total} in total, {longest} at most; "
                f"mean rate {_rate_text(tally.mean_rate, replay.unit)}, the last delay included\n"
            )


def _print_document(
    replay: Simulation, decisions: Iterator[SimulatedDecision], tally: SimulationSummary, *, as_json: bool
) -> None:
    out, summary = sys.stdout, None
    listing = Listing(noun="throttle-simulate", data=document_of(replay), table=NO_TABLE)
    head = {name: value for name, value in envelope(listing).items() if name not in ("decisions", "summary")}
    out.write(
        json_text(head).removesuffix("\n}") + ',\n  "decisions": [' if as_json else yaml_text(head) + "decisions:"
    )
    separator, between = ("\n    ", ",\n    ") if as_json else ("\n- ", "\n- ")
    try:
        for each in decisions:
            cells = [
                f'"{name}": {json.dumps(value) if isinstance(value, str | None) else cell_text(value)}'
                for name, value in decision_row(each)._asdict().items()
            ]
            out.write(f"{separator}{{{', '.join(cells)}}}")
            separator = between
        summary = document_of(tally)
    finally:
        end = {"summary": summary}
        out.write("\n  ]," + json_text(end).removeprefix("{") + "\n" if as_json else "\n" + yaml_text(end))


def _print_text(replay: Simulation, decisions: Iterator[SimulatedDecision], *, markdown: bool) -> None:
    level = "tokens" if replay.counts_tokens else "rate"
    unit = "" if replay.amount_unit == PERCENT else replay.amount_unit
    level_unit = unit if replay.counts_tokens else replay.unit if replay.amount_unit else ""

    def write(cells: tuple[str, ...]) -> None:
        if markdown:
            line = f"| {' | '.join(cells)} |"
        else:
            line = " ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
        sys.stdout.write(f"{line}\n")

    sys.stdout.write(f"{_title(replay)}\n\n")
    write(("time ms", "amount", "op", "try", "verdict", level, "after", "delay"))
    if markdown:
        sys.stdout.write(f"|{'---|' * len(_WIDTHS)}\n")
    else:
        write(tuple("-" * width for width in _WIDTHS))
    for each in decisions:
        outcome = each.outcome
        write(
            (
                str(each.t_ms),
                format_amount(each.amount, unit).strip(),
                each.operation.value,
                str(each.attempt),
                decision_row(each).verdict,
                format_amount(outcome.level, level_unit).strip(),
                format_amount(outcome.after, level_unit).strip(),
                format_amount(outcome.throttle_ms, MS) if outcome.throttle_ms else "-",
            )
        )


def _title(replay: Simulation) -> str:
    window, loop = replay.window, "closed loop" if replay.closed_loop else "open loop"
    return (
        f"{replay.algorithm}, quota {_rate_text(replay.quota, replay.unit)}, "
        f"window {window.samples} x {window.window_s} s ({replay.origin}), {loop}"
    )


def _series(replay: Simulation, points: list[SimulatedDecision]) -> list[Series]:
    times = [(point.t_ms - points[0].t_ms) / 1000 for point in points]
    levels = [(time, point.outcome.after) for time, point in zip(times, points, strict=True)]
    delays = [(time, point.outcome.throttle_ms / 1000) for time, point in zip(times, points, strict=True)]
    name, unit, style = "rate", replay.unit, Style.AREA
    limit, bound = replay.quota, f"bound {_rate_text(replay.quota, replay.unit)}"
    if replay.counts_tokens:
        name, unit, style, limit, bound = (
            "tokens",
            replay.amount_unit or "tokens",
            Style.LINE,
            0.0,
            "admitted from 0 on",
        )
    return [
        Series(name=name, points=levels, unit=unit, style=style),
        Series(name=bound, points=[(time, limit) for time in (*times[:1], *times[-1:])], unit=unit, style=Style.LIMIT),
        Series(name="delay", points=[each for each in delays if each[1] > 0], unit="s", style=Style.BARS),
    ]


def _rate_text(value: float, unit: str) -> str:
    return format_amount(value, unit).replace(" /s", "/s")
