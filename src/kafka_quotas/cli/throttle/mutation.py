"""`kafka-quotas throttle mutation` and `compare`: a burst of controller mutations, in one algorithm or in all four."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.charts.plot import check_plot_targets, show_chart
from kafka_quotas.cli.charts.text_chart import Series, Style
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option, option_group, required
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.options.windows import (
    ONLY_CONTROLLER,
    BrokerWindowOptions,
    FigureUnit,
    burst_figure,
    controller_window,
    duration_figure,
    mutation_figure,
)
from kafka_quotas.cli.output.json_text import Json
from kafka_quotas.cli.output.listing import Output
from kafka_quotas.cli.output.render import Cell, Listing, Table, columns, print_listing, write
from kafka_quotas.cli.throttle.answer import print_answer, print_tables, window_data
from kafka_quotas.commands.throttle.mutation import (
    PARTITIONS,
    PARTITIONS_PER_SECOND,
    RULES,
    SOURCES,
    AlgorithmComparison,
    Burst,
    ComparedOutcome,
    OtherDelays,
    StateRow,
    delay_formula,
    states_at,
    throttle_compare,
    throttle_mutation,
    window_of_credit,
)
from kafka_quotas.commands.throttle.rate import (
    without_noise,
)
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.value_format import MS, format_amount
from kafka_quotas.core.quotas.simulation import MUTATION_ALGORITHMS, Algorithm

KIP_599_WINDOW = QuotaWindow(samples=100, window_s=1)
"""The window of KIP-599's example."""


class AlgorithmChoice(StrEnum):
    """The algorithms for controller mutations."""

    TOKEN_BUCKET = Algorithm.TOKEN_BUCKET.value
    RATE = Algorithm.RATE.value
    SPREAD_EVEN = Algorithm.SPREAD_EVEN.value
    SPREAD_FILL = Algorithm.SPREAD_FILL.value


@option_group("Burst")
class BurstOptions:
    """The options that describe a burst of controller mutations."""

    quota: str = required("--quota RATE", help="controller_mutation_rate: partitions per --unit.")
    burst: str = required("--burst N", help="Partitions in one burst: 560, or 7x80 for 7 topics of 80 partitions.")
    unit: FigureUnit = option(
        "--unit", default=FigureUnit.SECOND, help="The time unit of --quota: second, minute, hour or day."
    )
    max_burst: str | None = option(
        "--max-burst N",
        help="The most partitions a full bucket holds, in place of --controller-quota-window-num: "
        "samples = N / (quota x size). The drafts called it controller_mutations_burst.",
    )

    def within(self, window: QuotaWindow, origin: str, *, num: int | None) -> tuple[Burst, str]:
        """Return the burst in a window of this origin, and where its window came from in the end.

        The samples that an option names (`num`) leave nothing to `--max-burst`.
        """
        per_second = mutation_figure("--quota", self.quota, self.unit)
        partitions = burst_figure("--burst", self.burst)
        if self.max_burst is not None:
            if num is not None:
                raise UsageError(
                    "--max-burst and --controller-quota-window-num exclude each other", hint="give one of them"
                )
            credit = burst_figure("--max-burst", self.max_burst)
            window, origin = window_of_credit(credit, per_second, window.window_s), "--max-burst"
        return Burst(quota=per_second, partitions=partitions, window=window), origin


_EXAMPLE = BurstOptions(quota="5", burst="560")
"""The burst of KIP-599's example."""


