"""The whole command tree as JSON, for programs that make forms, completions or checks of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from kafka_quotas.cli.framework.commands import walk_commands
from kafka_quotas.cli.framework.help_page import (
    CommandExample,
    Parameter,
    argument_name,
    examples_of,
    parameter_sections,
    shown_value,
    spellings,
)
from kafka_quotas.cli.output.listing import SCHEMA_PREFIX, Json, json_text
from kafka_quotas.cli.output.schemas.catalogue import documents_of
from kafka_quotas.core.described import Described, document_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterHelp:
    """An option or an argument of a command."""

    heading: str
    kind: Annotated[str, Described(choices=("option", "argument"))]
    names: tuple[str, ...]
    value: Annotated[str | None, Described(text="how help names it; null for a switch")]
    required: bool
    repeatable: bool
    default: Annotated[Any, Described(text="null where there is none, or where each run finds it")]
    variable: Annotated[str | None, Described(text="its environment variable")]
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHelp:
    """A command or a group of commands."""

    path: str
    help: str
    usage: str
    parameters: tuple[ParameterHelp, ...]
    examples: tuple[CommandExample, ...]
    commands: tuple[str, ...]
    documents: Annotated[tuple[str, ...], Described(text="the schemas of what it prints with --output json")]


def help_json(app: typer.Typer, program: str) -> str:
    """Return every command with its path, help, options, arguments and subcommands as JSON."""
    listed: list[Json] = [document_of(_command(*each)) for each in walk_commands(app, program)]
    return json_text({"schema": f"{SCHEMA_PREFIX}.help/1", "commands": listed})


def _command(command: TyperCommand | TyperGroup, context: Any) -> CommandHelp:
    path = str(context.command_path)
    children = sorted(command.commands) if isinstance(command, TyperGroup) else []
    return CommandHelp(
        path=path,
        help=_one_line(command.help),
        usage=" ".join(command.collect_usage_pieces(context)),
        parameters=tuple(
            _parameter(each, heading, context)
            for heading, parameters in parameter_sections(command.get_params(context)).items()
            for each in parameters
        ),
        examples=examples_of(path),
        commands=tuple(f"{path} {name}" for name in children),
        documents=tuple(documents_of(path.partition(" ")[2])),
    )


def _parameter(parameter: Parameter, heading: str, context: Any) -> ParameterHelp:
    if isinstance(parameter, TyperArgument):
        kind, names, value = "argument", [parameter.name or ""], argument_name(parameter)
    else:
        kind, names, value = "option", spellings(parameter), shown_value(parameter, context) or ""
    return ParameterHelp(
        heading=heading,
        kind=kind,
        names=tuple(names),
        value=value or None,
        required=bool(parameter.required),
        repeatable=bool(getattr(parameter, "multiple", False) or parameter.nargs == -1),
        default=_default(parameter.default),
        variable=parameter.envvar if isinstance(parameter.envvar, str) else None,
        help=_one_line(parameter.help),
    )


def _one_line(text: str | None) -> str:
    return " ".join((text or "").replace("\b", " ").split())


def _default(value: Any) -> Json:
    """Return the default as JSON, None where there is none, or where each run computes it."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool | int | float | str):
        return value
    return [_default(each) for each in value] if isinstance(value, Sequence) else None
