"""The layout of help: usage, text, and parameters under the headings of their option groups.

`--help`, the manual pages and `--help-json` show the same sections. A heading travels in Typer's own field for it,
`rich_help_panel`; Rich itself stays out, because it costs more than the rest of a start.
"""

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from kafka_quotas.cli.output.colour import BOLD, coloured

ARGUMENTS_HEADING = "Arguments"
OPTIONS_HEADING = "Options"
STORE_HEADING = "Where quotas live (see kafka-quotas help stores)"
OUTPUT_HEADING = "Output"
GENERAL_HEADING = "General options"
COMMANDS_HEADING = "Commands"
_LAST = (STORE_HEADING, OUTPUT_HEADING, GENERAL_HEADING)
"""What many commands share comes after what is a command's own."""

Parameter = TyperArgument | TyperOption


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpSection:
    """Parameters or commands under one heading."""

    heading: str
    parameters: tuple[Parameter, ...]


class HelpPage:
    """The part of a command or group that writes its help, mixed in before Typer's class."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line after the command's name."""
        assert isinstance(self, TyperCommand | TyperGroup)
        arguments = [usage_name(each) for each in self.get_params(ctx) if isinstance(each, TyperArgument)]
        return ["[OPTIONS]", *arguments, *(["COMMAND", "[ARGS]..."] if isinstance(self, TyperGroup) else [])]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, options and commands, each under its heading."""
        assert isinstance(self, TyperCommand | TyperGroup)
        if isinstance(self, TyperGroup):
            for heading, rows in command_sections(self):
                with formatter.section(coloured(heading, BOLD, sys.stdout)):
                    formatter.write_dl(rows)
        for section in parameter_sections(self.get_params(ctx)):
            with formatter.section(coloured(section.heading, BOLD, sys.stdout)):
                formatter.write_dl([(shown_name(each, ctx), help_text(each, ctx)) for each in section.parameters])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        lines = example_lines(str(ctx.command_path))
        if lines:
            with formatter.section(coloured("Examples", BOLD, sys.stdout)):
                formatter.write("".join(f"  {line}\n" for line in lines))


class PagedCommand(HelpPage, TyperCommand):
    """A command with help in this layout."""


class PagedGroup(HelpPage, TyperGroup):
    """A group with help in this layout."""

    headings: ClassVar[Mapping[str, Sequence[str]]] = {}
    """The names of commands by heading; all are below one where it is empty."""


def parameter_sections(parameters: Iterable[Any]) -> list[HelpSection]:
    """Return the visible parameters by heading: a command's own before those that many share."""
    found: dict[str, list[Parameter]] = {ARGUMENTS_HEADING: [], OPTIONS_HEADING: []}
    for each in parameters:
        if isinstance(each, TyperArgument | TyperOption) and not each.hidden:
            found.setdefault(_heading(each), []).append(each)
    order = sorted(found, key=lambda heading: _LAST.index(heading) if heading in _LAST else -1)  # stable
    return [HelpSection(heading=name, parameters=tuple(found[name])) for name in order if found[name]]


def example_lines(path: str) -> list[str]:
    """Return the examples of a command as lines of a shell script."""
    from kafka_quotas.cli.framework.command_examples import examples_of  # noqa: PLC0415 - most runs show no help

    return [line for each in examples_of(path) for line in (f"# {each.purpose}", *each.lines)]


def command_sections(group: TyperGroup) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the headings of a group's commands with their names and summaries."""
    listed = {name: summary(each) for name, each in group.commands.items() if not each.hidden}
    headings = group.headings if isinstance(group, PagedGroup) else {}
    for heading, names in headings.items():
        yield heading, [(name, listed.pop(name)) for name in names]
    if listed:
        yield COMMANDS_HEADING, list(listed.items())


def summary(command: Any) -> str:
    """Return the first paragraph of a command's help as one line."""
    return " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split())


def usage_name(argument: TyperArgument) -> str:
    """Return an argument as a usage line shows it: `NAME`, `[NAME]`, `FILE...` or `[FILE]...`."""
    name = argument_name(argument)
    repeated = "..." if argument.nargs == -1 else ""
    return f"{name}{repeated}" if argument.required else f"[{name}]{repeated}"


def argument_name(argument: TyperArgument) -> str:
    """Return the bare name of an argument's value in capitals: `FILE`."""
    return argument.metavar or argument.name.upper()


def shown_value(option: TyperOption, context: Any) -> str | None:
    """Return how help names an option's value: `FILE`, or its choices.

    Returns:
        None for an option without a value.
    """
    if option.is_flag or option.count:
        return None
    return option.metavar or option.display_type(context).strip("<>")


def spellings(option: TyperOption) -> list[str]:
    """Return an option's spellings, short ones first."""
    return sorted((*option.opts, *option.secondary_opts), key=len)  # Typer keeps those of --help in a set


def shown_name(parameter: Parameter, context: Any) -> str:
    """Return a parameter's spellings and value, as the first column of help."""
    if isinstance(parameter, TyperArgument):
        return usage_name(parameter)
    value = shown_value(parameter, context)
    return ", ".join(spellings(parameter)) + (f" {value}" if value else "")


def help_text(parameter: Parameter, context: Any) -> str:
    """Return what a parameter is for, with its variable, default and range."""
    _, text = parameter.get_help_record(context) or ("", "")
    return " ".join(text.split()).replace("[env var: ", "[env: ")


def _heading(parameter: Parameter) -> str:
    if isinstance(parameter, TyperArgument):
        return ARGUMENTS_HEADING
    if "--help" in parameter.opts:
        return GENERAL_HEADING
    return parameter.rich_help_panel or OPTIONS_HEADING
