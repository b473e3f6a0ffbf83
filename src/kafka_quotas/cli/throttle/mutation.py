"""`kafka-quotas throttle mutation` and `compare`: a burst of controller mutations, in one algorithm or in all four."""

import sys
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from kafka_quotas.cli.charts.plot import check_plot_targets
from kafka_quotas.cli.charts.text_chart import Series, Style
from kafka_quotas.cli.framework.option_groups import option_info
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.options.windows import ONLY_CONTROLLER, BrokerWindowOptions
from kafka_quotas.cli.output.listing import Cell, Listing, Output, Table
from kafka_quotas.cli.output.render import print_listing
from kafka_quotas.cli.throttle.rate import ChartOptions, print_answer, print_tables
from kafka_quotas.commands.throttle.mutation import (
    PARTITIONS,
    PARTITIONS_PER_SECOND,
    AlgorithmComparison,
    Burst,
    BurstOutcome,
    states_at,
    throttle_compare,
    throttle_mutation,
)
from kafka_quotas.core.described import document_of
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.value_format import MS, format_amount
from kafka_quotas.core.quotas.simulation import MUTATION_ALGORITHMS, Algorithm


class AlgorithmChoice(StrEnum):
    """The algorithms for controller mutations."""

    TOKEN_BUCKET = Algorithm.TOKEN_BUCKET.value
    RATE = Algorithm.RATE.value
    SPREAD_EVEN = Algorithm.SPREAD_EVEN.value
    SPREAD_FILL = Algorithm.SPREAD_FILL.value


_EXAMPLE = Burst(quota=5, partitions=560, window=QuotaWindow(samples=100, window_s=1))
"""That of KIP-599."""


def mutation(
    *,
    burst: Burst,
    algorithm: Annotated[
        AlgorithmChoice,
        option_info("--algorithm", help="token-bucket (Kafka's), rate, rate-spread-even or rate-spread-fill."),
    ] = AlgorithmChoice.TOKEN_BUCKET,
    windows: Annotated[BrokerWindowOptions, ONLY_CONTROLLER],
    output: OutputForm = Output.TABLE,
) -> None:
    """Compute the wait after a burst of partition changes, as strict and older clients see it.

    Example: --quota 5 --burst 560 --controller-quota-window-num 100.
    """
    settings = windows.in_force()
    answer = throttle_mutation(replace(burst, window=settings.controller), Algorithm(algorithm.value))
    print_answer("throttle-mutation", answer, output, origin=settings.controller_origin)


def compare(
    *,
    burst: Burst = _EXAMPLE,
    windows: Annotated[BrokerWindowOptions, ONLY_CONTROLLER],
    charts: ChartOptions,
    output: OutputForm = Output.TABLE,
) -> None:
    """One burst of mutations in all four algorithms of KIP-599, side by side.

    Without any figure it is the document's example: quota 5/s, burst 560, 100 samples of 1 s.
    """
    settings = windows.in_force()
    window, origin = settings.controller, settings.controller_origin
    if burst == _EXAMPLE and settings.untouched:
        window, origin = _EXAMPLE.window, "KIP-599's example"
    asked = replace(burst, window=window)
    check_plot_targets(charts.plot or ())
    comparison = replace(throttle_compare(asked), origin=origin)
    _print_comparison(comparison, output)
    if charts.asked:
        quota = format_amount(asked.quota, PARTITIONS_PER_SECOND)
        title = f"A burst of {format_amount(asked.partitions, PARTITIONS)} under {quota}"
        charts.show(_series(comparison), output, title=title)


_FINE = 400
_LEGEND = (
    "state: just after the burst; admitted: the first instant at which another request is;\n"
    "if waited out: when it is, for a client that waits out each delay before it tries again\n"
    "*: a request would be admitted at that time\n"
)


def _print_comparison(comparison: AlgorithmComparison, output: Output) -> None:
    if output not in (Output.TABLE, Output.MARKDOWN):
        listing = Listing(noun="throttle-compare", data=document_of(comparison), table=_outcome_table(comparison))
        print_listing(listing, output)
        return
    burst, window = comparison.burst, comparison.burst.window
    sys.stdout.write(
        f"quota {format_amount(burst.quota, PARTITIONS_PER_SECOND)}, "
        f"burst {format_amount(burst.partitions, PARTITIONS)}; "
        f"window {window.samples} x {window.window_s} s ({comparison.origin})\n\n"
    )
    print_tables([_outcome_table(comparison), _state_table(comparison)], output)
    sys.stdout.write(f"\n{_LEGEND}")


def _series(comparison: AlgorithmComparison) -> list[Series]:
    """Return the states as series, each with its bound, with enough points to show the steps of the rates."""
    end_ms, quota = comparison.states[-1].after_ms, comparison.burst.quota
    states = list(states_at(comparison.burst, sorted({end_ms * index // _FINE for index in range(_FINE + 1)})))

    def line(name: str, unit: str) -> Series:
        return Series(name=name, points=[(each.after_ms / 1000, each.levels[name]) for each in states], unit=unit)

    def bound(name: str, value: float, unit: str) -> Series:
        return Series(name=name, points=[(0.0, value), (end_ms / 1000, value)], unit=unit, style=Style.LIMIT)

    bucket, *rates = (each.value for each in MUTATION_ALGORITHMS)
    return [
        *(line(name, PARTITIONS_PER_SECOND) for name in rates),
        bound("quota", quota, PARTITIONS_PER_SECOND),
        line(bucket, "tokens"),
        bound("admitted from 0 on", 0.0, "tokens"),
    ]


def _outcome_table(comparison: AlgorithmComparison) -> Table:
    return Table.of(
        "algorithm, state, delay by formula, admitted>, if waited out>",
        [_outcome_row(each) for each in comparison.outcomes],
    )


def _outcome_row(outcome: BurstOutcome) -> list[Cell]:
    state = format_amount(outcome.level, "tokens" if outcome.unit == PARTITIONS else "/s").replace(" /s", "/s")
    return [
        outcome.algorithm,
        state,
        f"{outcome.formula} = {format_amount(outcome.delay_ms, MS)}",
        format_amount(outcome.admitted_after_ms, MS),
        "never" if outcome.retried_ms is None else format_amount(outcome.retried_ms, MS),
    ]


def _state_table(comparison: AlgorithmComparison) -> Table:
    return Table.of(
        ", ".join(f"{title}>" for title in ("time after", *MUTATION_ALGORITHMS)),
        [
            [
                format_amount(row.after_ms, MS),
                *(
                    f"{format_amount(level, '').strip()} {'*' if row.admits[name] else ' '}"
                    for name, level in row.levels.items()
                ),
            ]
            for row in comparison.states
        ],
    )
