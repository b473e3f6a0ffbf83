"""The reference page and the JSON schema of `daemon.toml`, made from the options of `daemon run`."""

import json
from enum import Enum
from pathlib import Path
from typing import Final

from typer.core import TyperOption

from generators.documentation.config_schema import config_schema
from kafka_quotas.cli.daemon.run import LISTENER_PROPERTIES, TABLES, sections, setting_name, value_kind
from kafka_quotas.cli.framework.commands import Command

PAGE: Final = Path("docs/reference/daemon-configuration.md")
SCHEMA: Final = Path("examples/daemon/daemon.schema.json")
_HEAD: Final = """\
# Configuration of the daemon

`kafka-quotas daemon run --config daemon.toml` takes its options from one file. Each setting is an option of
[`daemon run`](commands/enforce.md#kafka-quotas-daemon-run), which describes it, by the same name with `_` for `-`; it
has a variable, such as `KAFKA_QUOTAS_DAEMON_METRICS_PORT`. Strongest first: option, variable, file, default.

`kafka-quotas daemon check --config daemon.toml` lists everything that is wrong with the file, with lines, and reads
every file that it names; if nothing is wrong, it shows each setting in force and where it came from.
`examples/daemon/daemon.schema.json` is the JSON schema, `examples/daemon/daemon.toml` a file to start from.

Relative paths start at the file's folder. A setting that takes several values is a list, or one value. A reload
(SIGHUP, `daemon reload`) reads the tables `[policy]` and `[listener.NAME]` and the named files again; other settings
need a restart.
"""
_TABLES: Final = f"""\
## Tables in place of files

| table | in place of | holds |
|---|---|---|
| `[policy]` | `policy` in `[enforcement]` | {TABLES["policy"]} |
| `[listener.NAME]` | `listener` in `[listeners]` | {TABLES["listener"]} |
| `[listeners.{LISTENER_PROPERTIES}]` | `listener_config` in `[listeners]` | Properties of the main listener. |
"""


def config_documents(run: Command) -> dict[Path, str]:
    """Return the page and the schema by their paths below the root of the repository.

    Args:
        run: The command `daemon run`.
    """
    options = {setting_name(each): each for each in run.params if isinstance(each, TyperOption)}
    pieces = [_section(section, names, options) for section, names in sections(options).items()]
    return {
        PAGE: "\n".join((_HEAD, *pieces, _TABLES)),
        SCHEMA: json.dumps(config_schema(options), indent=2) + "\n",
    }


def _section(section: str, names: tuple[str, ...], options: dict[str, TyperOption]) -> str:
    rows = [f"- `{name}`: {_kind(options[name])}{_default(options[name])}" for name in names]
    return "\n".join((f"## `[{section}]`", "", *rows, ""))


def _kind(option: TyperOption) -> str:
    kind, several = value_kind(option)
    if issubclass(kind, Enum):
        text = ", ".join(f"`{choice.value}`" for choice in kind)
    elif kind is bool:
        text = "true or false"
    elif kind in (int, float):
        text = f"{'whole ' if kind is int else ''}number"
    else:
        text = f"`{option.metavar or 'TEXT'}`"
    return f"list of {text}" if several else text


def _default(option: TyperOption) -> str:
    value = option.default.value if isinstance(option.default, Enum) else option.default
    if value is None:
        return "; required" if option.required else ""
    return f"; default `{str(value).lower() if isinstance(value, bool) else value}`"
