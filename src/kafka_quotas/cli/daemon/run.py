"""`kafka-quotas daemon run` with its options and its file, and `daemon check`, which shows the settings in force.

`daemon.toml` is read with the line of every setting, and with everything that is wrong, not only the first of it. A
setting is an option of `daemon run`, by the option's name with `_` for `-`. Its section, type, limits and help are the
option's own, so that file and command line can't come apart.
Invariants: a setting of the file stands behind an option and a variable and before the default; a relative path is
relative to the folder of the file.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, get_args, get_origin

import typer
from typer.core import TyperOption

from kafka_quotas import enforcement
from kafka_quotas.cli.framework.commands import service
from kafka_quotas.cli.framework.help_page import OPTIONS_HEADING, STORE_HEADING, removed
from kafka_quotas.cli.framework.option_groups import (
    Without,
    flag,
    group_value,
    option,
    option_group,
    option_info,
    setting_of,
)
from kafka_quotas.cli.framework.store_choice import (
    COMMAND_CONFIG_VARIABLE,
    STORE_VARIABLE,
    Origin,
    Setting,
    StoreChoice,
)
from kafka_quotas.cli.options.stores import ListingView, StoreOptions, open_journal
from kafka_quotas.cli.options.windows import WindowOptions, file_source
from kafka_quotas.cli.output.listing import TABLE_VIEW, Cell, Json, columns, listed
from kafka_quotas.cli.output.render import print_listing, shown_cell, write
from kafka_quotas.commands.web.quota_page import daemon_pages
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.errors import INTERRUPTED, UsageError, near_hint
from kafka_quotas.core.extras import require_linux
from kafka_quotas.core.formats.nodes import Diagnostic, Node
from kafka_quotas.core.formats.typed_document import filled
from kafka_quotas.core.model.setting import TextForm
from kafka_quotas.stores import read_static_quotas

CONFIG: Final = "kafka_quotas.daemon_config"
"""The key of a context's `meta` under which the file that was read stands."""
TABLES: Final[Mapping[str, str]] = {
    "policy": "What a file of --policy holds: internal_principals, [[policy.entity]], [policy.thresholds].",
    "listener": "More listeners by name, [listener.NAME], each with what a file of --listener holds.",
}
"""Tables with a content of their own, in place of the files of the options of the same names."""
LISTENER_PROPERTIES: Final = "properties"
"""The table in `listeners` in place of the file of --listener-config."""
_SECTIONS: Final = {STORE_HEADING: "store", "Quota windows": "enforcement"}
"""Sections of the options that other commands have as well, by their headings."""
_STORE_VARIABLES: Final = {"store": STORE_VARIABLE, "command_config": COMMAND_CONFIG_VARIABLE}


def setting_name(option: TyperOption) -> str:
    """Return the name of an option in the file: the longest of its spellings without the dashes in front."""
    return max(option.opts, key=len).removeprefix("--").replace("-", "_")


def sections(options: Mapping[str, TyperOption]) -> dict[str, tuple[str, ...]]:
    """Return the names of the settings in each section, by the options of `daemon run`."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, each in options.items():
        setting = setting_of(each)
        section = _SECTIONS.get(each.rich_help_panel or "") if setting is None else setting.section
        if section is not None:
            found[section].append(name)
    return {section: tuple(names) for section, names in found.items()}


def value_kind(option: TyperOption) -> tuple[type[Any], bool]:
    """Return the type of an option's value, and whether it takes several."""
    annotation: Any = option.type_descriptor.annotation
    several = get_origin(annotation) is list
    kind = get_args(annotation)[0] if several else annotation
    return (kind if isinstance(kind, type) else str), several


def _form_of(option: TyperOption) -> TextForm | None:
    setting = setting_of(option)
    return None if setting is None else setting.form


def _kind_in_file(option: TyperOption) -> Any:
    kind: Any
    kind, several = value_kind(option)
    form = _form_of(option)
    if kind in (str, Path) or form is not None:
        is_text = kind is Path or (form is not None and form.integers is None)
        kind = str if is_text else str | int
    return kind | tuple[kind, ...] if several else kind


