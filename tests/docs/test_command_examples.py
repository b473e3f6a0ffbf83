"""The examples of commands: every command has some, they parse, and those without a server run in order."""

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.brokers.servers import Kafka
from tests.support.processes.run_cli import run_cli

from kafka_quotas.cli.docs.documentation import commands
from kafka_quotas.cli.framework.command_examples import all_examples, examples_of
from kafka_quotas.cli.main import COMMANDS, PROGRAM

ROOT = Path(__file__).parents[2]
TREE: dict[str, Any] = {str(context.command_path): (command, context) for command, context in commands()}
PATHS = list(TREE)
LINES = [(path, line) for path, examples in all_examples().items() for each in examples for line in each.commands]
ELSEWHERE = ("broker-1", "zookeeper-1", "/var/lib/", "demo", "eval ")
"""In command lines that need a server, a folder of a server, or half a minute."""
ASKING = {
    "daemon",
    "top",
    "why",
    "ui",
    "stream",
    "watch",
    "run",
    "report",
    "compare",
    "merge",
    "convert",
    "use",
    "test",
}
"""Commands about a daemon, a stream, a cluster in a context or an earlier run."""


def needs_no_server(path: str, line: str) -> bool:
    if line.startswith("kafka-quotas context set"):
        return True
    about_what_is_there = path == "kafka-quotas pipeline report" or not ASKING & set(shlex.split(line)[1:3])
    return about_what_is_there and not any(text in line for text in ELSEWHERE)


def test_every_command_has_examples_and_no_other_has() -> None:
    assert set(all_examples()) == set(PATHS)
    assert all(each.purpose.endswith(".") and each.commands for path in PATHS for each in examples_of(path))


@pytest.mark.parametrize("path", PATHS)
def test_an_example_shows_its_own_command(path: str) -> None:
    for example in examples_of(path):
        assert any(line.startswith((f"{path} ", "eval ")) or line == path for line in example.commands)


@pytest.mark.parametrize("line", sorted({line for _, line in LINES if not line.startswith("eval ")}))
def test_the_arguments_of_an_example_are_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples" / "daemon")
    words = shlex.split(line)
    assert words[0] == PROGRAM
    path = max((each for each in PATHS if line.startswith(each)), key=len)
    command, context = TREE[path]
    command.make_context(context.info_name, words[len(path.split()) :], parent=context.parent)


def test_examples_without_a_server_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    homes = {f"XDG_{name}": str(tmp_path / name) for name in ("CONFIG_HOME", "STATE_HOME", "DATA_HOME", "RUNTIME_DIR")}
    environment = {**homes, "KAFKA_QUOTAS_STORE": f"local:{tmp_path}/quotas.db"}
    ran = [(path, line) for path, line in LINES if needs_no_server(path, line)]
    for _, line in ran:
        code, _, err = run_cli(*shlex.split(line)[1:], environment=environment)
        assert code == 0, (line, err)
    assert {path.split()[1] for path, _ in ran if " " in path} >= {row.name for row in COMMANDS} - {
        *("daemon", "top", "why", "ui", "watch", "demo", "completion", "kafka-configs")
    }
    assert any((tmp_path / "my-quotas").iterdir())


def test_examples_with_a_cluster_run_on_one(kafka4: Kafka, unique_name: str) -> None:
    leaving_others_alone = {"describe", "export", "doctor", "kafka-configs"}
    ran = [line for path, line in LINES if path.split()[-1] in leaving_others_alone and "broker-1:9092" in line]
    assert len(ran) == 4
    for line in ran:
        words = shlex.split(line.replace("broker-1:9092", kafka4.bootstrap).replace("alice", unique_name))
        code, out, err = run_cli(*words[1:])
        assert out or err, line
        assert code == 0 or words[1] == "doctor", (line, err)  # it may find what other tests left in the cluster
