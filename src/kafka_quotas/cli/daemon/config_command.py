"""`kafka-quotas daemon check` and `daemon config`: whether a configuration can be used, and what is in force."""

import json
import sys
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, TypeAlias

import typer

from kafka_quotas.cli.daemon.config_file import CONFIG, ConfigFile, options_of
from kafka_quotas.cli.daemon.config_sections import schema, settings_of
from kafka_quotas.cli.daemon.run import DaemonOptions, checked_settings
from kafka_quotas.cli.framework.service_variables import service
from kafka_quotas.cli.framework.store_choice import Origin, Setting
from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.output.json_text import Json
from kafka_quotas.cli.output.render import TABLE_VIEW, Cell, Listing, Table, columns, print_listing, write
from kafka_quotas.enforcement.config.cost_model_file import read_cost_model
from kafka_quotas.enforcement.config.policy_file import read_policy_file
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.stores.static import read_static_quotas

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


def _print_schema(ctx: typer.Context, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        write(json.dumps(schema(dict(options_of(ctx))), indent=2), sys.stdout)
        raise typer.Exit


Schema = Annotated[
    bool,
    typer.Option(
        "--schema",
        help="Print the JSON schema of the file of --config, for editors, and stop.",
        is_eager=True,
        callback=_print_schema,
    ),
]


@service("DAEMON")
def check(ctx: typer.Context, *, asked: DaemonOptions) -> None:
    """Check a configuration as `daemon run` would, every file that it names included, and start nothing.

    Everything that is wrong with the file of --config is listed at once, with its line. Neither the store nor a broker
    is asked, unless --upstream-windows is given. The exit code is 2 if anything is wrong.
    """
    settings, choice = checked_settings(asked)
    choice.check_place()
    files = list(_read_files(settings))
    source = ctx.meta.get(CONFIG)
    named = [str(source.path)] if isinstance(source, ConfigFile) else []
    listeners = ", ".join(str(each.listen) for each in settings.listeners)
    write(f"The configuration is valid: {listeners}.", sys.stdout)
    if named or files:
        write(f"note: read {', '.join([*named, *files])}", sys.stderr)


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


@service("DAEMON")
def config(
    ctx: typer.Context,
    *,
    asked: DaemonOptions,
    print_schema: Schema = False,  # noqa: ARG001 - its callback prints and stops
    output: ListingView = TABLE_VIEW,
) -> None:
    """Show every setting of the daemon that would be in force, and where it came from.

    An option beats a variable, a variable beats the file of --config, and that beats the default.
    """
    _, choice = checked_settings(asked)
    of_store = {"store": choice.url, "command_config": choice.command_config}
    rows = [_of_store(row, of_store.get(row[1])) for row in _rows(ctx)]
    print_listing(
        Listing(
            noun="daemon-config",
            items="settings",
            data={"settings": [dict(zip(_TITLES, row, strict=True)) for row in rows]},
            table=Table(columns=_COLUMNS, rows=[(*row[:2], _text(row[2]), *row[3:]) for row in rows]),
        ),
        output,
    )


def _rows(ctx: typer.Context) -> Iterator[_Row]:
    source = ctx.meta.get(CONFIG)
    for section, name, option in settings_of(dict(options_of(ctx))):
        parameter = option.name or name
        value = ctx.params.get(parameter)
        origin = _ORIGINS[str(getattr(ctx.get_parameter_source(parameter), "name", "DEFAULT"))]
        where = None
        if origin == Origin.OPTION:
            where = f"--{name.replace('_', '-')}"
        elif origin == Origin.VARIABLE:
            where = str(option.envvar)
        elif origin == _FILE and isinstance(source, ConfigFile):
            where = f"{source.path}:{source.lines[parameter]}"
        yield section, name, _plain(value), origin, where


def _of_store(row: _Row, chosen: Setting | None) -> _Row:
    """Return the row of a setting, with the choice of a variable or a context in place of the default."""
    if chosen is None or row[3] != Origin.DEFAULT or chosen.origin is Origin.DEFAULT:
        return row
    return (*row[:2], chosen.value, chosen.origin.value, chosen.source)


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
