"""`kafka-quotas throttle`: the calculator."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

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
from kafka_quotas.cli.options.windows import (
    ControllerWindowNum,
    ControllerWindowSize,
    QuotaWindowNum,
    QuotaWindowSize,
    WindowCommandConfig,
    WindowFile,
    WindowServer,
    chosen_windows,
)
from kafka_quotas.cli.output.view import Output
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
    add_completion=False,
    no_args_is_help=True,
    help="Calculate rates, delays and bursts as Kafka does.",
)
app.command(name="simulate")(simulate)


class AlgorithmChoice(StrEnum):
    """The algorithms for controller mutations."""

    TOKEN_BUCKET = Algorithm.TOKEN_BUCKET.value
    RATE = Algorithm.RATE.value
    SPREAD_EVEN = Algorithm.SPREAD_EVEN.value
    SPREAD_FILL = Algorithm.SPREAD_FILL.value


BurstSize = Annotated[
    str,
    typer.Option("--burst", metavar="N", help="Partitions in one burst: 560, or 7x80 for 7 topics of 80 partitions."),
]
MutationQuota = Annotated[
    str, typer.Option("--quota", metavar="RATE", help="controller_mutation_rate: partitions per --unit.")
]
Unit = Annotated[FigureUnit, typer.Option("--unit", help="The time unit of --quota: second, minute, hour or day.")]
Credit = Annotated[
    str | None,
    typer.Option(
        "--max-burst",
        metavar="N",
        help="The most partitions a full bucket holds, in place of --controller-quota-window-num: "
        "samples = N / (quota x size). The drafts called it controller_mutations_burst.",
    ),
]


@app.command()
def rate(
    *,
    quota: Annotated[str, typer.Option("--quota", metavar="RATE", help="The byte rate allowed, for example 5MB/s.")],
    observed: Annotated[
        str | None, typer.Option("--observed", metavar="RATE", help="The byte rate measured, for example 6MB/s.")
    ] = None,
    over: Annotated[
        str | None,
        typer.Option("--over", metavar="TIME", help="What --observed was measured over. Default: the quota window."),
    ] = None,
    steady: Annotated[
        str | None, typer.Option("--steady", metavar="RATE", help="The byte rate before --burst. Default 0.")
    ] = None,
    burst: Annotated[
        str | None, typer.Option("--burst", metavar="SIZE", help="The bytes sent within one sample, for example 15MB.")
    ] = None,
    quota_window_num: QuotaWindowNum = None,
    quota_window_size_seconds: QuotaWindowSize = None,
    window_file: WindowFile = None,
    bootstrap_server: WindowServer = None,
    command_config: WindowCommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Compute the delay of a produce or fetch quota, by KIP-13's arithmetic and by Kafka's own rate.

    Example: --quota 5MB/s --steady 5MB/s --burst 15MB.
    """
    if steady is not None and burst is None:
        raise UsageError("--steady goes with --burst", hint="--steady 5MB/s --burst 15MB, or --observed 6MB/s")
    traffic = RateTraffic(
        quota=byte_figure("--quota", quota),
        observed=None if observed is None else byte_figure("--observed", observed, zero=True),
        over_ms=None if over is None else max(round(duration_figure("--over", over, zero=False)), 1),
        steady=0.0 if steady is None else byte_figure("--steady", steady, zero=True),
        burst=None if burst is None else byte_figure("--burst", burst, zero=True),
    )
    settings = chosen_windows(
        quota_window_num=quota_window_num,
        quota_window_size_seconds=quota_window_size_seconds,
        window_file=window_file,
        bootstrap_server=bootstrap_server,
        command_config=command_config,
    )
    window, origin = client_window(settings)
    print_answer("throttle-rate", throttle_rate(traffic, window), output, window=window, window_origin=origin)


