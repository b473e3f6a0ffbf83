"""`kafka-quotas daemon`: run the enforcing proxy, and look into one that runs."""

import typer

from kafka_quotas.cli.daemon_options import Control
from kafka_quotas.cli.daemon_run import run
from kafka_quotas.cli.daemon_view import status_listing
from kafka_quotas.cli.options import ListingView
from kafka_quotas.cli.output import TABLE_VIEW
from kafka_quotas.cli.render import print_listing
from kafka_quotas.commands import daemon

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _group() -> None:
    """Enforce quotas in a proxy in front of brokers.

    Clients connect to the daemon instead of the brokers. It speaks the Kafka protocol, holds each client to the byte
    rates in the store, broker by broker as Kafka does, and passes everything else on.
    """


app.command()(run)


@app.command()
def status(control: Control = None, output: ListingView = TABLE_VIEW) -> None:
    """Show who is throttled, by which quota and for how long, and how the daemon fares."""
    print_listing(status_listing(daemon.status(control)), output)
