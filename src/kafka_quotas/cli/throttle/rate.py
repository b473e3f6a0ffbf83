"""`kafka-quotas throttle rate` and `request`: what a quota allows, and how long it delays a client."""

from typing import Annotated

from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option_info
from kafka_quotas.cli.options.stores import OutputForm
from kafka_quotas.cli.options.windows import ONLY_CLIENTS, BrokerWindowOptions
from kafka_quotas.cli.output.listing import Output
from kafka_quotas.cli.throttle.answer import print_answer
from kafka_quotas.commands.throttle.rate import RateTraffic, RequestLoad, throttle_rate, throttle_request


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
