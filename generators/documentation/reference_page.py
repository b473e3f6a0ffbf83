"""The reference of all commands as pages of the documentation, one for each heading under which help lists them.

Invariants: the text depends on the commands alone (no date, no version), so that a page changes only with its commands.
"""

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup

from kafka_quotas.cli.framework.help_page import (
    command_sections,
    example_lines,
    help_text,
    parameter_sections,
    shown_name,
    summary,
)

_INDEX = "README.md"


def reference_pages(listed: Iterable[tuple[TyperCommand | TyperGroup, Any]]) -> dict[Path, str]:
    """Return the pages by file name: one for each heading of the program's help, and an index.

    `listed` has every command with a Typer context of it, groups before their commands and the program first.
    """
    (program, context), *commands = listed
    assert isinstance(program, TyperGroup)
    files = {name: (heading, _file_name(heading)) for heading, rows in command_sections(program) for name, _ in rows}
    pages: dict[str, list[str]] = {file: [f"# {heading}", ""] for heading, file in files.values()}
    index = ["# Commands", "", *_parts(program, context), "| command | what it does |", "| --- | --- |"]
    for command, inner in commands:
        path = str(inner.command_path)
        _, file = files[path.split()[1]]
        pages[file] += [f"## {path}", "", *_parts(command, inner)]
        index.append(f"| [`{path}`]({file}#{path.replace(' ', '-')}) | {_cell(summary(command))} |")
    texts = {file: "\n".join(lines).rstrip("\n") + "\n" for file, lines in pages.items()}
    return {Path(name): text for name, text in {**texts, _INDEX: "\n".join([*index, ""])}.items()}


def _file_name(heading: str) -> str:
    return f"{heading.lower().replace(' ', '-')}.md"


def _parts(command: TyperCommand | TyperGroup, context: Any) -> Iterator[str]:
    """Yield the text, usage, examples and parameters of a command as lines of Markdown."""
    for paragraph in inspect.cleandoc(command.help or "").partition("\f")[0].split("\n\n"):
        if paragraph.startswith("\b"):  # Typer's mark of a paragraph that keeps its lines
            yield from ("```text", *paragraph.lstrip("\b\n").splitlines(), "```", "")
        else:
            yield from (_escaped(" ".join(paragraph.split())), "")
    yield from ("```text", " ".join([context.command_path, *command.collect_usage_pieces(context)]), "```", "")
    if examples := example_lines(str(context.command_path)):
        yield from ("```sh", *examples, "```", "")
    for heading, parameters in parameter_sections(command.get_params(context)).items():
        rows = ((shown_name(each, context), help_text(each, context)) for each in parameters)
        yield from (f"| {heading} | meaning |", "| --- | --- |")
        yield from (f"| `{name.replace('|', chr(92) + '|')}` | {_cell(text)} |" for name, text in rows)
        yield ""


def _cell(text: str) -> str:
    return _escaped(text).replace("|", r"\|")


def _escaped(text: str) -> str:
    """Return plain text so that Markdown shows it as it stands."""
    for character in "\\*<":
        text = text.replace(character, f"\\{character}")
    return text