@app.command()
def request(
    *,
    quota: Annotated[
        str, typer.Option("--quota", metavar="PERCENT", help="request_percentage: % of one thread, for example 0.1%.")
    ],
    stall: Annotated[
        str | None,
        typer.Option("--stall", metavar="TIME", help="Thread time of one long request, for example 100ms."),
    ] = None,
    steady: Annotated[
        str | None, typer.Option("--steady", metavar="PERCENT", help="The use before --stall. Default: the quota.")
    ] = None,
    io_threads: Annotated[
        int, typer.Option("--io-threads", metavar="N", min=1, help="num.io.threads.")
    ] = DEFAULT_IO_THREADS,
    network_threads: Annotated[
        int, typer.Option("--network-threads", metavar="N", min=1, help="num.network.threads.")
    ] = DEFAULT_NETWORK_THREADS,
    connections: Annotated[
        int | None, typer.Option("--connections", metavar="C", min=1, help="Connections of the client.")
    ] = None,
    request_time: Annotated[
        str | None, typer.Option("--request-time", metavar="R", help="Thread time of one request, for example 25ms.")
    ] = None,
    quota_window_num: QuotaWindowNum = None,
    quota_window_size_seconds: QuotaWindowSize = None,
    window_file: WindowFile = None,
    bootstrap_server: WindowServer = None,
    command_config: WindowCommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show what a request quota is worth, the most a client can use, and the delay after a long request.

    Example: --quota 0.1% --stall 100ms.
    """
    if (connections is None) != (request_time is None):
        raise UsageError("--connections and --request-time go together", hint="--connections 10 --request-time 25ms")
    if steady is not None and stall is None:
        raise UsageError("--steady goes with --stall", hint="--steady 0.1% --stall 100ms")
    load = RequestLoad(
        quota=percent_figure("--quota", quota),
        io_threads=io_threads,
        network_threads=network_threads,
        steady=None if steady is None else percent_figure("--steady", steady, zero=True),
        stall_ms=None if stall is None else duration_figure("--stall", stall),
        connections=connections,
        request_ms=None if request_time is None else duration_figure("--request-time", request_time),
    )
    settings = chosen_windows(
        quota_window_num=quota_window_num,
        quota_window_size_seconds=quota_window_size_seconds,
        window_file=window_file,
        bootstrap_server=bootstrap_server,
        command_config=command_config,
    )
    window, origin = client_window(settings)
    print_answer("throttle-request", throttle_request(load, window), output, window=window, window_origin=origin)


@app.command()
def mutation(
    *,
    quota: MutationQuota,
    burst: BurstSize,
    unit: Unit = FigureUnit.SECOND,
    max_burst: Credit = None,
    algorithm: Annotated[
        AlgorithmChoice,
        typer.Option("--algorithm", help="token-bucket (Kafka's), rate, rate-spread-even or rate-spread-fill."),
    ] = AlgorithmChoice.TOKEN_BUCKET,
    request_throttle: Annotated[
        str, typer.Option("--request-throttle", metavar="TIME", help="The request quota's delay of the same response.")
    ] = "0ms",
    waited: Annotated[
        str, typer.Option("--waited", metavar="TIME", help="How long the refused request had waited already.")
    ] = "0ms",
    controller_quota_window_num: ControllerWindowNum = None,
    controller_quota_window_size_seconds: ControllerWindowSize = None,
    window_file: WindowFile = None,
    bootstrap_server: WindowServer = None,
    command_config: WindowCommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Compute the wait after a burst of partitions created, added or deleted, as strict and older clients see it.

    Example: --quota 5 --burst 560 --controller-quota-window-num 100.
    """
    others = OtherDelays(
        request_throttle_ms=round(duration_figure("--request-throttle", request_throttle)),
        waited_ms=round(duration_figure("--waited", waited)),
    )
    settings = chosen_windows(
        controller_window_num=controller_quota_window_num,
        controller_window_size_seconds=controller_quota_window_size_seconds,
        window_file=window_file,
        bootstrap_server=bootstrap_server,
        command_config=command_config,
    )
    window, origin = controller_window(settings)
    asked, origin = _burst(
        quota=quota,
        burst=burst,
        unit=unit,
        credit=max_burst,
        window=window,
        origin=origin,
        num=controller_quota_window_num,
    )
    answer = throttle_mutation(asked, Algorithm(algorithm.value), others)
    print_answer("throttle-mutation", answer, output, window=asked.window, window_origin=origin)


@app.command()
def compare(
    *,
    quota: MutationQuota = "5",
    burst: BurstSize = "560",
    unit: Unit = FigureUnit.SECOND,
    max_burst: Credit = None,
    controller_quota_window_num: ControllerWindowNum = None,
    controller_quota_window_size_seconds: ControllerWindowSize = None,
    window_file: WindowFile = None,
    bootstrap_server: WindowServer = None,
    command_config: WindowCommandConfig = None,
    chart: Annotated[bool, typer.Option("--chart", help="Draw the states over time below the tables.")] = False,
    plot: Annotated[
        list[Path] | None,
        typer.Option("--plot", metavar="FILE", help="Draw the states into a .png or .svg file; may be repeated."),
    ] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """One burst of mutations in all four algorithms of KIP-599, side by side.

    Without any figure it is the document's example: quota 5/s, burst 560, 100 samples of 1 s.
    """
    from kafka_quotas.cli.throttle.comparison import show_comparison  # noqa: PLC0415 - loads the chart as well

    settings = chosen_windows(
        controller_window_num=controller_quota_window_num,
        controller_window_size_seconds=controller_quota_window_size_seconds,
        window_file=window_file,
        bootstrap_server=bootstrap_server,
        command_config=command_config,
    )
    window, origin = controller_window(settings)
    bare = (quota, burst, unit, max_burst) == ("5", "560", FigureUnit.SECOND, None)
    if bare and settings.untouched:
        window, origin = KIP_599_WINDOW, "KIP-599's example"
    asked, origin = _burst(
        quota=quota,
        burst=burst,
        unit=unit,
        credit=max_burst,
        window=window,
        origin=origin,
        num=controller_quota_window_num,
    )
    show_comparison(asked, output, window_origin=origin, chart=chart, plots=plot or ())


def _burst(
    *, quota: str, burst: str, unit: FigureUnit, credit: str | None, window: QuotaWindow, origin: str, num: int | None
) -> tuple[Burst, str]:
    """Return the burst that the options describe, and where its window came from."""
    per_second = mutation_figure("--quota", quota, unit)
    partitions = burst_figure("--burst", burst)
    if credit is None:
        return Burst(quota=per_second, partitions=partitions, window=window), origin
    if num is not None:
        raise UsageError("--max-burst and --controller-quota-window-num exclude each other", hint="give one of them")
    window = window_of_credit(burst_figure("--max-burst", credit), per_second, window.window_s)
    return Burst(quota=per_second, partitions=partitions, window=window), "--max-burst"
