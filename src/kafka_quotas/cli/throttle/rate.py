"""`kafka-quotas throttle rate` and `request`: what a quota allows, and how long it delays a client."""

from typing import Annotated

from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option, option_group, option_info, required
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.options.windows import (
    ONLY_CLIENTS,
    BrokerWindowOptions,
    byte_figure,
    duration_figure,
    percent_figure,
)
from kafka_quotas.cli.output.listing import Output
from kafka_quotas.cli.throttle.answer import print_answer
from kafka_quotas.commands.throttle.rate import (
    DEFAULT_IO_THREADS,
    DEFAULT_NETWORK_THREADS,
    RateTraffic,
    RequestLoad,
    throttle_rate,
    throttle_request,
)
from kafka_quotas.core.errors import UsageError


@option_group("Traffic")
class RateOptions:
    """The options of `throttle rate` about the traffic."""

    quota: str = required("--quota RATE", help="The allowed byte rate, for example 5MB/s.")
    observed: str | None = option("--observed RATE", help="The measured byte rate, for example 6MB/s.")
    over: str | None = option("--over TIME", help="What --observed was measured over. Default: the quota window.")
    steady: str | None = option("--steady RATE", help="The byte rate before --burst. Default 0.")
    burst: str | None = option("--burst SIZE", help="The bytes sent within one sample, for example 15MB.")

    def traffic(self) -> RateTraffic:
        """Parse the options."""
        if self.steady is not None and self.burst is None:
            raise UsageError("--steady goes with --burst", hint="--steady 5MB/s --burst 15MB, or --observed 6MB/s")
        return RateTraffic(
            quota=byte_figure("--quota", self.quota),
            observed=None if self.observed is None else byte_figure("--observed", self.observed, zero=True),
            over_ms=None if self.over is None else max(round(duration_figure("--over", self.over, zero=False)), 1),
            steady=0.0 if self.steady is None else byte_figure("--steady", self.steady, zero=True),
            burst=None if self.burst is None else byte_figure("--burst", self.burst, zero=True),
        )


def rate(
    *,
    asked: RateOptions,
    windows: Annotated[BrokerWindowOptions, ONLY_CLIENTS],
    explain: Annotated[
        bool, option_info("--explain", rich_help_panel=OUTPUT_HEADING, help="Show the arithmetic of every figure.")
    ] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Compute the delay of a produce or fetch quota, by KIP-13's arithmetic and by Kafka's own rate.

    Example: --quota 5MB/s --steady 5MB/s --burst 15MB.
    """
    traffic = asked.traffic()
    settings = windows.in_force()
    answer = throttle_rate(traffic, settings.client)
    print_answer("throttle-rate", answer, output, origin=settings.client_origin, explain=explain)


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
        """Parse the options."""
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
    settings = windows.in_force()
    print_answer("throttle-request", throttle_request(load, settings.client), output, origin=settings.client_origin)
