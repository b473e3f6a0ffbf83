"""Colour: on terminals that take it, around words that carry the meaning by themselves."""

import re

import pytest
from tests.support.processes.run_cli import run_cli

WRONG = ("alter", "--user", "alice", "--add-config", "no_such_key=1")


def bare(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize(("arguments", "marked"), [(WRONG, "\x1b[1;31merror:"), (("--help",), "\x1b[1mQuotas")])
def test_a_terminal_shows_errors_and_headings_in_colour(arguments: tuple[str, ...], marked: str) -> None:
    plain = run_cli(*arguments)
    coloured = run_cli(*arguments, terminal=True, environment={"NO_COLOR": ""})
    assert marked in coloured[1] + coloured[2]
    assert [bare(text) for text in coloured[1:]] == list(plain[1:])


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"NO_COLOR": "", "TERM": "dumb"}])
@pytest.mark.parametrize("arguments", [WRONG, ("--help",)])
def test_colour_can_be_switched_off(arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    assert "\x1b" not in "".join(run_cli(*arguments, terminal=True, environment=environment)[1:])
