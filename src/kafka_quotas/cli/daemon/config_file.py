"""Reading of `daemon.toml`: every setting with its line, and everything that is wrong, not only the first of it.

A setting is an option of `daemon run`, by the option's name with `_` for `-`. Its section, type, limits and help are
the option's own, so that file and command line can't come apart.
Invariants: a setting of the file stands behind an option and a variable and before the default; a relative path is
relative to the folder of the file.
"""

import os
import re
import sys
from collections import Counter, defaultdict
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
from kafka_quotas.core.formats.documents import read_text
from kafka_quotas.enforcement.config.client_policy import policy_problems
from kafka_quotas.enforcement.config.listener_file import check_property
from kafka_quotas.enforcement.config.toml_table import flat, property_text, read_toml, table_path

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
_PART: Final = r"(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')"
_PATH: Final = rf"({_PART}(?:\s*\.\s*{_PART})*)"
_HEADER: Final = re.compile(rf"\s*(\[\[?)\s*{_PATH}\s*\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(rf"\s*{_PATH}\s*=")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """The settings of a configuration file that can be used, and what is wrong with the others."""

    path: Path
    values: Mapping[str, Any] = field(default_factory=dict)
    """What Typer takes as defaults: values by the name of the option's parameter."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line of each value."""
    problems: tuple[str, ...] = ()
    """Everything that is wrong, in the order of the file, a line of text each."""


def read_config_file(path: Path, options: Mapping[str, TyperOption], ctx: typer.Context) -> ConfigFile:
    """Read the settings of a file.

    Args:
        path: The file.
        options: The options of `daemon run` by their names in the file.
        ctx: The context of the command, for the conversion of values.

    Raises:
        UsageError: The file can't be read, or is not TOML.
    """
    document = read_toml(path, "the configuration of the daemon")
    lines = _lines(read_text(path))
    reading = _Reading(path=path, options=options, sections=sections(options), lines=lines, ctx=ctx)
    for section, table in document.items():
        reading.take(section, table)
    return ConfigFile(
        path=path,
        values=reading.values,
        lines=reading.found,
        problems=tuple(text for _, text in sorted(reading.problems, key=lambda each: each[0])),
    )


@dataclass(slots=True, kw_only=True)
class _Reading:
    path: Path
    options: Mapping[str, TyperOption]
    sections: Mapping[str, tuple[str, ...]]
    lines: Mapping[str, int]
    ctx: typer.Context
    values: dict[str, Any] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)
    problems: list[tuple[int, str]] = field(default_factory=list)

    def take(self, section: str, table: object) -> None:
        every = (*self.sections, *TABLES)
        if section not in every:
            otherwise = f"the sections are {', '.join(every)}"
            hint = self._home_of(section) or near_hint(section, every, otherwise=otherwise)
            self._problem(section, f"there is no section {section}", hint)
        elif not isinstance(table, dict):
            self._problem(section, f"{section} is no section", f"write [{section}] on a line of its own")
        elif section == "policy":
            self._use("policy", str(table_path(self.path.absolute(), "policy")), "policy")
            for path, error in policy_problems(table):
                self._problem(f"policy.{path}", error.message, error.hint)
        elif section == "listener":
            names = [str(table_path(self.path.absolute(), f"listener.{name}")) for name in table]
            self._use("listener", names, "listener")
            for name, properties in table.items():
                self._take_listener(f"listener.{name}", properties)
        else:
            for name, value in table.items():
                self._take_setting(section, name, value)

    def _take_listener(self, where: str, table: object, *, needed: tuple[str, ...] = ("listen", "upstream")) -> None:
        """Look at a listener's properties, each on its own."""
        if not isinstance(table, dict):
            self._problem(where, f"{where} is no table", f"write [{where}] on a line of its own")
            return
        entries = dict(flat(table))
        for name, value in entries.items():
            if not needed and name in ("listen", "upstream"):
                self._problem(f"{where}.{name}", f"{name} can't be given here", "[listeners] and [upstream] say it")
                continue
            try:
                check_property(name, property_text(name, value))
            except UsageError as error:
                message = error.message if name in error.message else f"{name}: {error.message}"
                self._problem(f"{where}.{name}", message, error.hint)
        missing = [name for name in needed if name not in entries]
        if missing:
            self._problem(where, f"{' and '.join(missing)} missing", "a listener needs both, as HOST:PORT")

    def _take_setting(self, section: str, name: str, value: object) -> None:
        where = f"{section}.{name}"
        if section == "listeners" and name == LISTENER_PROPERTIES:
            self._use("listener_config", str(table_path(self.path.absolute(), where)), where)
            self._take_listener(where, value, needed=())
            return
        known = self.sections[section]
        if name not in known:
            otherwise = REMOVED.get(f"--{name.replace('_', '-')}") or f"it has {', '.join(known)}"
            hint = self._home_of(name) or near_hint(name, known, otherwise=otherwise)
            self._problem(where, f"[{section}] has no {name}", hint)
            return
        option = self.options[name]
        try:
            self._use(name, self._checked(option, value), where)
        except ValueError as error:
            self._problem(where, f"{name}: {error}", None)
        except typer.BadParameter as error:
            self._problem(where, f"{name}: {error.message}", None)
        except UsageError as error:
            self._problem(where, f"{name}: {error.message}", error.hint)

    def _use(self, name: str, value: object, where: str) -> None:
        parameter = self.options[name].name or name
        if parameter in self.values:
            self._problem(where, f"{name} is given twice", "by the setting and by a table; keep one of them")
            return
        self.values[parameter] = value
        self.found[parameter] = self._line(where)

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

    def _line(self, where: str) -> int:
        """Return the line of an entry, or of what it is in."""
        while where and where not in self.lines:
            where = where.rpartition(".")[0]
        return self.lines.get(where, 1)

    def _problem(self, where: str, message: str, hint: str | None) -> None:
        line = self._line(where)
        text = f"{self.path}:{line}: {message}" + (f" ({hint})" if hint else "")
        self.problems.append((line, shown_cell(text)))

    def _home_of(self, name: str) -> str | None:
        home = next((section for section, names in self.sections.items() if name in names), None)
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


def _lines(text: str) -> dict[str, int]:
    """Return the line of each table and entry by its path.

    That is `policy.entity.2.mode` in the second `[[policy.entity]]`. Only the usual layout is seen: a header on a line
    of its own, and one entry to a line.
    """
    found: dict[str, int] = {}
    counts: Counter[str] = Counter()
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            section = _plain_path(header[2])
            if header[1] == "[[":
                counts[section] += 1
                section = f"{section}.{counts[section]}"
            found.setdefault(section.partition(".")[0], number)
            found.setdefault(section, number)
        elif key:
            found.setdefault(f"{section}.{_plain_path(key[1])}".removeprefix("."), number)
    return found


def _plain_path(text: str) -> str:
    return ".".join(part.strip("\"'") for part in re.findall(_PART, text))


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
    found = read_config_file(value, dict(options_of(ctx)), ctx)
    for problem in found.problems:
        write(f"error: {problem}", sys.stderr)
    if found.problems:
        count = len(found.problems)
        raise UsageError(f"{value} can't be used: {count} problem{'s' if count > 1 else ''}")
    # The store's variables are read by the choice of the store, after Typer has put the file in place of the options.
    outdone = {name for name, variable in _STORE_VARIABLES.items() if os.environ.get(variable)}
    ctx.default_map = {name: value for name, value in found.values.items() if name not in outdone}
    ctx.meta[CONFIG] = found
    return value