def mutation(
    *,
    burst: BurstOptions,
    algorithm: Annotated[
        AlgorithmChoice,
        typer.Option("--algorithm", help="token-bucket (Kafka's), rate, rate-spread-even or rate-spread-fill."),
    ] = AlgorithmChoice.TOKEN_BUCKET,
    request_throttle: Annotated[
        str, typer.Option("--request-throttle", metavar="TIME", help="The request quota's delay of the same response.")
    ] = "0ms",
    waited: Annotated[
        str, typer.Option("--waited", metavar="TIME", help="How long the refused request had already waited.")
    ] = "0ms",
    windows: Annotated[BrokerWindowOptions, ONLY_CONTROLLER],
    output: OutputForm = Output.TABLE,
) -> None:
    """Compute the wait after a burst of partition changes, as strict and older clients see it.

    Example: --quota 5 --burst 560 --controller-quota-window-num 100.
    """
    others = OtherDelays(
        request_throttle_ms=round(duration_figure("--request-throttle", request_throttle)),
        waited_ms=round(duration_figure("--waited", waited)),
    )
    window, origin = controller_window(windows.in_force())
    asked, origin = burst.within(window, origin, num=windows.controller_quota_window_num)
    answer = throttle_mutation(asked, Algorithm(algorithm.value), others)
    print_answer("throttle-mutation", answer, output, window=asked.window, window_origin=origin)


