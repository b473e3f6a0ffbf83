"""The page on quota semantics shows what the commands in it print."""

import re
import shlex
from pathlib import Path

import pytest
from tests.support.processes.run_cli import run_cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "quota-semantics.md"
BLOCKS = re.findall(r"```console\n\$ kafka-quotas ([^\n]*)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_the_page_shows_what_a_command_prints(command: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, out, err = run_cli(*shlex.split(command))
    assert (code, err) == (0, "")
    assert out == shown


def test_every_block_of_the_page_is_run() -> None:
    assert len(BLOCKS) == PAGE.read_text(encoding="utf-8").count("```console") == 8


def test_every_link_within_the_page_leads_to_a_heading() -> None:
    text = PAGE.read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", line[3:].lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("## ")
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) == headings
