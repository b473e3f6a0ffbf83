"""The options of stores, measured usage, the journal and outputs, with one name and one help text everywhere."""

import os
from contextlib import closing, suppress
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_quotas.cli.completion.values import OF_ITSELF, complete_contexts
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING, STORE_HEADING
from kafka_quotas.cli.framework.option_groups import Without, option, option_group, option_info
from kafka_quotas.cli.framework.store_choice import Origin, Setting, StoreChoice, choose_known_store, choose_store
from kafka_quotas.cli.output.listing import Output, View
from kafka_quotas.cli.output.render import warn
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.value_format import parse_duration_ms
from kafka_quotas.stores import LAST, Journal, JournalWriter, absolute_path, default_journal_path, new_run_id

if TYPE_CHECKING:
    from kafka_quotas.commands.insight.usage import UsageReading, UsageSource

DeclaredFiles = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE",
        help="Files of quotas, our own (YAML, JSON or TOML) or another tool's, folders of them, or - for a pipe.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    option_info(
        "--command-config FILE",
        rich_help_panel=STORE_HEADING,
        help="A file of client properties by Kafka's own names (security.protocol, sasl.jaas.config, ...).",
    ),
]
Yes = Annotated[bool, option_info("--yes", "-y", help="Don't ask before the store of a protected context changes.")]
OutputForm = Annotated[
    Output,
    option_info("-o", "--output FORM", help="table, json, yaml, csv or markdown.", rich_help_panel=OUTPUT_HEADING),
]
"""For what is no listing: a report or a calculation."""
ListingView = View
"""For a listing, whose rows and columns may be chosen."""
ChangesView = Annotated[View, Without("columns")]
"""For changes, made or to be made, which are shown with every column."""


def checked_files(files: list[str] | None, command: str) -> list[str]:
    """Return the named files."""
    if not files:
        raise UsageError("no file is named", hint=f"kafka-quotas {command} quotas.yaml, or a folder, or - for a pipe")
    if not all(name.strip() for name in files):
        raise UsageError("a file name is empty", hint="is the shell variable behind it set?")
    return files


@option_group(STORE_HEADING)
class StoreOptions:
    """The options that choose a store."""

    store: str | None = option(
        "--store URL",
        help="local:PATH, zk://HOST:PORT/CHROOT, kafka://HOST:PORT or static:FILE. Default: the context in use, else "
        "the local store in your data folder.",
        autocompletion=OF_ITSELF["--store"],
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
        return choose_store(**{each.name: getattr(self, each.name) for each in fields(self)})


StoreOrContext = Annotated[StoreOptions, Without("bootstrap_server", "zookeeper")]


Policy = Annotated[
    Path | None,
    option_info(
        "--policy FILE",
        help="The policy file of a daemon, whose groups count beside those of the store. FILE.toml#policy is a table "
        "in the daemon's configuration.",
    ),
]


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


def _cluster_id(choice: StoreChoice) -> str | None:
    with suppress(KafkaQuotasError), closing(choice.open()) as store:
        return store.cluster_id()
    return None


def _check_is_one(choice: StoreChoice, followed: StoreChoice) -> None:
    """Check that two stores are one, by their addresses, else by the ids of their clusters."""
    here, there = choice.address, followed.address
    if here.is_same_place(there):
        return
    ids = [_cluster_id(each) for each in (choice, followed) if here.servers and there.servers]
    if ids and None in ids:
        warn(f"the daemon takes its limits from {there}; whether that is the cluster of {here} is not known")
    elif not ids or ids[0] != ids[1]:
        raise UsageError(
            f"the daemon takes its limits from {there}, not from {here}",
            hint="limits and rates of two stores don't go together: name no store to read the daemon's own, or another "
            "daemon by --control",
        )


JOURNAL_VARIABLE = "KAFKA_QUOTAS_JOURNAL"
_OFFERED = 20

Reason = Annotated[str | None, option_info("--reason TEXT", help="Why, for the journal that revert reads.")]


def journal_setting() -> Setting:
    """Return the path of the journal: KAFKA_QUOTAS_JOURNAL, else the file in the user's state folder."""
    chosen = os.environ.get(JOURNAL_VARIABLE)
    if chosen:
        return Setting(value=str(absolute_path(chosen)), origin=Origin.VARIABLE, source=JOURNAL_VARIABLE)
    return Setting(value=str(default_journal_path()), origin=Origin.DEFAULT)


def open_journal() -> Journal:
    """Return the journal of this user."""
    return Journal(Path(journal_setting().value or os.devnull))


def complete_changes(incomplete: str) -> list[str]:
    """Return `last` and the ids of the newest changes in the journal that begin so, for completion."""
    try:
        ids = dict.fromkeys(entry.entry_id for entry in islice(open_journal().newest_first(), _OFFERED))
    except KafkaQuotasError:
        ids = {}
    return [each for each in (LAST, *ids) if each.startswith(incomplete)]


def recorder_for(command: str, *, reason: str | None) -> JournalWriter:
    """Return the writer of `command`'s changes to the journal."""
    if reason is not None and not reason.strip():
        raise UsageError("--reason is empty", hint="is the shell variable behind it set?")
    clock = SystemClock()
    return JournalWriter(
        journal=open_journal(),
        clock=clock,
        entry_id=new_run_id(clock),
        command=command,
        user=_user_name(),
        warn=warn,
        reason=reason,
    )


def _user_name() -> str:
    import getpass  # noqa: PLC0415 - only a change needs it

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        return str(os.getuid())


_LONGEST_MS = 366 * 24 * 3_600_000

For = Annotated[
    str | None,
    option_info(
        "--for DURATION",
        help="Note in the journal that this is to be undone after, for example, 30min or 2h. 'revert --due' undoes it.",
    ),
]


def parse_for_ms(text: str | None) -> int | None:
    """Parse the duration of `--for` into milliseconds, None without it."""
    if text is None:
        return None
    length_ms = int(parse_duration_ms(text))
    if not 1000 <= length_ms <= _LONGEST_MS:
        raise UsageError(f"--for {text} is out of range", hint="between 1s and 8784h, for example 30min or 2h")
    return length_ms
