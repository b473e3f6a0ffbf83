"""Which runs of a series are made, and on which machine."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from generators import scenario_pages
from generators.scenario_pages import digest, kept_measurement, main, quiet_load
from tests.unit.generators.test_measured_page import RUN


def test_a_machine_that_stays_busy_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scenario_pages.os, "getloadavg", lambda: (1.0, 0.0, 0.0))

    assert main(["ratio", "--wait", "0"]) == 2
    assert "the load average is 1.00" in capsys.readouterr().err


def test_a_busy_machine_may_become_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = iter([2.0, 1.5, 0.9, 0.1])
    waits_s: list[float] = []
    monkeypatch.setattr(scenario_pages.os, "getloadavg", lambda: (next(loads), 0.0, 0.0))
    monkeypatch.setattr(scenario_pages.time, "sleep", waits_s.append)

    assert quiet_load(60.0) == 0.9
    assert len(waits_s) == 2


def test_a_series_begins_no_scenario_after_its_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock_s = iter(range(0, 100, 10))
    begun: list[str] = []
    monkeypatch.setattr(scenario_pages.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(scenario_pages, "time", SimpleNamespace(monotonic=lambda: next(clock_s)))
    monkeypatch.setattr(scenario_pages, "_written", lambda name, *_, **__: bool(begun.append(name)) or True)

    assert main(["ratio", "isolation", "everyday", "--within", "15"]) == 1
    assert begun == ["ratio"]
    assert "no time was left for isolation, everyday" in capsys.readouterr().err


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
