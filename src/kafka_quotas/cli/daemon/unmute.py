"""`kafka-quotas daemon unmute`: a throttle time ended by hand."""

from typing import Annotated

import typer

from kafka_quotas.cli.daemon.options import Control
from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.output.render import Listing, Table, columns, print_listing
from kafka_quotas.cli.output.view import TABLE_VIEW
from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.control.client import ask_unmute
from kafka_quotas.enforcement.session.unmute import ClientChoice, Unmuted, unmuted_to_json

_COLUMNS = columns("user, client-id, broker, quota, connections>, remaining>")

UserOption = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="The user whose clients are let go. Default: any.")
]
ClientOption = Annotated[
    str | None, typer.Option("--client", metavar="ID", help="The client-id that is let go. Default: any of the user.")
]


def unmute(
    *, client: ClientOption = None, user: UserOption = None, control: Control = None, output: ListingView = TABLE_VIEW
) -> None:
    """End the throttle times of a client: its connections are read again at once.

    What was measured stays, so a client that is still over its limit waits again after its next request: raise or
    remove the limit first. Clients that wait by themselves, as told in a response, do so to the end.
    """
    if not client and not user:
        raise UsageError("whose throttle time is to end?", hint="name a --client, a --user, or both")
    print_listing(unmuted_listing(ask_unmute(control, ClientChoice(user=user, client_id=client))), output)


def unmuted_listing(result: Unmuted) -> Listing:
    """List the clients that the daemon released, one row each."""
    names = [(row.user, row.client_id, row.broker, row.quota, row.connections) for row in result.unmuted]
    left = [row.remaining_ms for row in result.unmuted]
    return Listing(
        noun="daemon-unmute",
        items="unmuted",
        data=unmuted_to_json(result),
        table=Table(
            columns=_COLUMNS,
            rows=[(*name, f"{ms} ms") for name, ms in zip(names, left, strict=True)],
            caption="let go:" if names else "nobody of that name is throttled",
        ),
        records=Table(columns=_COLUMNS, rows=[(*name, ms) for name, ms in zip(names, left, strict=True)]),
    )
