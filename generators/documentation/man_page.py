"""One command as a manual page in roff, from what Typer knows of it.

Invariants: the text depends on the command alone (no date, no version), so that a page changes only with its command;
backslashes, hyphens and leading dots are escaped.
"""

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

from kafka_quotas.cli.framework.commands import PassThroughCommand
from kafka_quotas.cli.framework.help_page import (
    ARGUMENTS_HEADING,
    COMMANDS_HEADING,
    DIFFERENT,
    EXIT_CODES,
    OPTIONS_HEADING,
    Parameter,
    command_sections,
    example_lines,
    help_text,
    parameter_sections,
    shown_value,
    spellings,
    summary,
    usage_name,
)
from kafka_quotas.cli.help_topics import ENVIRONMENT, FILES


def man_page(command: TyperCommand | TyperGroup, context: Any) -> str:
    """Return the manual page of a command.

    `context` is a Typer context of the command, with those of its groups as parents.
    """
    return "\n".join([*_lines(command, context), ""])


def page_name(context: Any) -> str:
    """Return the name of a command's page: `kafka-quotas-alter`."""
    return "-".join(str(context.command_path).split())


def escape(text: str) -> str:
    """Escape the text for roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def _lines(command: TyperCommand | TyperGroup, context: Any) -> Iterator[str]:
    yield f'.TH "{escape(page_name(context).upper())}" "1" "" "kafka\\-quotas" "User Commands"'
    yield ".SH NAME"
    yield f"{escape(page_name(context))} \\- {escape(summary(command).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f".B {escape(str(context.command_path))}"
    yield escape(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    yield from _paragraphs(command.help or "")
    if isinstance(command, TyperGroup):
        yield from _commands(command)
    yield from _parameters(command, context)
    yield from _examples(str(context.command_path))
    if not isinstance(command, PassThroughCommand):
        yield from _section("ENVIRONMENT", ENVIRONMENT)
        yield from _section("FILES", FILES)
    yield from _section("EXIT STATUS", _exit_codes(command))
    yield from _see_also(command, context)


def _children(group: TyperGroup) -> Iterator[tuple[str, Any]]:
    return ((name, command) for name, command in group.commands.items() if not command.hidden)


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(inspect.cleandoc(text).partition("\f")[0].split("\n\n")):
        if number:
            yield ".PP"
        if paragraph.startswith("\b"):  # Typer's mark of a paragraph that keeps its lines
            yield from (".nf", *(escape(line) for line in paragraph.lstrip("\b\n").splitlines()), ".fi")
        else:
            yield escape(" ".join(paragraph.split()))


def _examples(path: str) -> Iterator[str]:
    lines = example_lines(path)
    if lines:
        yield from (".SH EXAMPLES", ".nf", *map(escape, lines), ".fi")


def _exit_codes(command: TyperCommand | TyperGroup) -> Iterable[tuple[str, str]]:
    if isinstance(command, PassThroughCommand):
        return command.exit_codes
    compares = any("--exit-code" in each.opts for each in command.params)
    return [(code, text) for code, text in EXIT_CODES if compares or code != DIFFERENT]


def _commands(group: TyperGroup) -> Iterator[str]:
    yield ".SH COMMANDS"
    for heading, rows in command_sections(group):
        if heading != COMMANDS_HEADING:
            yield f".SS {escape(heading)}"
        yield from _rows(rows)


def _parameters(command: TyperCommand | TyperGroup, context: Any) -> Iterator[str]:
    """Yield the arguments, then the options with a subsection for each heading but the first."""
    under_options = False
    for heading, parameters in parameter_sections(command.get_params(context)).items():
        if heading == ARGUMENTS_HEADING:
            yield ".SH ARGUMENTS"
        elif not under_options:
            yield ".SH OPTIONS"
            under_options = True
        if heading not in (ARGUMENTS_HEADING, OPTIONS_HEADING):
            yield f".SS {escape(heading)}"
        for parameter in parameters:
            yield from (".TP", _heading(parameter, context), escape(help_text(parameter, context)))


def _heading(parameter: Parameter, context: Any) -> str:
    if isinstance(parameter, TyperArgument):
        return f"\\fI{escape(usage_name(parameter))}\\fR"
    names = ", ".join(f"\\fB{escape(name)}\\fR" for name in spellings(parameter))
    value = shown_value(parameter, context)
    return names if value is None else f"{names} \\fI{escape(value)}\\fR"


def _section(title: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield f".SH {title}"
    yield from _rows(rows)


def _rows(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, text in rows:
        yield from (".TP", f"\\fB{escape(name)}\\fR", escape(text))


def _see_also(command: TyperCommand | TyperGroup, context: Any) -> Iterator[str]:
    pages = []
    if context.parent is not None:
        headings = [[name for name, _ in rows] for _, rows in command_sections(context.parent.command)]
        beside = next((names for names in headings if context.info_name in names), [])
        pages.append(page_name(context.parent))
        pages += [f"{page_name(context.parent)}-{name}" for name in beside if name != context.info_name]
    if isinstance(command, TyperGroup):
        pages += [f"{page_name(context)}-{name}" for name, _ in _children(command)]
    yield ".SH SEE ALSO"
    yield ",\n".join(f".BR {escape(page)} (1)" for page in pages)
