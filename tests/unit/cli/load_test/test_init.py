"""`load-test init`: scenarios for a first question, which run as they are."""

from pathlib import Path

import pytest
from tests.support.processes.run_cli import done, run_cli

from kafka_quotas.loadtest.scenario.model import Question, read_scenario
from kafka_quotas.loadtest.scenario.preflight import HostLimits, TargetCapabilities, preflight

LIMITS = HostLimits(open_files=20_000, max_maps=65_530)
TARGETS = (TargetCapabilities(embedded=True, through_daemon=True, limits=LIMITS), TargetCapabilities(limits=LIMITS))


@pytest.mark.parametrize("question", Question)
def test_every_question_has_a_commented_scenario_that_can_be_run_as_it_is(question: Question, tmp_path: Path) -> None:
    written = tmp_path / "mine.yaml"

    code, shown, _ = run_cli("load-test", "init", question.value)
    assert (code, run_cli("load-test", "init", question.value, str(written))[:2]) == (0, (0, ""))

    text = written.read_text("utf-8")
    assert f"load-test run {written}" in text
    assert shown.rstrip() == text.rstrip().replace(f" {written}", " FILE")
    scenario = read_scenario(str(written))
    assert [preflight(scenario, target) for target in TARGETS] == [(), ()]
    assert scenario.name == question.value
    parts = [line for line in text.splitlines() if line[:1].isalpha()]
    assert len([line for line in text.splitlines() if line.startswith("#")]) >= len(parts)


def test_a_file_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("mine")

    code, _, err = run_cli("load-test", "init", "holds", str(mine))

    assert (code, mine.read_text()) == (2, "mine")
    assert "exists already" in err
    assert "end it with .yaml" in run_cli("load-test", "init", "holds", str(tmp_path / "mine.txt"))[2]


def test_a_scenario_that_can_be_run_is_one_line_without_a_table() -> None:
    out = done("load-test", "validate", "isolation")
    assert out.startswith("isolation can be run: ")
    assert out.count("\n") == 1