def compare(
    *,
    burst: BurstOptions = _EXAMPLE,
    windows: Annotated[BrokerWindowOptions, ONLY_CONTROLLER],
    chart: Annotated[
        bool,
        typer.Option("--chart", rich_help_panel=OUTPUT_HEADING, help="Draw the states over time below the tables."),
    ] = False,
    plot: Annotated[
        list[Path] | None,
        typer.Option(
            "--plot",
            rich_help_panel=OUTPUT_HEADING,
            metavar="FILE",
            help="Draw the states into a .png or .svg file; may be repeated.",
        ),
    ] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """One burst of mutations in all four algorithms of KIP-599, side by side.

    Without any figure it is the document's example: quota 5/s, burst 560, 100 samples of 1 s.
    """
    settings = windows.in_force()
    window, origin = controller_window(settings)
    if burst == _EXAMPLE and settings.untouched:
        window, origin = KIP_599_WINDOW, "KIP-599's example"
    asked, origin = burst.within(window, origin, num=windows.controller_quota_window_num)
    show_comparison(asked, output, window_origin=origin, chart=chart, plots=plot or ())


_FINE = 400
"""The number of steps of time in a chart."""
_LEGEND = (
    "state: just after the burst; admitted: the first instant at which another request is;\n"
    "if waited out: when it is, for a client that waits out each delay before it tries again\n"
    "*: a request would be admitted at that time"
)


def show_comparison(burst: Burst, output: Output, *, window_origin: str, chart: bool, plots: Sequence[Path]) -> None:
    """Print the comparison of a burst, and draw its chart if asked for.

    Raises:
        UsageError: A plot can't be written, which is checked before any calculation.
        KafkaQuotasError: matplotlib is not installed, or a plot's file can't be written.
    """
    check_plot_targets(plots)
    comparison = throttle_compare(burst)
    print_comparison(comparison, output, window_origin=window_origin)
    if chart or plots:
        quota = format_amount(burst.quota, PARTITIONS_PER_SECOND)
        title = f"A burst of {format_amount(burst.partitions, PARTITIONS)} under {quota}"
        show_chart(fine_series(comparison), output, title=title, chart=chart, plots=plots)


def print_comparison(comparison: AlgorithmComparison, output: Output, *, window_origin: str) -> None:
    """Print the comparison in the given form."""
    burst = comparison.burst
    if output in (Output.TABLE, Output.MARKDOWN):
        window = f"window {burst.window.samples} x {burst.window.window_s} s ({window_origin})"
        quota = format_amount(burst.quota, PARTITIONS_PER_SECOND)
        write(f"quota {quota}, burst {format_amount(burst.partitions, PARTITIONS)}; {window}", sys.stdout)
        sys.stdout.write("\n")
        print_tables([_outcome_table(comparison), _state_table(comparison)], output)
        write(f"\n{_LEGEND}", sys.stdout)
        return
    outcomes = [_outcome_data(comparison, each) for each in comparison.outcomes]
    data: dict[str, Json] = {
        "quota": burst.quota,
        "burst": burst.partitions,
        "window": window_data(burst.window, window_origin),
        "algorithms": outcomes,
        "states": [_state_data(row) for row in comparison.states],
    }
    print_listing(Listing(noun="throttle-compare", data=data, table=_outcome_table(comparison)), output)


def fine_series(comparison: AlgorithmComparison) -> list[Series]:
    """Return the series of a chart, with enough points in time to show the steps of the rates."""
    end_ms = comparison.states[-1].after_ms
    times = sorted({end_ms * index // _FINE for index in range(_FINE + 1)})
    return comparison_series(replace(comparison, states=states_at(comparison.burst, tuple(times))))


def comparison_series(comparison: AlgorithmComparison) -> list[Series]:
    """Return the states as series, each with its bound.

    The tokens of the bucket have a panel below the rates of the other three.
    """
    times_s = [row.after_ms / 1000 for row in comparison.states]
    rates = [
        Series(name=algorithm, points=_levels(comparison, index, times_s), unit=PARTITIONS_PER_SECOND)
        for index, algorithm in enumerate(MUTATION_ALGORITHMS)
        if algorithm is not Algorithm.TOKEN_BUCKET
    ]
    bucket = MUTATION_ALGORITHMS.index(Algorithm.TOKEN_BUCKET)
    quota = comparison.burst.quota
    return [
        *rates,
        Series(
            name="quota",
            points=[(times_s[0], quota), (times_s[-1], quota)],
            unit=PARTITIONS_PER_SECOND,
            style=Style.LIMIT,
        ),
        Series(
            name=Algorithm.TOKEN_BUCKET, points=_levels(comparison, bucket, times_s), unit="tokens", style=Style.LINE
        ),
        Series(
            name="admitted from 0 on", points=[(times_s[0], 0.0), (times_s[-1], 0.0)], unit="tokens", style=Style.LIMIT
        ),
    ]


def _levels(comparison: AlgorithmComparison, index: int, times_s: list[float]) -> list[tuple[float, float]]:
    return [(time, row.levels[index]) for time, row in zip(times_s, comparison.states, strict=True)]


def _outcome_table(comparison: AlgorithmComparison) -> Table:
    return Table(
        columns=columns("algorithm, state, delay by formula, admitted>, if waited out>"),
        rows=[_outcome_row(comparison, each) for each in comparison.outcomes],
    )


def _outcome_row(comparison: AlgorithmComparison, compared: ComparedOutcome) -> list[Cell]:
    outcome = compared.outcome
    state = format_amount(outcome.level, "tokens" if outcome.unit == PARTITIONS else "/s").replace(" /s", "/s")
    return [
        outcome.algorithm,
        state,
        f"{delay_formula(comparison.burst, outcome)} = {format_amount(outcome.delay_ms, MS)}",
        format_amount(outcome.admitted_after_ms, MS),
        "never" if compared.retried_ms is None else format_amount(compared.retried_ms, MS),
    ]


def _state_table(comparison: AlgorithmComparison) -> Table:
    return Table(
        columns=columns(", ".join(f"{title}>" for title in ("time after", *MUTATION_ALGORITHMS))),
        rows=[
            [format_amount(row.after_ms, MS), *(_state(*pair) for pair in zip(row.levels, row.admits, strict=True))]
            for row in comparison.states
        ],
    )


def _state(level: float, admits: bool) -> str:
    """Format a level, with a mark if it admits a request."""
    return f"{format_amount(level, '').strip()} {'*' if admits else ' '}"


def _outcome_data(comparison: AlgorithmComparison, compared: ComparedOutcome) -> dict[str, Cell]:
    outcome = compared.outcome
    return {
        "algorithm": outcome.algorithm.value,
        "source": SOURCES[outcome.algorithm],
        "admits_iff": RULES[outcome.algorithm],
        "level": without_noise(outcome.level),
        "unit": outcome.unit,
        "formula": delay_formula(comparison.burst, outcome),
        "delay_ms": outcome.delay_ms,
        "admitted_after_ms": outcome.admitted_after_ms,
        "retries": compared.retries,
        "retried_ms": compared.retried_ms,
    }


def _state_data(row: StateRow) -> dict[str, Json]:
    names = [algorithm.value for algorithm in MUTATION_ALGORITHMS]
    return {
        "after_ms": row.after_ms,
        "levels": {name: without_noise(level) for name, level in zip(names, row.levels, strict=True)},
        "admits": dict(zip(names, row.admits, strict=True)),
    }
