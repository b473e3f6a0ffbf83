"""A command line that other tools would understand is answered with the one of ours that does the same."""

import shlex

import pytest
from tests.support.processes.run_cli import run_cli

from kafka_quotas.cli.framework.other_tools import verb_of_other_tools
from kafka_quotas.cli.main import COMMANDS

KAFKA_CONFIGS = "--entity-type users --entity-name alice --add-config producer_byte_rate=1024"
NO_COMMAND = "error: no command is named"
COMMAND_FIRST = "error: the command comes before its options"


@pytest.mark.parametrize(
    ("typed", "error", "meant"),
    [
        (
            f"--bootstrap-server b:9092 --alter {KAFKA_CONFIGS}",
            "error: alter is a command, not an option",
            (
                f"hint: kafka-quotas alter --bootstrap-server b:9092 {KAFKA_CONFIGS} "
                "(or kafka-quotas kafka-configs with your options as they are)"
            ),
        ),
        ("--store local:a.db describe", COMMAND_FIRST, "hint: kafka-quotas describe --store local:a.db"),
        ("--delete-config producer_byte_rate", NO_COMMAND, "hint: for example: kafka-quotas alter --delete-config pro"),
        ("--bootstrap-server=b:9092", NO_COMMAND, "hint: for example: kafka-quotas describe --bootstrap-server=b:9092"),
        ("--user 'a b'", NO_COMMAND, "hint: for example: kafka-quotas describe --user 'a b'"),
        ("--nonsense", "error: no such option: --nonsense", "hint: kafka-quotas --help"),
    ],
)
def test_options_before_the_command_are_answered_with_the_command_line(typed: str, error: str, meant: str) -> None:
    code, out, err = run_cli(*shlex.split(typed))
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first == error
    assert second.startswith(meant)


@pytest.mark.parametrize(
    ("verb", "ours"),
    [("set", "alter"), ("get", "describe"), ("list", "describe"), ("delete", "alter"), ("UNDO", "revert")],
)
def test_a_verb_of_other_tools_is_answered_with_ours(verb: str, ours: str) -> None:
    code, out, err = run_cli(verb, "--user", "alice")
    assert (code, out) == (2, "")
    error, hint = err.splitlines()
    assert error == f"error: there is no command {verb}"
    assert hint.startswith(f"hint: kafka-quotas {ours} ")


def test_no_command_of_ours_is_hidden_by_a_verb_of_other_tools() -> None:
    assert all(verb_of_other_tools(command.name) is None for command in COMMANDS)
