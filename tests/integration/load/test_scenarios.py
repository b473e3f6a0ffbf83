"""A shipped scenario as a user runs it: embedded cluster, daemon in front, a verdict, and a result that is kept."""

import json
from pathlib import Path

import pytest
from tests.support.processes.run_cli import run_cli


@pytest.mark.measuring
def test_a_stall_costs_a_second_and_not_a_hundred(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, table, told = run_cli(
        "load-test",
        "run",
        "kip124-stall",
        "--journal-dir",
        str(tmp_path / "journal"),
        "--out",
        str(out),
        "--experiment",
        "0s",
    )

    assert code == 0, (table, told)
    assert "expectation: met" in table
    run = json.loads((out / "run.json").read_text("utf-8"))
    (stalled,) = run["entities"]
    assert stalled["throttle"]["max_ms"] < 1001
    assert stalled["records"]["failed"] == {}
    assert list((tmp_path / "journal").glob("*.json*")) == []
