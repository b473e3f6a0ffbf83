"""`kafka-quotas throttle rate` and `request`, and how every answer of the calculator is shown and drawn.

People get tables and steps, machines one row per figure.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from kafka_quotas.cli.charts.plot import save_plot
from kafka_quotas.cli.charts.text_chart import Series, print_chart
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import flag, option, option_group, option_info
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.options.windows import ONLY_CLIENTS, BrokerWindowOptions
from kafka_quotas.cli.output.listing import NO_TABLE, Column, Listing, Output, Table
from kafka_quotas.cli.output.render import plain_text, print_listing, print_table, write
from kafka_quotas.commands.throttle.rate import (
    Calculation,
    CalculatorAnswer,
    RateTraffic,
    RequestLoad,
    throttle_rate,
    throttle_request,
)
from kafka_quotas.core.described import document_of
from kafka_quotas.core.model.value_format import format_amount


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


@option_group(OUTPUT_HEADING)
class ChartOptions:
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
    tables = _answer_tables(answer)
    print_tables(tables if explain or len(tables) == len(answer.calculations) else tables[:1], output)
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


def _answer_tables(answer: CalculatorAnswer) -> list[Table]:
    """Return the calculations that yield a delay side by side, then each with its arithmetic.

    The first table needs several comparable calculations.
    """
    delays = [each for each in answer.calculations if each.delay_ms is not None]
    comparable = len(delays) > 1 and len({tuple(step.name for step in each.steps) for each in delays}) == 1
    return [*([_side_by_side(delays)] if comparable else []), *map(_arithmetic, answer.calculations)]


def _side_by_side(calculations: Sequence[Calculation]) -> Table:
    return Table.of(
        [Column(title="figure"), *(Column(title=each.title, figures=True) for each in calculations)],
        [
            [steps[0].name, *(format_amount(step.value, step.unit) for step in steps)]
            for steps in zip(*(each.steps for each in calculations), strict=True)
        ],
    )


def _arithmetic(calculation: Calculation) -> Table:
    return Table.of(
        "figure, arithmetic, result>",
        [[step.name, step.arithmetic, format_amount(step.value, step.unit)] for step in calculation.steps],
        calculation.title,
    )
