"""`kafka-quotas exporter`: the limits of a cluster and how close everybody is to them, as Prometheus metrics."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_quotas.cli.declarative.files import DesiredOptions
from kafka_quotas.cli.framework.commands import service
from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.cli.options.stores import StoreOptions, UsageOptions
from kafka_quotas.cli.output.render import warn, write
from kafka_quotas.commands.declarative.apply import DesiredState
from kafka_quotas.commands.declarative.reading import STANDARD_INPUT
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import owner
from kafka_quotas.enforcement import MetricsChoice

if TYPE_CHECKING:
    from kafka_quotas.commands.web.exporter import LookState
    from kafka_quotas.enforcement import Address


Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="YAML, JSON or TOML files, or folders of them, to compare the store with."),
]


@option_group("Exporter")
class ExporterOptions:
    """The options of the exporter about where and how often."""

    listen: str = option(
        "--listen [HOST:]PORT",
        default="9481",
        help="Where /metrics and /healthz are, on 127.0.0.1 without a host; port 0 is any free one.",
    )
    interval: float = option(
        "--interval SECONDS", default=30.0, min=1.0, help="How often store, metrics and files are looked at."
    )


@service("EXPORTER")
def exporter(
    files: Files = None,
    *,
    asked: ExporterOptions,
    source: Annotated[UsageOptions, Without("control")],
    choice: MetricsChoice,
    desired: Annotated[DesiredOptions, Without("prune_limit")],
    store: StoreOptions,
) -> None:
    """Serve a cluster's quotas as Prometheus metrics, without a daemon, until it is stopped.

    The metrics are the limits that clients get, those that nobody gets, and with --prometheus every bucket's rate at
    each broker beside its limit. With files it counts what differs from them. A broker, a Prometheus server or a file
    that is away is a metric, and is looked at again. Names are the daemon's, so dashboards and alerts fit both.
    """
    from kafka_quotas.commands.web.exporter import QuotaExporter, run_exporter  # noqa: PLC0415 - a server that only this command needs
    from kafka_quotas.enforcement import error_text, parse_local_address  # noqa: PLC0415 - as above

    chosen = store.choose()
    chosen.check_exists()
    usage = source.source(chosen)
    server = QuotaExporter(
        chosen.open_existing,
        source=usage if usage.metrics_urls else None,
        desired=_desired(files, desired),
        choice=choice,
        clock=SystemClock(),
    )

    def serving(address: "Address") -> None:
        every = f"every {asked.interval:g} s"
        write(f"note: looking at {chosen.place} {every}, metrics at http://{address}/metrics", sys.stderr)

    run_exporter(
        server,
        parse_local_address(asked.listen),
        interval_s=asked.interval,
        report=report_look,
        serving=serving,
        on_defect=lambda error: warn(error_text(error)),
    )


def _desired(files: list[str] | None, desired: DesiredOptions) -> DesiredState | None:
    """Return what the files declare, None without files."""
    if not files:
        given = {
            "--values": desired.values,
            "--selector": desired.selectors,
            "--prune": desired.prune,
            "--policy": desired.policy,
        }
        names = [name for name, value in given.items() if value]
        if names:
            raise UsageError(f"{' and '.join(names)} without a file", hint="name the files of quotas to compare with")
        return None
    if STANDARD_INPUT in files:
        raise UsageError("files are read again at every look, a pipe only once", hint="name the files themselves")
    state = desired.state(files, "exporter")
    owner(state.selectors)
    return state


def report_look(look: str, state: "LookState") -> None:
    """Report that looks at something fail, or go well again, on standard error."""
    if state.error is not None:
        warn(f"{look}: {state.error.message}")
    elif state.failures:
        write(f"note: {look}: looks go well again", sys.stderr)
    sys.stderr.flush()
