"""The page on introducing quotas: its commands run in its order, and print what it shows."""

import re
import shlex
from pathlib import Path

from tests.support.processes.run_cli import run_cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "rollout.md").read_text(encoding="utf-8")


def commands() -> list[tuple[str, list[str]]]:
    """Every command of the page with the lines shown below it, in order."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ kafka-quotas "):
                found.append((line.removeprefix("$ kafka-quotas "), []))
            else:
                found[-1][1].append(" ".join(line.split()))
    return found


def test_the_commands_do_what_the_page_says(tmp_path: Path) -> None:
    environment = {
        "KAFKA_QUOTAS_STORE": f"local:{tmp_path}/quotas.db",
        "KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal"),
    }
    listed = commands()
    assert len(listed) == 12
    for command, shown in listed:
        code, out, err = run_cli(*shlex.split(command), environment=environment)
        assert code == 0, (command, err)
        printed = [" ".join(line.split()) for line in out.replace(f"local:{tmp_path}/", "local:~/").splitlines()]
        assert [line for line in shown if line not in printed] == [], (command, out)
    _, out, _ = run_cli("tree", "--key", "producer_byte_rate", environment=environment)
    assert "default user\n" in out
    assert "10 MB/s" not in out, "the last command takes the default back"


def test_the_alerts_that_the_page_names_exist() -> None:
    rules = (ROOT / "examples" / "prometheus" / "kafka-quota-alerts.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"alert `(\w+)`", PAGE))
    assert len(named) == 3
    assert named <= set(re.findall(r"alert: (\w+)", rules))
