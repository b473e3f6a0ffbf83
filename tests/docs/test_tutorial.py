"""The tutorial's load test holds every quota.

`test_console.py` runs its other commands.
"""

import re
import shlex
from pathlib import Path

import pytest
from tests.support.processes.run_cli import run_cli

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial" / "first-quota.md").read_text(encoding="utf-8")


@pytest.mark.measuring
def test_the_load_test_of_the_tutorial_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (init,) = re.findall(r"^\$ kafka-quotas (load-test init .*)$", PAGE, re.MULTILINE)
    run, *_ = re.findall(r"^kafka-quotas (load-test run .*)$", PAGE, re.MULTILINE)
    assert run_cli(*shlex.split(init))[0] == 0
    code, out, err = run_cli(*shlex.split(run))
    assert code == 0, (out, err)
    assert (tmp_path / "result" / "report.html").is_file()
    shown = re.findall(r"^(greedy|modest|reader) .* (held)$", PAGE, re.MULTILINE)
    assert re.findall(r"^(greedy|modest|reader) .* (held)\s*$", out, re.MULTILINE) == shown
