"""Reading of `daemon.toml`: every setting with its line, and everything that is wrong, not only the first of it.

A setting is an option of `daemon run`, by the option's name with `_` for `-`. Its section, type, limits and help are
the option's own, so that file and command line can't come apart.
Invariants: a setting of the file stands behind an option and a variable and before the default; a relative path is
relative to the folder of the file.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import typer
from typer.core import TyperOption

from kafka_quotas.cli.framework.help_page import STORE_HEADING
from kafka_quotas.cli.framework.option_groups import setting_of
from kafka_quotas.cli.framework.removed import REMOVED
from kafka_quotas.cli.framework.store_choice import COMMAND_CONFIG_VARIABLE, STORE_VARIABLE
from kafka_quotas.cli.output.render import shown_cell, write
from kafka_quotas.core.errors import UsageError, near_hint
from kafka_quotas.core.formats.nodes import Diagnostic, Node
from kafka_quotas.enforcement import check_property, flat, policy_problems, property_text, table_path, toml_part

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
    """Return the names of the settings in each section.

    Args:
        options: The options of `daemon run` by their names in the file.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, option in options.items():
        setting = setting_of(option)
        section = _SECTIONS.get(option.rich_help_panel or "") if setting is None else setting.section
        if section is not None:
            found[section].append(name)
    return {section: tuple(names) for section, names in found.items()}


def value_kind(option: TyperOption) -> tuple[type[Any], bool]:
    """Return the type of an option's value, and whether it takes several."""
    annotation: Any = option.type_descriptor.annotation
    several = get_origin(annotation) is list
    kind = get_args(annotation)[0] if several else annotation
    return (kind if isinstance(kind, type) else str), several


@dataclass(slots=True, kw_only=True)
class ConfigFile:
    """The settings of a configuration file that can be used, and the problems of the others."""

    path: Path
    options: Mapping[str, TyperOption]
    """The options of `daemon run` by their names in the file."""
    ctx: typer.Context
    values: dict[str, Any] = field(default_factory=dict)
    """Values by the names of the options' parameters, which Typer takes as defaults."""
    lines: dict[str, int] = field(default_factory=dict)
    """The line of each value."""
    problems: list[Diagnostic] = field(default_factory=list)
    _sections: dict[str, tuple[str, ...]] = field(init=False)

    def read(self) -> None:
        """Read the settings of the file.

        Raises:
            UsageError: The file can't be read, or is not TOML.
        """
        self._sections = sections(self.options)
        for section, table in toml_part(self.path, "the configuration of the daemon").parts.items():
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
            self.problems += policy_problems(table)
        elif section == "listener":
            self._use("listener", [self._table(f"listener.{name}") for name in table.value], table)
            for name, properties in table.parts.items():
                self._take_listener(f"listener.{name}", properties)
        else:
            for name, value in table.parts.items():
                self._take_setting(section, name, value)

    def _take_listener(self, name: str, table: Node, *, needed: tuple[str, ...] = ("listen", "upstream")) -> None:
        """Look at a listener's properties, each on its own."""
        if not isinstance(table.value, dict):
            self._report(table, f"{name} is no table", f"write [{name}] on a line of its own")
            return
        entries = dict(flat(table))
        for entry, part in entries.items():
            if not needed and entry in ("listen", "upstream"):
                self._report(part, f"{entry} can't be given here", "[listeners] and [upstream] say it")
                continue
            try:
                check_property(entry, property_text(entry, part))
            except UsageError as error:
                message = error.message if entry in error.message else f"{entry}: {error.message}"
                self._report(part, message, error.hint)
        missing = [entry for entry in needed if entry not in entries]
        if missing:
            self._report(table, f"{' and '.join(missing)} missing", "a listener needs both, as HOST:PORT")

    def _take_setting(self, section: str, name: str, part: Node) -> None:
        if section == "listeners" and name == LISTENER_PROPERTIES:
            self._use("listener_config", self._table(f"{section}.{name}"), part)
            self._take_listener(f"{section}.{name}", part, needed=())
            return
        known = self._sections[section]
        if name not in known:
            otherwise = REMOVED.get(f"--{name.replace('_', '-')}") or f"it has {', '.join(known)}"
            hint = self._home_of(name) or near_hint(name, known, otherwise=otherwise)
            self._report(part, f"[{section}] has no {name}", hint)
            return
        try:
            self._use(name, self._checked(self.options[name], part.plain()), part)
        except ValueError as error:
            self._report(part, f"{name}: {error}")
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

    def _checked(self, option: TyperOption, value: object) -> object:
        """Return the value as the option takes it.

        Raises:
            ValueError: It is of another type.
            typer.BadParameter: The option refuses it.
            UsageError: It has not the form of the setting.
        """
        kind, several = value_kind(option)
        given = value if several and isinstance(value, list) else [value]
        taken = [_of_kind(kind, each) for each in given]
        setting = setting_of(option)
        if setting is not None and setting.form is not None:
            for each in given:
                if isinstance(each, int | float) and (setting.form.integers is None or isinstance(each, float)):
                    raise ValueError(f"{each} is a number, not a text")
                setting.form.read(str(each))
        if kind is Path:
            taken = [str(self.path.absolute().parent / Path(str(each)).expanduser()) for each in taken]
        whole = taken if several else taken[0]
        option.get_runtime_param().coerce(whole, param=option, ctx=self.ctx)
        return whole

    def _table(self, name: str) -> str:
        return str(table_path(self.path.absolute(), name))

    def _report(self, part: Node, message: str, hint: str | None = None) -> None:
        self.problems.append(part.problem(message, hint))

    def _home_of(self, name: str) -> str | None:
        home = next((section for section, names in self._sections.items() if name in names), None)
        return None if home is None else f"{name} belongs in [{home}]"


def _of_kind(kind: type[Any], value: object) -> object:
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"{value!r} is neither true nor false")
        return value
    if isinstance(value, bool | dict | list) or value is None:
        raise ValueError(f"{_noun(value)} is no value for it")
    if kind is int and not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    if kind is float and not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return value if kind in (int, float) else str(value)


def _noun(value: object) -> str:
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else str(value).lower()


def options_of(ctx: typer.Context) -> Iterator[tuple[str, TyperOption]]:
    """Yield the options of the running command by their names in a file."""
    for parameter in ctx.command.params:
        if isinstance(parameter, TyperOption):
            yield setting_name(parameter), parameter


def take_config(ctx: typer.Context, value: Path | None) -> Path | None:
    """Read the file of `--config` and let its settings stand in for defaults, as the option's callback.

    Raises:
        UsageError: The file can't be read or used. Everything that is wrong was written to standard error.
    """
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