@dataclass(slots=True, kw_only=True)
class ConfigFile:
    """The settings of a configuration file that can be used, and the problems of the others."""

    path: Path
    options: Mapping[str, TyperOption]
    ctx: typer.Context
    values: dict[str, Any] = field(default_factory=dict)
    """Values by the names of the options' parameters, which Typer takes as defaults."""
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)
    _sections: dict[str, tuple[str, ...]] = field(init=False)

    def read(self) -> None:
        """Read the settings of the file."""
        self._sections = sections(self.options)
        for section, table in enforcement.toml_part(self.path, "the configuration of the daemon").parts.items():
            self._take(section, table)

    def _take(self, section: str, table: Node) -> None:
        every = (*self._sections, *TABLES)
        if section not in every:
            otherwise = f"the sections are {', '.join(every)}"
            hint = self._home_of(section) or near_hint(section, every, otherwise=otherwise)
            self._report(table, f"there is no section {section}", hint)
        elif not isinstance(table.value, dict):
            self._report(table, f"{section} is no section", f"write [{section}] on a line of its own")
        elif section == "policy":
            self._use("policy", self._table("policy"), table)
            self.problems += enforcement.policy_problems(table)
        elif section == "listener":
            self._use("listener", [self._table(f"listener.{name}") for name in table.value], table)
            for name, properties in table.parts.items():
                self.problems += enforcement.listener_problems(properties, f"listener.{name}")
        else:
            for name, value in table.parts.items():
                self._take_setting(section, name, value)

    def _take_setting(self, section: str, name: str, part: Node) -> None:
        if section == "listeners" and name == LISTENER_PROPERTIES:
            self._use("listener_config", self._table(f"{section}.{name}"), part)
            self.problems += enforcement.listener_problems(part, f"{section}.{name}", is_main=True)
            return
        known = self._sections[section]
        if name not in known:
            otherwise = removed().get(f"--{name.replace('_', '-')}") or f"it has {', '.join(known)}"
            hint = self._home_of(name) or near_hint(name, known, otherwise=otherwise)
            self._report(part, f"[{section}] has no {name}", hint)
            return
        option = self.options[name]
        _, problems = filled(_kind_in_file(option), part)
        if problems:
            self._report(part, f"{name}: {problems[0].message}")
            return
        try:
            self._use(name, self._taken(option, part.plain()), part)
        except typer.BadParameter as error:
            self._report(part, f"{name}: {error.message}")
        except UsageError as error:
            self._report(part, f"{name}: {error.message}", error.hint)

    def _use(self, name: str, value: object, part: Node) -> None:
        parameter = self.options[name].name or name
        if parameter in self.values:
            self._report(part, f"{name} is given twice", "by the setting and by a table; keep one of them")
            return
        self.values[parameter] = value
        self.lines[parameter] = part.location.line or 1

    def _taken(self, option: TyperOption, value: object) -> object:
        """Return the value as the option takes it, which refuses it if it is out of range or not of its form."""
        kind, several = value_kind(option)
        form, values = _form_of(option), value if isinstance(value, list) else [value]
        if form is not None:
            for each in values:
                form.read(str(each))
        if kind is Path:
            values = [str(self.path.absolute().parent / Path(str(each)).expanduser()) for each in values]
        elif kind is str:
            values = list(map(str, values))
        whole = values if several else values[0]
        option.get_runtime_param().coerce(whole, param=option, ctx=self.ctx)
        return whole

    def _table(self, name: str) -> str:
        return str(enforcement.table_path(self.path.absolute(), name))

    def _report(self, part: Node, message: str, hint: str | None = None) -> None:
        self.problems.append(part.problem(message, hint))

    def _home_of(self, name: str) -> str | None:
        home = next((section for section, names in self._sections.items() if name in names), None)
        return None if home is None else f"{name} belongs in [{home}]"


def options_of(ctx: typer.Context) -> Iterator[tuple[str, TyperOption]]:
    """Yield the options of the running command by their names in a file."""
    for parameter in ctx.command.params:
        if isinstance(parameter, TyperOption):
            yield setting_name(parameter), parameter


