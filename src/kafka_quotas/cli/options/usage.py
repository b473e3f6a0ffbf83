"""The options that say where rates and throttle times come from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_quotas.cli.framework.store_choice import StoreChoice, choose_known_store
from kafka_quotas.core.errors import UsageError

if TYPE_CHECKING:
    from kafka_quotas.commands.insight.usage_source import UsageReading

PANEL = "Usage"

UsageControl = Annotated[
    Path | None,
    typer.Option(
        "--control",
        metavar="PATH",
        help="Ask the daemon behind this control socket. Without it and --prometheus your only daemon is asked.",
        rich_help_panel=PANEL,
    ),
]
Prometheus = Annotated[
    list[str] | None,
    typer.Option(
        "--prometheus",
        metavar="URL",
        help="Ask the brokers' own metrics instead: an exporter (http://BROKER:PORT/metrics; may be repeated) or a "
        "Prometheus server (http://HOST:9090).",
        rich_help_panel=PANEL,
    ),
]
MetricNamesFile = Annotated[
    Path | None,
    typer.Option(
        "--metric-names",
        metavar="FILE",
        help="With --prometheus: a TOML file that tells how the metrics are named, where none of the three usual "
        "styles fits.",
        rich_help_panel=PANEL,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageOptions:
    """These options as they were typed."""

    control: Path | None = None
    prometheus: Sequence[str] = ()
    metric_names: Path | None = None

    @property
    def given(self) -> list[str]:
        """The options that were given, as they are spelled."""
        spelled = {"--control": self.control, "--prometheus": self.prometheus, "--metric-names": self.metric_names}
        return [option for option, value in spelled.items() if value]


def read_from(options: UsageOptions) -> "UsageReading":
    """Read the usage from the source that the options name.

    Raises:
        UsageError: The options contradict each other, or as `read_usage` does.
        KafkaQuotasError: As `read_usage` does.
    """
    from kafka_quotas.commands.insight import usage_source  # noqa: PLC0415 - most runs of describe ask nobody

    if options.control is not None and options.prometheus:
        raise UsageError("--control and --prometheus exclude each other", hint="each names the source of the figures")
    if options.metric_names is not None and not options.prometheus:
        raise UsageError("--metric-names goes with --prometheus")
    source = usage_source.UsageSource(control=options.control, metrics_urls=tuple(options.prometheus))
    if options.metric_names is not None:
        from kafka_quotas.commands.insight.usage_source import read_metric_names  # noqa: PLC0415

        source = replace(source, names=read_metric_names(options.metric_names))
    return usage_source.read_usage(source)


def store_for(choice: StoreChoice, reading: "UsageReading") -> StoreChoice:
    """Return the chosen store, or else the one that the daemon follows."""
    return choice if choice.chosen or reading.store_url is None else choose_known_store(reading.store_url)
