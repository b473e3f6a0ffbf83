"""What docs/how-to/declarative.md shows is what the commands print, in this order, on one store."""

import re
import shlex
from pathlib import Path

import pytest
from tests.support.processes.run_cli import run_cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "declarative.md").read_text(encoding="utf-8")
TAKES_NO_STORE = {"validate"}


def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shown = [
        (command, output)
        for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
        for command, output in re.findall(r"\$ (.*)\n((?:(?!\$ ).*\n)*)", block)
    ]
    assert len(shown) == 6
    for command, output in shown:
        program, *argv = shlex.split(command)
        assert program == "kafka-quotas"
        store = [] if argv[0] in TAKES_NO_STORE else ["--store", "local:quotas.db"]
        journal = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal.jsonl")}
        code, out, err = run_cli(*argv, *store, environment=journal)
        assert code == 0, err
        assert out.replace(f"{tmp_path}/", "") == output, command


def test_the_file_of_the_page_is_in_order(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "q.yaml").write_text(block, encoding="utf-8")
    assert run_cli("validate", str(tmp_path / "q.yaml"))[0] == 0
