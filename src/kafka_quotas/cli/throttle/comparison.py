"""The comparison of the four algorithms: one row per algorithm, then their states over time."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kafka_quotas.cli.charts.plot import check_plot_targets, show_chart
from kafka_quotas.cli.charts.text_chart import Series, Style
from kafka_quotas.cli.output.json_text import Json
from kafka_quotas.cli.output.render import Cell, Listing, Output, Table, columns, print_listing, write
from kafka_quotas.cli.throttle.answer import print_tables, window_data
from kafka_quotas.commands.throttle.arithmetic import without_noise
from kafka_quotas.commands.throttle.mutation import (
    PARTITIONS,
    PARTITIONS_PER_SECOND,
    RULES,
    SOURCES,
    AlgorithmComparison,
    Burst,
    ComparedOutcome,
    StateRow,
    delay_formula,
    states_at,
    throttle_compare,
)
from kafka_quotas.core.model.value_format import MS, format_amount
from kafka_quotas.core.quotas.simulation import MUTATION_ALGORITHMS, Algorithm

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
