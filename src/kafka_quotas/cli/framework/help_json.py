"""The whole command tree as JSON, for programs that make forms, completions or checks of it."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from kafka_quotas.cli.framework.commands import walk_commands
from kafka_quotas.cli.framework.help_page import (
    Parameter,
    argument_name,
    examples_of,
    parameter_sections,
    shown_value,
    spellings,
)
from kafka_quotas.cli.output.json_text import Json, json_text
from kafka_quotas.cli.output.render import SCHEMA_PREFIX, View
from kafka_quotas.cli.output.schemas.catalogue import documents_of

SCHEMA = f"{SCHEMA_PREFIX}.help/1"


def help_json(app: typer.Typer, program: str) -> str:
    """Return every command with its path, help, options, arguments and subcommands as JSON."""
    listed: list[Json] = [_command(command, context) for command, context in walk_commands(app, program)]
    return json_text({"schema": SCHEMA, "commands": listed})


def _command(command: TyperCommand | TyperGroup, context: Any) -> dict[str, Json]:
    path = str(context.command_path)
    children = sorted(command.commands) if isinstance(command, TyperGroup) else []
    return {
        "path": path,
        "help": _one_line(command.help),
        "usage": " ".join(command.collect_usage_pieces(context)),
        "parameters": [
            _parameter(each, section.heading, context)
            for section in parameter_sections(command.get_params(context))
            for each in section.parameters
        ],
        "examples": [{"purpose": each.purpose, "commands": [*each.commands]} for each in examples_of(path)],
        "commands": [f"{path} {name}" for name in children],
        "documents": documents_of(path.partition(" ")[2]),
    }


def _parameter(parameter: Parameter, heading: str, context: Any) -> dict[str, Json]:
    return {
        "heading": heading,
        "kind": "option" if isinstance(parameter, TyperOption) else "argument",
        "names": _names(parameter),
        "value": shown_value(parameter, context) if isinstance(parameter, TyperOption) else argument_name(parameter),
        "required": bool(parameter.required),
        "repeatable": bool(getattr(parameter, "multiple", False) or parameter.nargs == -1),
        "default": _default(parameter.default),
        "variable": parameter.envvar if isinstance(parameter.envvar, str) else None,
        "help": _one_line(parameter.help),
    }


def _names(parameter: Parameter) -> list[str]:
    if isinstance(parameter, TyperArgument):
        return [parameter.name or ""]
    return spellings(parameter)


def _one_line(text: str | None) -> str:
    return " ".join((text or "").replace("\b", " ").split())


def _default(value: Any) -> Json:
    """Return the default as JSON.

    Returns:
        None where there is no default, or where each run computes it.
    """
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, View):
        return str(value)
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Sequence):
        return [_default(each) for each in value]
    return None
