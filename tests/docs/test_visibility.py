"""The page on seeing who is limited: its commands run in its order, and print what it shows."""

import re
import shlex
from pathlib import Path

from tests.support.processes.run_cli import run_cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "visibility.md").read_text(encoding="utf-8")


def commands() -> list[tuple[str, list[str]]]:
    """Every command of the page with the lines shown below it, in order."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ kafka-quotas "):
                found.append((line.removeprefix("$ kafka-quotas "), []))
            else:
                found[-1][1].append(_bare(line))
    return found


def _bare(line: str) -> str:
    return " ".join(line.split()).rstrip(",")


def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    environment = {"KAFKA_QUOTAS_STORE": f"local:{tmp_path}/q.db", "KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal")}
    listed = commands()
    assert len(listed) == 10
    for command, shown in listed:
        code, out, err = run_cli(*shlex.split(command), environment=environment)
        assert code == 0, (command, err)
        printed = list(map(_bare, out.splitlines()))
        assert [line for line in shown if line not in printed] == [], (command, out)


def test_every_check_of_the_doctor_is_explained() -> None:
    sources = [
        (ROOT / "src/kafka_quotas/commands" / path).read_text(encoding="utf-8")
        for path in ("insight/doctor.py", "quotas/quota_checks.py")
    ]
    named = {name for text in sources for name in re.findall(r'check=f?"([a-z{}-]+)"', text)}
    assert "below-one-{what}" in named
    explained = set(re.findall(r"`([a-z-]+)`", PAGE))
    assert named - {"below-one-{what}"} <= explained
    assert {"below-one-batch", "below-one-fetch"} <= explained
