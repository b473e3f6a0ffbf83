"""Reading of `daemon.toml`: every setting with its line, and everything that is wrong, not only the first of it.

Invariants: a setting of the file stands behind an option and a variable and before the default; a relative path is
relative to the folder of the file.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperOption

from kafka_quotas.cli.daemon.config_sections import (
    LISTENER_PROPERTIES,
    SECTIONS,
    TABLES,
    setting_name,
    value_kind,
)
from kafka_quotas.cli.framework.store_choice import COMMAND_CONFIG_VARIABLE, STORE_VARIABLE
from kafka_quotas.cli.output.render import shown_cell, write
from kafka_quotas.core.errors import UsageError, near_hint
from kafka_quotas.enforcement.config.toml_table import read_toml, table_path

CONFIG: Final = "kafka_quotas.daemon_config"
"""The key of a context's `meta` under which the file that was read stands."""
_STORE_VARIABLES: Final = {"store": STORE_VARIABLE, "command_config": COMMAND_CONFIG_VARIABLE}
_HEADER: Final = re.compile(r"\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(r"\s*[\"']?([A-Za-z0-9_-]+)[\"']?\s*(?:=|\.)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """The settings of a configuration file that can be used, and what is wrong with the others."""

    path: Path
    values: Mapping[str, Any] = field(default_factory=dict)
    """What Typer takes as defaults: values by the name of the option's parameter."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line of each value, where it was found."""
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
    lines = _lines(path.read_text(encoding="utf-8"))
    reading = _Reading(path=path, options=options, lines=lines, ctx=ctx)
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
    lines: Mapping[tuple[str, str], int]
    ctx: typer.Context
    values: dict[str, Any] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)
    problems: list[tuple[int, str]] = field(default_factory=list)

    def take(self, section: str, table: object) -> None:
        if section not in SECTIONS and section not in TABLES:
            hint = self._home_of(section) or near_hint(section, (*SECTIONS, *TABLES), otherwise=_every_section())
            self._problem((section, ""), f"there is no section {section}", hint)
        elif not isinstance(table, dict):
            self._problem((section, ""), f"{section} is no section", f"write [{section}] on a line of its own")
        elif section == "policy":
            self._use("policy", str(table_path(self.path.absolute(), "policy")), ("policy", ""))
        elif section == "listener":
            names = [str(table_path(self.path.absolute(), f"listener.{name}")) for name in table]
            self._use("listener", names, ("listener", ""))
        else:
            for name, value in table.items():
                self._take_setting(section, name, value)

    def _take_setting(self, section: str, name: str, value: object) -> None:
        where = (section, name)
        if section == "listeners" and name == LISTENER_PROPERTIES:
            self._use("listener_config", str(table_path(self.path.absolute(), f"{section}.{name}")), where)
            return
        if name not in SECTIONS[section]:
            hint = self._home_of(name) or near_hint(name, SECTIONS[section], otherwise=_every_setting(section))
            self._problem(where, f"[{section}] has no {name}", hint)
            return
        option = self.options[name]
        try:
            self._use(name, self._checked(option, value), where)
        except ValueError as error:
            self._problem(where, f"{name}: {error}", None)
        except typer.BadParameter as error:
            self._problem(where, f"{name}: {error.message}", None)

    def _use(self, name: str, value: object, where: tuple[str, str]) -> None:
        parameter = self.options[name].name or name
        if parameter in self.values:
            self._problem(where, f"{name} is given twice", "by the setting and by a table; keep one of them")
            return
        self.values[parameter] = value
        self.found[parameter] = self.lines.get(where, self.lines.get((where[0], ""), 1))

    def _checked(self, option: TyperOption, value: object) -> object:
        """Return the value as the option takes it.

        Raises:
            ValueError: It is of another type.
            typer.BadParameter: The option refuses it.
        """
        kind, several = value_kind(option)
        given = value if several and isinstance(value, list) else [value]
        taken = [_of_kind(kind, each) for each in given]
        if kind is Path:
            taken = [str(self.path.absolute().parent / Path(str(each)).expanduser()) for each in taken]
        whole = taken if several else taken[0]
        option.get_runtime_param().coerce(whole, param=option, ctx=self.ctx)
        return whole

    def _problem(self, where: tuple[str, str], message: str, hint: str | None) -> None:
        line = self.lines.get(where, self.lines.get((where[0], ""), 1))
        text = f"{self.path}:{line}: {message}" + (f" ({hint})" if hint else "")
        self.problems.append((line, shown_cell(text)))

    def _home_of(self, name: str) -> str | None:
        home = next((section for section, names in SECTIONS.items() if name in names), None)
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


def _every_section() -> str:
    return f"the sections are {', '.join((*SECTIONS, *TABLES))}"


def _every_setting(section: str) -> str:
    return f"it has {', '.join(SECTIONS[section])}"


def _lines(text: str) -> dict[tuple[str, str], int]:
    """Return the line of each section, whose setting has no name, and of each setting in it.

    Only the usual layout is seen: a header on a line of its own, and one setting to a line.
    """
    found: dict[tuple[str, str], int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            section, _, rest = header[1].partition(".")
            section, rest = section.strip(" \"'"), rest.strip(" \"'")
            found.setdefault((section, ""), number)
            if rest:
                found.setdefault((section, rest), number)
        elif key:
            found.setdefault((section or key[1], key[1] if section else ""), number)
    return found


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
