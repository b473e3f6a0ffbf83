"""One command as a manual page in roff, from what Typer knows of it.

Invariants: the text depends on the command alone (no date, no version), so that a page changes only with its command;
backslashes, hyphens and leading dots are escaped.
"""

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from kafka_quotas.cli.framework.commands import PassThroughCommand

_ENVIRONMENT = (
    ("KAFKA_QUOTAS_STORE", "The store where no option names one."),
    ("KAFKA_QUOTAS_CONTEXT", "The context where neither an option nor KAFKA_QUOTAS_STORE names a store."),
    ("KAFKA_QUOTAS_COMMAND_CONFIG", "The file of client properties where --command-config names none."),
    ("KAFKA_QUOTAS_JOURNAL", "The journal of changes, in place of the one in the user's state folder."),
    ("KAFKA_QUOTAS_DEBUG", "If 1, an error shows its traceback."),
    ("NO_COLOR", "If set, tables on terminals have no colours."),
)
_EXIT_CODES = (
    ("0", "Done; finding nothing is no failure."),
    ("1", "Something failed, could not be reached, or did not hold."),
    ("2", "Wrong usage; nothing was done."),
    ("130", "Interrupted."),
)


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
    yield f"{escape(page_name(context))} \\- {escape(_summary(command))}"
    yield ".SH SYNOPSIS"
    yield f".B {escape(str(context.command_path))}"
    yield escape(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    yield from _paragraphs(command.help or "")
    parameters = [each for each in command.get_params(context) if not getattr(each, "hidden", False)]
    yield from _parameters("ARGUMENTS", (each for each in parameters if isinstance(each, TyperArgument)), context)
    yield from _parameters("OPTIONS", (each for each in parameters if isinstance(each, TyperOption)), context)
    if isinstance(command, TyperGroup):
        yield from _section("COMMANDS", ((name, each.get_short_help_str(200)) for name, each in _children(command)))
    if not isinstance(command, PassThroughCommand):
        yield from _section("ENVIRONMENT", _ENVIRONMENT)
    yield from _section("EXIT STATUS", command.exit_codes if isinstance(command, PassThroughCommand) else _EXIT_CODES)
    yield from _see_also(command, context)


def _children(group: TyperGroup) -> Iterator[tuple[str, Any]]:
    return ((name, command) for name, command in group.commands.items() if not command.hidden)


def _summary(command: TyperCommand | TyperGroup) -> str:
    first = inspect.cleandoc(command.help or "").split("\n\n")[0]
    return " ".join(first.split()).rstrip(".")


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(inspect.cleandoc(text).partition("\f")[0].split("\n\n")):
        if number:
            yield ".PP"
        if paragraph.startswith("\b"):  # Typer's mark of a paragraph that keeps its lines
            yield from (".nf", *(escape(line) for line in paragraph.lstrip("\b\n").splitlines()), ".fi")
        else:
            yield escape(" ".join(paragraph.split()))


def _parameters(title: str, parameters: Iterable[TyperArgument | TyperOption], context: Any) -> Iterator[str]:
    listed = list(parameters)
    if listed:
        yield f".SH {title}"
    for parameter in listed:
        _, help_text = parameter.get_help_record(context) or ("", "")
        yield ".TP"
        yield _heading(parameter, context)
        yield escape(" ".join(help_text.split()))


def _heading(parameter: TyperArgument | TyperOption, context: Any) -> str:
    if isinstance(parameter, TyperArgument):
        return f"\\fI{escape(parameter.display_name_raw.upper())}\\fR"
    spellings = sorted((*parameter.opts, *parameter.secondary_opts), key=len)  # Typer keeps those of --help in a set
    names = ", ".join(f"\\fB{escape(name)}\\fR" for name in spellings)
    if parameter.is_flag or parameter.count:
        return names
    return f"{names} \\fI{escape(parameter.metavar or parameter.display_type(context))}\\fR"


def _section(title: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield f".SH {title}"
    for name, text in rows:
        yield from (".TP", f"\\fB{escape(name)}\\fR", escape(text))


def _see_also(command: TyperCommand | TyperGroup, context: Any) -> Iterator[str]:
    pages = [page_name(context.parent)] if context.parent is not None else []
    if isinstance(command, TyperGroup):
        pages += [f"{page_name(context)}-{name}" for name, _ in _children(command)]
    yield ".SH SEE ALSO"
    yield ",\n".join(f".BR {escape(page)} (1)" for page in pages)
