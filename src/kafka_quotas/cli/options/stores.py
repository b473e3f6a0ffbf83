"""The options of stores and outputs, so that one thing has one name and one help text everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.completion.values import complete_contexts, complete_forms, complete_stores
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING, STORE_HEADING
from kafka_quotas.cli.framework.listing_options import parse_view, with_selection
from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.cli.framework.store_choice import StoreChoice, choose_store
from kafka_quotas.cli.output.view import Output, View

CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        rich_help_panel=STORE_HEADING,
        help="A file of client properties by Kafka's own names (security.protocol, sasl.jaas.config, ...).",
    ),
]
Yes = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Don't ask before the store of a protected context changes."),
]
OutputForm = Annotated[
    Output,
    typer.Option(
        "--output",
        "-o",
        metavar="FORM",
        help="table, json, yaml, csv or markdown.",
        rich_help_panel=OUTPUT_HEADING,
    ),
]
"""For what is no listing: a report or a calculation."""
ListingView = Annotated[
    View,
    typer.Option(
        "--output",
        "-o",
        metavar="FORM",
        help="table, json, yaml, csv or markdown.",
        rich_help_panel=OUTPUT_HEADING,
        parser=parse_view,
        callback=with_selection,
        autocompletion=complete_forms,
    ),
]
"""For a listing; with it come --columns and --limit, see `selection`."""


@option_group(STORE_HEADING)
class StoreOptions:
    """The options that choose a store."""

    store: str | None = option(
        "--store URL",
        help="local:PATH, zk://HOST:PORT/CHROOT, kafka://HOST:PORT or static:FILE. Default: the context in use, else "
        "the local store in your data folder.",
        autocompletion=complete_stores,
    )
    context: str | None = option(
        "--context NAME",
        help="The store and login of a context, see 'kafka-quotas context'. Default: the context in use.",
        autocompletion=complete_contexts,
    )
    bootstrap_server: str | None = option(
        "--bootstrap-server HOST:PORT",
        help="Short for --store kafka://HOST:PORT; several brokers are separated by commas.",
    )
    zookeeper: str | None = option(
        "--zookeeper HOST:PORT", help="Short for --store zk://HOST:PORT; a chroot may follow, as in HOST:PORT/kafka."
    )
    command_config: CommandConfig = None

    @property
    def names_store(self) -> bool:
        """Whether an option names the store."""
        return any(name is not None for name in (self.store, self.context, self.bootstrap_server, self.zookeeper))

    def choose(self) -> StoreChoice:
        """Choose the store by these options, the environment and the file of contexts.

        Raises:
            UsageError: Two options name a store, one is empty, or there is no such context.
        """
        return choose_store(
            store=self.store,
            bootstrap_server=self.bootstrap_server,
            zookeeper=self.zookeeper,
            command_config=self.command_config,
            context=self.context,
        )


StoreOrContext = Annotated[StoreOptions, Without("bootstrap_server", "zookeeper")]
