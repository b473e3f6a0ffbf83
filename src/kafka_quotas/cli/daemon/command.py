"""`kafka-quotas daemon`: run the enforcing proxy, and look into one that runs."""

from typing import Annotated

import typer

from kafka_quotas.cli.daemon.calibrate import calibrate
from kafka_quotas.cli.daemon.config_command import check, config
from kafka_quotas.cli.daemon.decide import decide
from kafka_quotas.cli.daemon.options import AskedDaemon
from kafka_quotas.cli.daemon.run import run, upgrade
from kafka_quotas.cli.daemon.status_view import reload_listing, status_listing, unmuted_listing
from kafka_quotas.cli.framework.help_page import PagedGroup
from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.output.render import TABLE_VIEW, print_listing
from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.control.client import ask_reload, ask_status, ask_unmute
from kafka_quotas.enforcement.session.unmute import ClientChoice

UserOption = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="The user whose clients to unmute. Default: any.")
]
ClientOption = Annotated[
    str | None, typer.Option("--client", metavar="ID", help="The client-id to unmute. Default: any of the user.")
]

app = typer.Typer(cls=PagedGroup, no_args_is_help=True, add_completion=False)


@app.callback()
def _group() -> None:
    """Enforce quotas in a proxy in front of brokers.

    Clients connect to the daemon instead of the brokers. It speaks the Kafka protocol, holds each client to the
    quotas in the store, broker by broker as Kafka does, and passes everything else on.
    """


app.command()(run)
app.command()(upgrade)
app.command()(check)
app.command()(config)
app.command()(decide)
app.command()(calibrate)


@app.command()
def unmute(
    *, client: ClientOption = None, user: UserOption = None, daemon: AskedDaemon, output: ListingView = TABLE_VIEW
) -> None:
    """End the throttle times of a client: its connections are read again at once.

    What was measured stays, so a client that is still over its limit waits again after its next request: raise or
    remove the limit first. Clients that honour the throttle time of a response wait to its end.
    """
    if not client and not user:
        raise UsageError("whose throttle time is to end?", hint="name a --client, a --user, or both")
    print_listing(unmuted_listing(ask_unmute(daemon.path(), ClientChoice(user=user, client_id=client))), output)


@app.command()
def status(*, daemon: AskedDaemon, output: ListingView = TABLE_VIEW) -> None:
    """Show who is throttled, by which quota and for how long, and the daemon's health."""
    print_listing(status_listing(ask_status(daemon.path())), output)


@app.command()
def reload(*, daemon: AskedDaemon, output: ListingView = TABLE_VIEW) -> None:
    """Have the daemon read its files and its store again, keeping connections and measurements.

    All files are checked before any is used. Where one can't be used the daemon keeps what it had; the exit code is 1.
    """
    print_listing(reload_listing(ask_reload(daemon.path())), output)
