"""`kafka-quotas daemon calibrate`: what requests cost the upstream, into a file for `daemon run --cost-model`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.framework.store_choice import choose_store
from kafka_quotas.cli.options.stores import CommandConfig, ListingView
from kafka_quotas.cli.options.windows import ClientWindow
from kafka_quotas.cli.output.render import TABLE_VIEW, Listing, Table, columns, print_listing
from kafka_quotas.core.quotas.cost_model import ApiCost, CostModel
from kafka_quotas.enforcement.config.cost_model_file import cost_model_to_json
from kafka_quotas.enforcement.quotas.calibration import ROUNDS, WARM_UP_S, Progress
from kafka_quotas.wire.protocol.api_table import API_TABLE

_COLUMNS = columns("api, us per request (estimated)>, ns per request byte>, ns per response byte>")

Upstream = Annotated[
    str, typer.Option("--upstream", metavar="HOST:PORT", help="A broker of the cluster to enforce in front of.")
]
CostModelTarget = Annotated[
    Path, typer.Option("--cost-model", metavar="FILE", help="Where to write the cost model (JSON).")
]

Rounds = Annotated[
    int,
    typer.Option("--rounds", metavar="N", min=1, help="How often each request is measured; the lowest figure counts."),
]
WarmUp = Annotated[
    float,
    typer.Option(
        "--warm-up",
        metavar="SECONDS",
        min=0.0,
        help="How long each request is repeated before it is measured: a broker's first ones are slow.",
    ),
]


def calibrate(
    *,
    upstream: Upstream,
    cost_model: CostModelTarget,
    command_config: CommandConfig = None,
    windows: ClientWindow,
    rounds: Rounds = ROUNDS,
    warm_up: WarmUp = WARM_UP_S,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Measure in about a minute how much thread time requests cost the upstream.

    The broker's own throttle times are the measure: client-ids made for this get a small request_percentage, and
    send requests until they are throttled. A scratch topic and these quotas are created, and removed afterwards.
    Needs Kafka 2.6 or later, and the right to alter quotas and to create a topic. On a broker that has other work
    the figures are too high.
    """
    window = windows.settings(servers=upstream, command_config=command_config).client
    from kafka_quotas.commands.calibrate import calibrate as run  # noqa: PLC0415 - loads the Kafka store

    settings = choose_store(store=None, bootstrap_server=upstream, command_config=command_config).settings()
    model = run(
        upstream, settings, window=window, target=cost_model, on_progress=_report, rounds=rounds, warm_up_s=warm_up
    )
    print_listing(_listing(model), output)


def _report(progress: Progress) -> None:
    sizes = f"{progress.request_bytes} bytes asked, {progress.response_bytes} answered"
    sys.stderr.write(f"{progress.name}: {progress.nanos / 1000:.0f} us ({sizes})\n")


def _listing(model: CostModel) -> Listing:
    rows = [_row(API_TABLE[key].name, cost) for key, cost in sorted(model.apis.items())]
    return Listing(
        noun="cost-model",
        data=cost_model_to_json(model),
        apart=True,
        table=Table(columns=_COLUMNS, rows=[*rows, _row("(others)", model.other)]),
    )


def _row(name: str, cost: ApiCost) -> tuple[str, ...]:
    per_byte = (cost.request_byte_nanos, cost.response_byte_nanos)
    return (name, f"{cost.request_nanos / 1000:.1f}", *(f"{nanos:.3g}" for nanos in per_byte))
