"""`kafka-quotas throttle rate`, `request`, `mutation` and `compare`, and how every answer is shown.

People get tables and steps, machines one row per figure.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option_info
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.options.windows import ONLY_CLIENTS, ONLY_CONTROLLER, BrokerWindowOptions
from kafka_quotas.cli.output.listing import NO_TABLE, Cell, Column, Listing, Output, Table
from kafka_quotas.cli.output.render import plain_text, print_listing, print_table, write
from kafka_quotas.commands.throttle.mutation import (
    PARTITIONS,
    PARTITIONS_PER_SECOND,
    AlgorithmComparison,
    Burst,
    BurstOutcome,
    throttle_compare,
    throttle_mutation,
)
from kafka_quotas.commands.throttle.rate import (
    Calculation,
    CalculatorAnswer,
    RateTraffic,
    RequestLoad,
    throttle_rate,
    throttle_request,
)
from kafka_quotas.core.described import document_of
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.value_format import MS, format_amount
from kafka_quotas.core.quotas.simulation import MUTATION_ALGORITHMS, Algorithm


def rate(
    *,
    traffic: RateTraffic,
    windows: Annotated[BrokerWindowOptions, ONLY_CLIENTS],
    explain: Annotated[
        bool, option_info("--explain", rich_help_panel=OUTPUT_HEADING, help="Show the arithmetic of every figure.")
    ] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Compute the delay of a produce or fetch quota, by KIP-13's arithmetic and by Kafka's own rate.

    Example: --quota 5MB/s --steady 5MB/s --burst 15MB.
    """
    settings = windows.in_force()
    answer = throttle_rate(traffic, settings.client)
    print_answer("throttle-rate", answer, output, origin=settings.client_origin, explain=explain)


def request(
    *,
    load: RequestLoad,
    windows: Annotated[BrokerWindowOptions, ONLY_CLIENTS],
    output: OutputForm = Output.TABLE,
) -> None:
    """Show what a request quota is worth, the most a client can use, and the delay after a long request.

    Example: --quota 0.1% --stall 100ms.
    """
    settings = windows.in_force()
    print_answer("throttle-request", throttle_request(load, settings.client), output, origin=settings.client_origin)


def print_answer(noun: str, answer: CalculatorAnswer, output: Output, *, origin: str, explain: bool = True) -> None:
    """Print the answer in the given form, with the origin of its window.

    Without `explain` the arithmetic of figures that one table has side by side is left out.
    """
    if output not in (Output.TABLE, Output.MARKDOWN):
        data = document_of(replace(answer, origin=origin))
        print_listing(Listing(noun=noun, data=data, table=NO_TABLE), output)
        return
    given = [f"{each.name} {format_amount(each.value, each.unit)}" for each in answer.given]
    window = f"window {answer.window.samples} x {answer.window.window_s} s ({origin})"
    sys.stdout.write(f"{', '.join(given)}; {window}\n\n")
    tables = [
        Table.of(
            "figure, arithmetic, result>",
            [[step.name, step.arithmetic, format_amount(step.value, step.unit)] for step in each.steps],
            each.title,
        )
        for each in answer.calculations
    ]
    delays = [each for each in answer.calculations if each.delay_ms is not None]
    if len(delays) > 1 and len({tuple(step.name for step in each.steps) for each in delays}) == 1:
        tables = [_side_by_side(delays), *(tables if explain else ())]
    print_tables(tables, output)
    sys.stdout.write("\n" if answer.notes else "")
    for note in answer.notes:
        write(f"note: {note}", sys.stdout)


def print_tables(tables: Sequence[Table], output: Output) -> None:
    """Print the tables with a blank line between them."""
    for index, table in enumerate(tables):
        sys.stdout.write("\n" if index else "")
        if output is Output.TABLE:
            print_table(table, sys.stdout)
        else:
            sys.stdout.write(f"**{table.caption}**\n\n" if table.caption else "")
            write(plain_text(table, style="pipe"), sys.stdout)


def _side_by_side(calculations: Sequence[Calculation]) -> Table:
    return Table.of(
        [Column(title="figure"), *(Column(title=each.title, figures=True) for each in calculations)],
        [
            [steps[0].name, *(format_amount(step.value, step.unit) for step in steps)]
            for steps in zip(*(each.steps for each in calculations), strict=True)
        ],
    )


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
    output: OutputForm = Output.TABLE,
) -> None:
    """One burst of mutations in all four algorithms of KIP-599, side by side.

    Without any figure it is the document's example: quota 5/s, burst 560, 100 samples of 1 s.
    """
    settings = windows.in_force()
    window, origin = settings.controller, settings.controller_origin
    if burst == _EXAMPLE and settings.untouched:
        window, origin = _EXAMPLE.window, "KIP-599's example"
    _print_comparison(replace(throttle_compare(replace(burst, window=window)), origin=origin), output)


_LEGEND = (
    "state: just after the burst; admitted: the first instant at which another request is;\n"
    "if waited out: when it is, for a client that waits out each delay before it tries again\n"
    "*: a request would be admitted at that time\n"
)


def _print_comparison(comparison: AlgorithmComparison, output: Output) -> None:
    if output not in (Output.TABLE, Output.MARKDOWN):
        print_listing(Listing(noun="throttle-compare", data=document_of(comparison), table=NO_TABLE), output)
        return
    burst, window = comparison.burst, comparison.burst.window
    sys.stdout.write(
        f"quota {format_amount(burst.quota, PARTITIONS_PER_SECOND)}, "
        f"burst {format_amount(burst.partitions, PARTITIONS)}; "
        f"window {window.samples} x {window.window_s} s ({comparison.origin})\n\n"
    )
    states = Table.of(
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
    outcomes = "algorithm, state, delay by formula, admitted>, if waited out>"
    print_tables([Table.of(outcomes, list(map(_outcome_row, comparison.outcomes))), states], output)
    sys.stdout.write(f"\n{_LEGEND}")


def _outcome_row(outcome: BurstOutcome) -> list[Cell]:
    state = format_amount(outcome.level, "tokens" if outcome.unit == PARTITIONS else "/s").replace(" /s", "/s")
    return [
        outcome.algorithm,
        state,
        f"{outcome.formula} = {format_amount(outcome.delay_ms, MS)}",
        format_amount(outcome.admitted_after_ms, MS),
        "never" if outcome.retried_ms is None else format_amount(outcome.retried_ms, MS),
    ]