def take_config(ctx: typer.Context, value: Path | None) -> Path | None:
    """Read the file of `--config` and let its settings stand in for defaults, as the option's callback."""
    if value is None or ctx.resilient_parsing:
        return value
    found = ConfigFile(path=value, options=dict(options_of(ctx)), ctx=ctx)
    found.read()
    for problem in sorted(found.problems, key=lambda each: each.location.line or 1):
        hint = f" ({problem.hint})" if problem.hint else ""
        write(f"error: {shown_cell(f'{problem.location.place}: {problem.message}{hint}')}", sys.stderr)
    if found.problems:
        count = len(found.problems)
        raise UsageError(f"{value} can't be used: {count} problem{'s' if count > 1 else ''}")
    # The store's variables are read by the choice of the store, after Typer has put the file in place of the options.
    outdone = {name for name, variable in _STORE_VARIABLES.items() if os.environ.get(variable)}
    ctx.default_map = {name: value for name, value in found.values.items() if name not in outdone}
    ctx.meta[CONFIG] = found
    return value


@option_group("Quota windows")
class _UpstreamWindowOptions(WindowOptions):
    window_file: Path | None = option(
        "--window-file FILE",
        help="Read the window settings from a broker's server.properties; an option beats the file.",
    )
    upstream_windows: bool = flag(
        "--upstream-windows",
        help="Read the window settings from the brokers of --upstream, with --command-config; the options above win.",
    )


@option_group(OPTIONS_HEADING)
class _DaemonOptions:
    config: Path | None = option(
        "--config FILE",
        help="A TOML file with these options in sections. Options and variables beat it; see `daemon check`.",
        is_eager=True,
        callback=take_config,
    )
    settings: enforcement.DaemonSettings
    store: Annotated[StoreOptions, Without("context", "bootstrap_server", "zookeeper")]
    windows: _UpstreamWindowOptions

    def checked(self) -> tuple[enforcement.DaemonSettings, StoreChoice]:
        """Return the settings and the store that the options make."""
        servers = ",".join(map(str, self.settings.upstreams)) if self.windows.upstream_windows else None
        of_file = () if self.windows.window_file is None else (file_source(self.windows.window_file),)
        windows = self.windows.settings(*of_file, servers=servers, command_config=self.store.command_config)
        rules = replace(self.settings.rules, window=windows.client, mutation_window=windows.controller)
        settings = replace(self.settings, rules=rules).completed()
        choice = self.store.choose()
        if settings.static_quotas is not None and choice.address.kind.is_static:
            raise UsageError("--static-quotas goes below another store", hint="leave it out: --store names such a file")
        choice.check_place()
        return settings, choice


@service("DAEMON")
def run(*, asked: _DaemonOptions) -> int:
    """Run the daemon until a signal ends it: SIGTERM and Ctrl-C drain, SIGHUP reads the quotas again.

    It stays in the foreground and writes its log to standard error.
    """
    require_linux("the daemon")
    settings, choice = asked.checked()
    pages = daemon_pages(open_journal(), SystemClock())
    signal_name, cut = enforcement.run_daemon(settings, choice.open, log=sys.stderr, pages=pages)
    return INTERRUPTED if signal_name == "SIGINT" else int(cut > 0)


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
_COLUMNS = columns("section, setting!, value, origin, from")
Config = Annotated[
    Path | None, option_info("--config FILE", help="The TOML file to check. Options and variables beat it.")
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
    settings, choice = group_value(_DaemonOptions, given.params).checked()
    source = given.meta.get(CONFIG)
    files = [*([str(source.path)] if isinstance(source, ConfigFile) else ()), *_read_files(settings)]
    rows = list(_rows(given, {"store": choice.url, "command_config": choice.command_config}))
    listeners = ", ".join(str(each.listen) for each in settings.listeners)
    titles = [each.title for each in _COLUMNS]
    if files:
        write(f"note: read {', '.join(files)}", sys.stderr)
    print_listing(
        listed(
            "daemon-config",
            {"settings": [dict(zip(titles, row, strict=True)) for row in rows]},
            _COLUMNS,
            [(*row[:2], _text(row[2]), *row[3:]) for row in rows],
            caption=f"The configuration is valid: {listeners}.",
        ),
        output,
    )


def _read_files(settings: enforcement.DaemonSettings) -> Iterator[str]:
    """Read the files that the daemon reads at its start, and yield their names."""
    readers = (
        (settings.static_quotas, read_static_quotas),
        (settings.policy_file, enforcement.read_policy_file),
        (settings.cost_model, enforcement.read_cost_model),
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
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value] or None
    if isinstance(value, Enum):
        return str(value.value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _text(value: Json) -> Cell:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, int | float) else "not set" if value is None else str(value)
