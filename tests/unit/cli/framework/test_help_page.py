"""Help pages: options under headings, nothing cut, and none of Typer's own notation."""

import re
from typing import Any
from unittest import mock

import pytest
from generators.documentation.documents import commands
from generators.documentation.man_page import man_page, page_name
from tests.support.processes.run_cli import run_cli
from typer.core import TyperArgument, TyperGroup, TyperOption

from kafka_quotas.cli.framework.help_page import (
    COMMANDS_HEADING,
    GENERAL_HEADING,
    MOST_USED,
    OPTIONS_HEADING,
    OUTPUT_HEADING,
    STORE_HEADING,
    command_sections,
    example_lines,
    most_used,
    parameter_sections,
    summary,
)

ALL = {page_name(context): (command, context) for command, context in commands()}


def headings(page: str) -> list[str]:
    command, context = ALL[page]
    return list(parameter_sections(command.get_params(context)))


def test_what_is_a_commands_own_comes_before_what_many_share() -> None:
    assert headings("kafka-quotas-alter") == ["Entity", "Change", STORE_HEADING, OUTPUT_HEADING, GENERAL_HEADING]
    assert headings("kafka-quotas-validate") == ["Arguments", OPTIONS_HEADING, OUTPUT_HEADING, GENERAL_HEADING]


def test_no_heading_of_the_daemon_holds_too_many_options_to_be_found() -> None:
    command, context = ALL["kafka-quotas-daemon-run"]
    sections = parameter_sections(command.get_params(context))
    assert len(sections) > 10
    assert max(map(len, sections.values())) <= 12


@pytest.mark.parametrize("page", ALL)
def test_help_shows_names_instead_of_types(page: str) -> None:
    command, context = ALL[page]
    text = command.get_help(context)
    assert not re.search(r"<(list|str|path|int|float)\b|\]\.\.\.\]", text)
    assert "{" not in text.partition("\n")[0]
    assert all(f"\n{heading}:\n" in text for heading in headings(page))


@pytest.mark.parametrize("page", ALL)
def test_the_manual_page_has_the_headings_of_help(page: str) -> None:
    command, context = ALL[page]
    text = man_page(command, context)
    for heading in headings(page):
        assert f".SS {heading}\n" in text.replace("\\-", "-") or f".SH {heading.upper()}\n" in text


@pytest.mark.parametrize("page", [name for name, (command, _) in ALL.items() if isinstance(command, TyperGroup)])
def test_summaries_of_commands_are_whole(page: str) -> None:
    command, context = ALL[page]
    shown = " ".join(command.get_help(context).split())
    for _, rows in command_sections(command):
        for name, text in rows:
            assert text == summary(command.commands[name])
            assert f"{name} {text}" in shown


def test_every_command_of_the_program_has_a_heading() -> None:
    root: Any = ALL["kafka-quotas"][0]
    found = dict(command_sections(root))
    assert COMMANDS_HEADING not in found
    assert list(found)[:6] == ["Quotas", "Files and stores", "Live", "Enforce", "Prove", "Plan"]


def shown(page: str, columns: int) -> str:
    command, context = ALL[page]
    with mock.patch.dict("os.environ", {"COLUMNS": str(columns)}):
        return str(command.get_help(context))


def test_help_is_as_wide_as_the_terminal() -> None:
    widths = {columns: max(map(len, shown("kafka-quotas-daemon-run", columns).splitlines())) for columns in (80, 180)}
    assert 70 < widths[80] <= 80
    assert 160 < widths[180] <= 180


@pytest.mark.parametrize("page", ALL)
def test_variables_are_one_rule_and_no_name_is_broken(page: str) -> None:
    text = shown(page, 80)
    assert "[env" not in text
    command, context = ALL[page]
    options = [each for each in command.get_params(context) if isinstance(each, TyperOption) and not each.hidden]
    assert all(re.search(rf"(?<![\w-]){each}(?![\w-])", text) for option in options for each in option.opts)
    assert not re.search(r"\w-\n", text)
    if any(each.envvar for each in options):
        assert re.search(r"\nEnvironment variables:\n.*KAFKA_QUOTAS_[A-Z]+_<OPTION>", text, re.DOTALL)
        assert "KAFKA_QUOTAS_" in man_page(command, context)


@pytest.mark.parametrize("page", ALL)
def test_the_short_help_has_what_is_required_and_what_the_examples_use(page: str) -> None:
    command, context = ALL[page]
    every = command.get_params(context)
    kept = most_used(every, context.command_path)
    options = [each for each in kept if isinstance(each, TyperOption)]
    assert len(options) <= MOST_USED
    assert [each for each in every if isinstance(each, TyperArgument)] == [
        each for each in kept if isinstance(each, TyperArgument)
    ]
    assert {each.name for each in every if isinstance(each, TyperOption) and each.required} <= {
        each.name for each in options
    }
    if options != [each for each in every if isinstance(each, TyperOption)]:
        words = set(" ".join(example_lines(context.command_path)).replace("=", " ").split())
        used = [each for each in every if isinstance(each, TyperOption) and words.intersection(each.opts)]
        assert len([each for each in used if each in options]) >= min(len(used), MOST_USED) - 2


def test_h_is_short_and_help_is_all() -> None:
    code, short, _ = run_cli("daemon", "run", "-h")
    assert (code, "--state-file FILE" in short, "--fleet-fallback" in short) == (0, True, False)
    assert short.index("Examples:") < short.index("--upstream HOST:PORT")
    assert "kafka-quotas daemon run --help shows everything" in short
    code, whole, _ = run_cli("daemon", "run", "--help")
    assert (code, "--fleet-fallback" in whole) == (0, True)
    for argv in (("-h",), ("context", "-h"), ("context", "set", "-h"), ("help", "alter")):
        assert run_cli(*argv)[0] == 0
