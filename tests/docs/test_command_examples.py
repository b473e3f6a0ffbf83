"""Examples and pages: every command has examples, they parse, and lines without a server run in order.

`test_page_outputs.py` runs those with one.
"""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from generators.documentation.documents import commands
from tests.support.processes.run_cli import run_cli
from tests.support.processes.shown_commands import (
    NOT_RUN_HERE,
    example_lines,
    lines_without_servers,
    page_lines,
)

from kafka_quotas.cli.framework.help_page import all_examples, examples_of
from kafka_quotas.cli.main import COMMANDS, PROGRAM

ROOT = Path(__file__).parents[2]
TREE: dict[str, Any] = {str(context.command_path): (command, context) for command, context in commands()}
PATHS = list(TREE)


def test_every_command_has_examples_and_no_other_has() -> None:
    assert set(all_examples()) == set(PATHS)
    assert all(each.purpose.endswith(".") and each.commands for path in PATHS for each in examples_of(path))


@pytest.mark.parametrize("path", PATHS)
def test_an_example_shows_its_own_command(path: str) -> None:
    for example in examples_of(path):
        assert any(line.startswith((f"{path} ", "eval ")) or line == path for line in example.commands)


@pytest.mark.parametrize("line", sorted({line for _, line in example_lines() if not line.startswith("eval ")}))
def test_the_arguments_of_an_example_are_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples" / "daemon")
    words = shlex.split(line)
    assert words[0] == PROGRAM
    path = max((each for each in PATHS if line.startswith(each)), key=len)
    command, context = TREE[path]
    command.make_context(context.info_name, words[len(path.split()) :], parent=context.parent)


def test_lines_without_a_server_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path, ignore=shutil.ignore_patterns("daemon"), dirs_exist_ok=True)
    for name in ("proposal-a", "proposal-b", "in-force"):
        shutil.copy(tmp_path / "request-log" / "quotas.yaml", tmp_path / f"{name}.yaml")
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path)
    homes = {f"XDG_{name}": str(tmp_path / name) for name in ("CONFIG_HOME", "STATE_HOME", "DATA_HOME", "RUNTIME_DIR")}
    environment = {**homes, "KAFKA_QUOTAS_STORE": f"local:{tmp_path}/quotas.db"}
    ran = lines_without_servers()
    failed = []
    for line in ran:
        argv = [word.replace("~", str(tmp_path)) for word in shlex.split(line)[1:]]
        code, _, err = run_cli(*argv, environment=environment)
        if code:
            failed.append((line, err))
    assert not failed, "\n".join(map(str, failed))
    assert {line.split()[1] for line in ran if " " in line} >= set(COMMANDS) - {
        *("daemon", "top", "why", "ui", "exporter", "watch", "demo", "kafka-configs")
    }
    assert any((tmp_path / "my-quotas").iterdir())


def test_what_is_not_run_here_is_shown_somewhere() -> None:
    shown = [line for _, line in (*example_lines(), *page_lines())]
    unused = [pattern for pattern in NOT_RUN_HERE if not any(re.match(pattern, line) for line in shown)]
    assert unused == []


@pytest.mark.parametrize("reason", sorted(set(NOT_RUN_HERE.values())))
def test_the_tests_that_run_it_elsewhere_exist(reason: str) -> None:
    assert all(any(ROOT.glob(f"tests/**/{name}")) for name in re.findall(r"test_\w+\.py", reason)), reason


def test_no_page_hides_a_command_in_an_indented_block() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    hidden = re.compile(rf"^    (\$ )?{PROGRAM} ", re.MULTILINE)
    assert [page.name for page in pages if hidden.search(page.read_text(encoding="utf-8"))] == []
