"""The options of stores, of measured usage and of outputs, with one name and one help text everywhere."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_quotas.cli.completion.values import complete_contexts, complete_forms, complete_stores
from kafka_quotas.cli.framework.commands import with_selection
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING, STORE_HEADING
from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.cli.framework.store_choice import StoreChoice, choose_known_store, choose_store
from kafka_quotas.cli.output.listing import Output, View, parse_view
from kafka_quotas.cli.output.render import warn
from kafka_quotas.core.errors import UsageError

if TYPE_CHECKING:
    from kafka_quotas.commands.insight.usage import UsageReading, UsageSource

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
        """Choose the store by these options, the environment and the file of contexts."""
        return choose_store(
            store=self.store,
            bootstrap_server=self.bootstrap_server,
            zookeeper=self.zookeeper,
            command_config=self.command_config,
            context=self.context,
        )


StoreOrContext = Annotated[StoreOptions, Without("bootstrap_server", "zookeeper")]


@option_group("Measured usage")
class UsageOptions:
    """The options that name the source of rates and throttle times."""

    control: Path | None = option(
        "--control PATH",
        help="Ask the daemon behind this control socket. Default, unless --prometheus is given: the one of the "
        "context, else that of your only daemon.",
    )
    prometheus: list[str] | None = option(
        "--prometheus URL",
        help="Ask the brokers' own metrics instead: an exporter (http://BROKER:PORT/metrics; may be repeated) or a "
        "Prometheus server (http://HOST:9090).",
    )
    metric_names: Path | None = option(
        "--metric-names FILE",
        help="With --prometheus: a TOML file that describes the names of the metrics, if none of the three usual "
        "styles fits.",
    )

    @property
    def named(self) -> list[str]:
        """The options on the command line, as they are spelled."""
        spelled = {"--control": self.control, "--prometheus": self.prometheus, "--metric-names": self.metric_names}
        return [name for name, value in spelled.items() if value]

    def read(self, choice: StoreChoice) -> "UsageReading":
        """Read the usage from the source that the options name, or else the context in force."""
        from kafka_quotas.commands.insight import usage  # noqa: PLC0415 - most runs of describe ask nobody

        return usage.read_usage(self.source(choice))

    def source(self, choice: StoreChoice) -> "UsageSource":
        """Return the source that the options name, or else the context in force.

        A context may name both sources: its daemon is asked, which counts what it holds back.
        """
        from kafka_quotas.commands.insight import usage  # noqa: PLC0415 - as above

        if self.control is not None and self.prometheus:
            raise UsageError(
                "--control and --prometheus exclude each other", hint="each names the source of the figures"
            )
        control, urls, context = self.control, tuple(self.prometheus or ()), choice.context
        if context is not None and control is None and not urls:
            control = context.control_path
            urls = () if control is not None else context.prometheus
        source = usage.UsageSource(control=control, metrics_urls=urls)
        if self.metric_names is not None:
            if not urls:
                raise UsageError("--metric-names goes with --prometheus")
            from kafka_quotas.core.formats.metric_names import read_metric_names  # noqa: PLC0415 - as above

            source = replace(source, names=read_metric_names(self.metric_names))
        return source


def store_for(choice: StoreChoice, reading: "UsageReading") -> StoreChoice:
    """Return the chosen store, or else the one that the daemon follows."""
    return store_followed(choice, reading.store_url)


def store_followed(choice: StoreChoice, store_url: str | None) -> StoreChoice:
    """Return the chosen store, or else the one with the address that a daemon follows."""
    if store_url is None:
        return choice
    followed = choose_known_store(store_url)
    if not choice.chosen:
        return followed
    if store_url not in choice.same_stores:
        _check_is_one(choice, followed)
        choice.same_stores.add(store_url)
    return choice


def _check_is_one(choice: StoreChoice, followed: StoreChoice) -> None:
    """Check that two stores are one, by their addresses, else by the ids of their clusters."""
    from kafka_quotas.commands.quotas.describe import cluster_id  # noqa: PLC0415 - seldom needed

    here, there = choice.address, followed.address
    if here.is_same_place(there):
        return
    ids = [cluster_id(each.address, each.settings()) for each in (choice, followed) if here.servers and there.servers]
    if ids and None in ids:
        warn(f"the daemon takes its limits from {there}; whether that is the cluster of {here} is not known")
    elif not ids or ids[0] != ids[1]:
        raise UsageError(
            f"the daemon takes its limits from {there}, not from {here}",
            hint="limits and rates of two stores don't go together: name no store to read the daemon's own, or another "
            "daemon by --control",
        )
