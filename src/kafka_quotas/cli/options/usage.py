"""The options that say where rates and throttle times come from."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_quotas.cli.framework.option_groups import option, option_group
from kafka_quotas.cli.framework.store_choice import StoreChoice, choose_known_store
from kafka_quotas.cli.output.render import warn
from kafka_quotas.core.errors import UsageError

if TYPE_CHECKING:
    from kafka_quotas.commands.insight.usage_source import UsageReading, UsageSource


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
        """Read the usage from the source that the options name, or else the context in force.

        Raises:
            UsageError: The options contradict each other, or as `read_usage` does.
            KafkaQuotasError: As `read_usage` does.
        """
        from kafka_quotas.commands.insight import usage_source  # noqa: PLC0415 - most runs of describe ask nobody

        return usage_source.read_usage(self.source(choice))

    def source(self, choice: StoreChoice) -> "UsageSource":
        """Return the source that the options name, or else the context in force.

        A context may name both sources: its daemon is asked, which counts what it holds back.

        Raises:
            UsageError: The options contradict each other, or the file of metric names can't be used.
        """
        from kafka_quotas.commands.insight import usage_source  # noqa: PLC0415 - as above

        if self.control is not None and self.prometheus:
            raise UsageError(
                "--control and --prometheus exclude each other", hint="each names the source of the figures"
            )
        control, urls, context = self.control, tuple(self.prometheus or ()), choice.context
        if context is not None and control is None and not urls:
            control = context.control_path
            urls = () if control is not None else context.prometheus
        source = usage_source.UsageSource(control=control, metrics_urls=urls)
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
    """Return the chosen store, or else the one with the address that a daemon follows.

    Raises:
        UsageError: The daemon takes its limits from another store than the chosen one.
    """
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
    from kafka_quotas.commands.quotas.cluster import cluster_id  # noqa: PLC0415 - seldom needed

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
