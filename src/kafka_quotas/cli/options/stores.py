"""Option types that several commands share, so that one thing has one name and one help text everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.completion.values import (
    complete_clients,
    complete_contexts,
    complete_entity_names,
    complete_entity_types,
    complete_forms,
    complete_ips,
    complete_stores,
    complete_users,
)
from kafka_quotas.cli.framework.listing_options import parse_view, with_selection
from kafka_quotas.cli.output.view import Output, View

STORE_PANEL = "Store"

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Where quotas live: local:PATH, zk://HOST:PORT/CHROOT, kafka://HOST:PORT or static:FILE. "
        "Without it the variable KAFKA_QUOTAS_STORE counts, then the context in use, else the local store in your "
        "data folder.",
        rich_help_panel=STORE_PANEL,
        autocompletion=complete_stores,
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="The store and login of a context, see 'kafka-quotas context'. Without it and without a store the "
        "variable KAFKA_QUOTAS_CONTEXT counts, else the context in use.",
        rich_help_panel=STORE_PANEL,
        autocompletion=complete_contexts,
    ),
]
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="Short for --store kafka://HOST:PORT; several brokers are separated by commas.",
        rich_help_panel=STORE_PANEL,
    ),
]
Zookeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT",
        help="Short for --store zk://HOST:PORT; a chroot may follow, as in HOST:PORT/kafka.",
        rich_help_panel=STORE_PANEL,
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="A file of client properties by Kafka's own names (security.protocol, sasl.jaas.config, ...). "
        "Without it the variable KAFKA_QUOTAS_COMMAND_CONFIG counts.",
        rich_help_panel=STORE_PANEL,
    ),
]
OutputForm = Annotated[
    Output, typer.Option("--output", "-o", metavar="FORM", help="table, json, yaml, csv or markdown.")
]
"""For what is no listing: a report or a calculation."""
ListingView = Annotated[
    View,
    typer.Option(
        "--output",
        "-o",
        metavar="FORM",
        help="table, json, yaml, csv or markdown.",
        parser=parse_view,
        callback=with_selection,
        autocompletion=complete_forms,
    ),
]
"""For a listing; with it come --columns and --limit, see `selection`."""

User = Annotated[
    str | None,
    typer.Option(
        "--user", metavar="NAME", help="A user (principal) by name, without 'User:'.", autocompletion=complete_users
    ),
]
Client = Annotated[
    str | None, typer.Option("--client", metavar="ID", help="A client-id.", autocompletion=complete_clients)
]
Ip = Annotated[
    str | None, typer.Option("--ip", metavar="ADDRESS", help="An address or host name.", autocompletion=complete_ips)
]
UserDefault = Annotated[
    bool, typer.Option("--user-default", "--user-defaults", help="The default for users without a quota of their own.")
]
ClientDefault = Annotated[
    bool,
    typer.Option("--client-default", "--client-defaults", help="The default for client-ids without one of their own."),
]
IpDefault = Annotated[
    bool, typer.Option("--ip-default", "--ip-defaults", help="The default for addresses without one of their own.")
]
UserAny = Annotated[bool, typer.Option("--user-any", help="Any user, the default included.")]
ClientAny = Annotated[bool, typer.Option("--client-any", help="Any client-id, the default included.")]
IpAny = Annotated[bool, typer.Option("--ip-any", help="Any address, the default included.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Only entities with no other types than those named: no pairs for --user.")
]
ThresholdTopic = Annotated[
    str | None,
    typer.Option("--topic", metavar="NAME", help="A topic, for its threshold; kept in a local store alone."),
]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker", metavar="ID", help="A broker by node id, for its total threshold; in a local store alone."
    ),
]
BrokerDefault = Annotated[
    bool, typer.Option("--broker-default", "--broker-defaults", help="The total of brokers without one of their own.")
]
EntityType = Annotated[
    list[str] | None,
    typer.Option(
        "--entity-type",
        metavar="TYPE",
        help="users, clients or ips, as in kafka-configs; the first --entity-type goes with the first --entity-name "
        "or --entity-default, and so on.",
        autocompletion=complete_entity_types,
    ),
]
ClientName = Annotated[
    list[str] | None,
    typer.Option(
        "--entity-name",
        metavar="NAME",
        help="The name that goes with an --entity-type.",
        autocompletion=complete_entity_names,
    ),
]
EntityDefault = Annotated[
    int,
    typer.Option(
        "--entity-default",
        count=True,
        show_default=False,
        help="The default of an --entity-type, in place of a name.",
    ),
]
