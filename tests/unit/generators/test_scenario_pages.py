"""Which runs of a series are made, and on which machine."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from generators import scenario_pages
from generators.scenario_pages import digest, kept_measurement, main
from tests.unit.generators.test_measured_page import RUN


def test_a_busy_machine_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(scenario_pages.os, "getloadavg", lambda: (1.0, 0.0, 0.0))

    assert main(["ratio"]) == 2
    assert "the load average is 1.00" in capsys.readouterr().err


def test_a_name_that_is_not_shipped_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["no-such"])

    assert error.value.code == 2
    assert "no scenario is called no-such" in capsys.readouterr().err


def test_a_finished_run_is_kept_until_the_scenario_or_the_tool_changes(tmp_path: Path) -> None:
    file = tmp_path / "ratio.json"
    file.write_text(json.dumps(asdict(RUN)), encoding="utf-8")

    assert kept_measurement(file, RUN.digest) == RUN
    assert kept_measurement(file, "another") is None
    assert kept_measurement(tmp_path / "none.json", RUN.digest) is None


def test_a_run_that_did_not_pass_is_made_again(tmp_path: Path) -> None:
    file = tmp_path / "ratio.json"
    file.write_text(json.dumps(asdict(replace(RUN, exit_code=1))), encoding="utf-8")

    assert kept_measurement(file, RUN.digest) is None


def test_scenarios_have_digests_of_their_own() -> None:
    assert digest("ratio") == digest("ratio") != digest("isolation")
