"""`kafka-quotas daemon run` with its options, and `daemon check`, which shows the settings in force."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from kafka_quotas.cli.daemon.config_file import CONFIG, ConfigFile, options_of, sections, take_config
from kafka_quotas.cli.framework.commands import service
from kafka_quotas.cli.framework.help_page import OPTIONS_HEADING
from kafka_quotas.cli.framework.option_groups import Without, group_value, option, option_group
from kafka_quotas.cli.framework.store_choice import Origin, Setting, StoreChoice
from kafka_quotas.cli.options.journal import open_journal
from kafka_quotas.cli.options.stores import ListingView, StoreOptions
from kafka_quotas.cli.options.windows import WindowOptions
from kafka_quotas.cli.output.json_text import Json
from kafka_quotas.cli.output.render import TABLE_VIEW, Cell, Listing, Table, columns, print_listing, write
from kafka_quotas.commands.web.quota_page import daemon_pages
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.errors import INTERRUPTED, UsageError
from kafka_quotas.enforcement import DaemonSettings, read_cost_model, read_policy_file, run_daemon
from kafka_quotas.stores import read_static_quotas


@option_group("Quota windows")
class UpstreamWindowOptions(WindowOptions):
    """The options about the quota windows, which the brokers of the cluster may be asked for."""

    upstream_windows: bool = option(
        "--upstream-windows",
        default=False,
        help="Read the window settings from the brokers of --upstream, with --command-config; the options above win.",
    )


@option_group(OPTIONS_HEADING)
class DaemonOptions:
    """All options of `daemon run`."""

    config: Path | None = option(
        "--config FILE",
        help="A TOML file with these options in sections. Options and variables beat it; see `daemon check`.",
        is_eager=True,
        callback=take_config,
    )
    settings: DaemonSettings
    store: Annotated[StoreOptions, Without("context", "bootstrap_server", "zookeeper")]
    windows: UpstreamWindowOptions

    def checked(self) -> tuple[DaemonSettings, StoreChoice]:
        """Return the settings and the store that the options make.

        Raises:
            UsageError: Two options contradict each other, or a file can't be used.
            StoreError: The brokers can't be asked for their windows.
        """
        servers = ",".join(map(str, self.settings.upstreams)) if self.windows.upstream_windows else None
        windows = self.windows.settings(servers=servers, command_config=self.store.command_config)
        rules = replace(self.settings.rules, window=windows.client, mutation_window=windows.controller)
        settings = replace(self.settings, rules=rules).completed()
        choice = self.store.choose()
        if settings.static_quotas is not None and choice.address.kind.is_static:
            raise UsageError("--static-quotas goes below another store", hint="leave it out: --store names such a file")
        choice.check_place()
        return settings, choice


@service("DAEMON")
def run(*, asked: DaemonOptions) -> int:
    """Run the daemon until a signal ends it: SIGTERM and Ctrl-C drain, SIGHUP reads the quotas again.

    It stays in the foreground and writes its log to standard error.
    """
    settings, choice = asked.checked()
    pages = daemon_pages(open_journal(), SystemClock())
    result = run_daemon(settings, choice.open, log=sys.stderr, pages=pages)
    return INTERRUPTED if result.signal_name == "SIGINT" else int(result.cut_connections > 0)


_FILE = "file"
_ORIGINS = {
    "COMMANDLINE": Origin.OPTION.value,
    "ENVIRONMENT": Origin.VARIABLE.value,
    "DEFAULT_MAP": _FILE,
    "DEFAULT": Origin.DEFAULT.value,
}
"""Typer's names of where a value came from, and ours."""
_Row: TypeAlias = tuple[str, str, Json, str, str | None]
"""Section, name, value, origin, and the file and line, variable or option that it came from."""
_TITLES = ("section", "setting", "value", "origin", "from")
_COLUMNS = columns("section, setting!, value, origin, from")
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The TOML file to check. Options and variables beat it.")
]
OVERRIDES: Final = {"ignore_unknown_options": True, "allow_extra_args": True}
"""Settings of a context that takes the options of `daemon run` without declaring them."""


@service("DAEMON")
def check(ctx: typer.Context, *, config: Config = None, output: ListingView = TABLE_VIEW) -> None:
    """Check a configuration as `daemon run` would, and show every setting in force and where it came from.

    Any option of `daemon run` may follow. An option beats a variable, a variable beats the file of --config, and that
    beats the default. Everything that is wrong with the file is listed at once, with its line, and every file that it
    names is read. Nothing is started, and neither the store nor a broker is asked unless --upstream-windows is given.
    The exit code is 2 if anything is wrong.
    """
    assert ctx.parent is not None
    arguments = [*(() if config is None else ("--config", str(config))), *ctx.args]
    command: Any = ctx.parent.command
    given = command.commands["run"].make_context("run", arguments, parent=ctx.parent)
    settings, choice = group_value(DaemonOptions, given.params).checked()
    source = given.meta.get(CONFIG)
    files = [*([str(source.path)] if isinstance(source, ConfigFile) else ()), *_read_files(settings)]
    rows = list(_rows(given, {"store": choice.url, "command_config": choice.command_config}))
    listeners = ", ".join(str(each.listen) for each in settings.listeners)
    if files:
        write(f"note: read {', '.join(files)}", sys.stderr)
    print_listing(
        Listing(
            noun="daemon-config",
            items="settings",
            data={"settings": [dict(zip(_TITLES, row, strict=True)) for row in rows]},
            table=Table(
                columns=_COLUMNS,
                rows=[(*row[:2], _text(row[2]), *row[3:]) for row in rows],
                caption=f"The configuration is valid: {listeners}.",
            ),
        ),
        output,
    )


def _read_files(settings: DaemonSettings) -> Iterator[str]:
    """Read the files that the daemon reads at its start, and yield their names."""
    readers = (
        (settings.static_quotas, read_static_quotas),
        (settings.policy_file, read_policy_file),
        (settings.cost_model, read_cost_model),
    )
    for path, read in readers:
        if path is not None:
            read(path)
            yield str(path)


def _rows(ctx: typer.Context, of_store: Mapping[str, Setting]) -> Iterator[_Row]:
    source, options = ctx.meta.get(CONFIG), dict(options_of(ctx))
    lines = source.lines if isinstance(source, ConfigFile) else {}
    for section, names in sections(options).items():
        for name in names:
            parameter = options[name].name or name
            origin = _ORIGINS[str(getattr(ctx.get_parameter_source(parameter), "name", "DEFAULT"))]
            chosen = of_store.get(name)
            if chosen is not None and origin == Origin.DEFAULT:  # a variable or a context may name the store
                yield section, name, chosen.value, chosen.origin.value, chosen.source
                continue
            where = {
                Origin.OPTION: f"--{name.replace('_', '-')}",
                Origin.VARIABLE: str(options[name].envvar),
                _FILE: f"{ctx.params.get('config')}:{lines.get(parameter)}",
            }
            yield section, name, _plain(ctx.params.get(parameter)), origin, where.get(origin)


def _plain(value: object) -> Json:
    """Return a value as JSON has it."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value] or None
    if isinstance(value, Enum):
        return str(value.value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _text(value: Json) -> Cell:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, int | float) else "not set" if value is None else str(value)
