"""`kafka-quotas throttle`: the calculator."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING, PagedGroup
from kafka_quotas.cli.framework.option_groups import option, option_group, required
from kafka_quotas.cli.options.figures import (
    FigureUnit,
    burst_figure,
    byte_figure,
    client_window,
    controller_window,
    duration_figure,
    mutation_figure,
    percent_figure,
)
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.options.windows import ONLY_CLIENTS, ONLY_CONTROLLER, BrokerWindowOptions
from kafka_quotas.cli.output.listing import Output
from kafka_quotas.cli.throttle.answer import print_answer
from kafka_quotas.cli.throttle.simulate import simulate
from kafka_quotas.commands.throttle.mutation import Burst, OtherDelays, throttle_mutation, window_of_credit
from kafka_quotas.commands.throttle.rate import RateTraffic, throttle_rate
from kafka_quotas.commands.throttle.request import (
    DEFAULT_IO_THREADS,
    DEFAULT_NETWORK_THREADS,
    RequestLoad,
    throttle_request,
)
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.simulation import Algorithm

KIP_599_WINDOW = QuotaWindow(samples=100, window_s=1)
"""The window of KIP-599's example."""

app = typer.Typer(
    cls=PagedGroup, add_completion=False, no_args_is_help=True, help="Calculate rates, delays and bursts as Kafka does."
)
app.command(name="simulate")(simulate)


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


@option_group("Traffic")
class RateOptions:
    """The options of `throttle rate` about the traffic."""

    quota: str = required("--quota RATE", help="The allowed byte rate, for example 5MB/s.")
    observed: str | None = option("--observed RATE", help="The measured byte rate, for example 6MB/s.")
    over: str | None = option("--over TIME", help="What --observed was measured over. Default: the quota window.")
    steady: str | None = option("--steady RATE", help="The byte rate before --burst. Default 0.")
    burst: str | None = option("--burst SIZE", help="The bytes sent within one sample, for example 15MB.")

    def traffic(self) -> RateTraffic:
        """Parse the options.

        Raises:
            UsageError: A figure can't be parsed, or `--steady` stands alone.
        """
        if self.steady is not None and self.burst is None:
            raise UsageError("--steady goes with --burst", hint="--steady 5MB/s --burst 15MB, or --observed 6MB/s")
        return RateTraffic(
            quota=byte_figure("--quota", self.quota),
            observed=None if self.observed is None else byte_figure("--observed", self.observed, zero=True),
            over_ms=None if self.over is None else max(round(duration_figure("--over", self.over, zero=False)), 1),
            steady=0.0 if self.steady is None else byte_figure("--steady", self.steady, zero=True),
            burst=None if self.burst is None else byte_figure("--burst", self.burst, zero=True),
        )


@app.command()
def rate(
    *,
    asked: RateOptions,
    windows: Annotated[BrokerWindowOptions, ONLY_CLIENTS],
    explain: Annotated[
        bool, typer.Option("--explain", rich_help_panel=OUTPUT_HEADING, help="Show the arithmetic of every figure.")
    ] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Compute the delay of a produce or fetch quota, by KIP-13's arithmetic and by Kafka's own rate.

    Example: --quota 5MB/s --steady 5MB/s --burst 15MB.
    """
    traffic = asked.traffic()
    window, origin = client_window(windows.in_force())
    answer = throttle_rate(traffic, window)
    print_answer("throttle-rate", answer, output, window=window, window_origin=origin, explain=explain)


@option_group("Load")
class RequestLoadOptions:
    """The options of `throttle request` about the load."""

    quota: str = required("--quota PERCENT", help="request_percentage: % of one thread, for example 0.1%.")
    stall: str | None = option("--stall TIME", help="Thread time of one long request, for example 100ms.")
    steady: str | None = option("--steady PERCENT", help="The usage before --stall. Default: the quota.")
    io_threads: int = option("--io-threads N", default=DEFAULT_IO_THREADS, min=1, help="num.io.threads.")
    network_threads: int = option(
        "--network-threads N", default=DEFAULT_NETWORK_THREADS, min=1, help="num.network.threads."
    )
    connections: int | None = option("--connections C", min=1, help="Connections of the client.")
    request_time: str | None = option("--request-time R", help="Thread time of one request, for example 25ms.")

    def load(self) -> RequestLoad:
        """Parse the options.

        Raises:
            UsageError: A figure can't be parsed, or one of two options that go together is missing.
        """
        if (self.connections is None) != (self.request_time is None):
            raise UsageError(
                "--connections and --request-time go together", hint="--connections 10 --request-time 25ms"
            )
        if self.steady is not None and self.stall is None:
            raise UsageError("--steady goes with --stall", hint="--steady 0.1% --stall 100ms")
        return RequestLoad(
            quota=percent_figure("--quota", self.quota),
            io_threads=self.io_threads,
            network_threads=self.network_threads,
            steady=None if self.steady is None else percent_figure("--steady", self.steady, zero=True),
            stall_ms=None if self.stall is None else duration_figure("--stall", self.stall),
            connections=self.connections,
            request_ms=None if self.request_time is None else duration_figure("--request-time", self.request_time),
        )


@app.command()
def request(
    *,
    asked: RequestLoadOptions,
    windows: Annotated[BrokerWindowOptions, ONLY_CLIENTS],
    output: OutputForm = Output.TABLE,
) -> None:
    """Show what a request quota is worth, the most a client can use, and the delay after a long request.

    Example: --quota 0.1% --stall 100ms.
    """
    load = asked.load()
    window, origin = client_window(windows.in_force())
    print_answer("throttle-request", throttle_request(load, window), output, window=window, window_origin=origin)


@app.command()
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


@app.command()
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
    from kafka_quotas.cli.throttle.comparison import show_comparison  # noqa: PLC0415 - loads the chart as well

    settings = windows.in_force()
    window, origin = controller_window(settings)
    if burst == _EXAMPLE and settings.untouched:
        window, origin = KIP_599_WINDOW, "KIP-599's example"
    asked, origin = burst.within(window, origin, num=windows.controller_quota_window_num)
    show_comparison(asked, output, window_origin=origin, chart=chart, plots=plot or ())
