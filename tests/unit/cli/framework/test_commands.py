"""Variables of the options of services: every option has one, help shows it, and none has two meanings."""

from collections import defaultdict
from typing import Any

import pytest
from generators.documentation.documents import commands
from typer.core import TyperOption

from kafka_quotas.cli.framework.commands import variable
from kafka_quotas.cli.framework.help_page import STORE_HEADING, help_text
from kafka_quotas.cli.help_topics import ENVIRONMENT

SERVICES = {
    "daemon run": "DAEMON",
    "daemon check": "DAEMON",
    "ui": "UI",
    "pipeline stream": "STREAM",
    "apply": "APPLY",
}
ALL = {str(context.command_path).partition(" ")[2]: (command, context) for command, context in commands()}
IN_PASSING = {"-h", "--help", "--verbose", "--output", "--columns", "--limit", "--schema"}
SHORT_FOR_STORE = {"--bootstrap-server", "--zookeeper"}


def options(path: str) -> list[TyperOption]:
    command, _ = ALL[path]
    return [each for each in command.params if isinstance(each, TyperOption) and not IN_PASSING & set(each.opts)]


@pytest.mark.parametrize(("path", "prefix"), SERVICES.items())
def test_every_option_of_a_service_shows_its_variable(path: str, prefix: str) -> None:
    known = {name for name, _ in ENVIRONMENT}
    for each in options(path):
        name = variable(prefix, each.opts[0])
        text = help_text(each, ALL[path][1])
        if each.rich_help_panel == STORE_HEADING:
            assert each.opts[0] in SHORT_FOR_STORE or any(f"[env: {other}]" in text for other in known), each.opts
        else:
            assert each.envvar == name
            assert f"[env: {name}" in text


def test_what_is_asked_in_passing_has_no_variable() -> None:
    listed = [each for command, _ in ALL.values() for each in command.params if IN_PASSING & set(each.opts)]
    assert [each.envvar for each in listed if each.envvar] == []


def test_a_variable_is_of_one_option() -> None:
    found: dict[Any, set[str]] = defaultdict(set)
    for path in ALL:
        for each in options(path):
            if each.envvar is not None:
                found[each.envvar].add(each.opts[0])
    assert {name: given for name, given in found.items() if len(given) > 1} == {}
    assert not set(found) & {name for name, _ in ENVIRONMENT}


def test_a_command_that_asks_a_daemon_finds_it_by_the_daemons_own_variable() -> None:
    for path in ("daemon status", "daemon reload", "daemon unmute", "daemon decide"):
        assert {each.opts[0]: each.envvar for each in options(path)}["--control"] == variable("DAEMON", "--control")
