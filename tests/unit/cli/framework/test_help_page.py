"""Help pages: options under headings, nothing cut, and none of Typer's own notation."""

import re
from typing import Any

import pytest
from typer.core import TyperGroup

from kafka_quotas.cli.docs.documentation import commands
from kafka_quotas.cli.docs.man_page import man_page, page_name
from kafka_quotas.cli.framework.help_page import (
    COMMANDS_HEADING,
    GENERAL_HEADING,
    OPTIONS_HEADING,
    OUTPUT_HEADING,
    STORE_HEADING,
    command_sections,
    parameter_sections,
    summary,
)

ALL = {page_name(context): (command, context) for command, context in commands()}


def headings(page: str) -> list[str]:
    command, context = ALL[page]
    return [section.heading for section in parameter_sections(command.get_params(context))]


def test_what_is_a_commands_own_comes_before_what_many_share() -> None:
    assert headings("kafka-quotas-alter") == ["Entity", "Change", STORE_HEADING, OUTPUT_HEADING, GENERAL_HEADING]
    assert headings("kafka-quotas-validate") == ["Arguments", OPTIONS_HEADING, OUTPUT_HEADING, GENERAL_HEADING]


def test_no_heading_of_the_daemon_holds_too_many_options_to_be_found() -> None:
    command, context = ALL["kafka-quotas-daemon-run"]
    sections = {each.heading: len(each.parameters) for each in parameter_sections(command.get_params(context))}
    assert len(sections) > 10
    assert max(sections.values()) <= 12


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
