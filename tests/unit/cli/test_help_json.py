"""`kafka-quotas --help-json`: the command tree for programs."""

import json
from typing import Any

from generators.documentation.documents import commands
from tests.support.processes.run_cli import done

from kafka_quotas.cli.main import COMMANDS


def tree() -> dict[str, Any]:
    out = done("--help-json")
    document = json.loads(out)
    assert document["schema"] == "kafka-quotas.help/1"
    return {command["path"]: command for command in document["commands"]}


def test_every_command_is_there_and_reached_from_the_top() -> None:
    found = tree()
    assert set(found) == {str(context.command_path) for _, context in commands()}
    reached = {child for command in found.values() for child in command["commands"]}
    assert reached == set(found) - {"kafka-quotas"}
    assert set(found["kafka-quotas"]["commands"]) == {f"kafka-quotas {name}" for name in COMMANDS}


def test_an_option_is_described() -> None:
    alter = tree()["kafka-quotas alter"]
    options = {parameter["names"][0]: parameter for parameter in alter["parameters"]}
    add = options["--add-config"]
    assert add["help"].startswith("Quotas to set")
    assert (add["kind"], add["value"], add["required"], add["repeatable"], add["default"]) == (
        "option",
        "KEY=VALUE,...",
        False,
        True,
        None,
    )
    assert (options["--dry-run"]["value"], options["--dry-run"]["default"]) == (None, False)
    assert (options["-o"]["names"], options["-o"]["default"]) == (["-o", "--output"], "table")
    assert alter["help"].startswith("Set or remove quotas of one entity.")
    assert alter["usage"] == "[OPTIONS]"


def test_every_parameter_has_a_help_text() -> None:
    for path, command in tree().items():
        for parameter in command["parameters"]:
            assert parameter["help"], (path, parameter["names"])
