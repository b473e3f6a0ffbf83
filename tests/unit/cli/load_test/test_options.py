"""The folder that a run leaves: whole or not at all, reported and compared from its files alone."""

import errno
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.load.results import greedy, result, unlimited
from tests.support.processes.run_cli import run_cli

from kafka_quotas.cli.load_test import kept_runs as load_report
from kafka_quotas.cli.load_test import options as load_keeping
from kafka_quotas.cli.load_test.options import ResultOutput, keep_result, keep_runs
from kafka_quotas.cli.load_test.views.charts import latencies
from kafka_quotas.cli.load_test.views.view import load_listing
from kafka_quotas.cli.output.listing import Output, json_text
from kafka_quotas.cli.output.render import envelope
from kafka_quotas.commands.load_test.request import ScenarioResult, VariantResult
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.extras import install_extra, install_libraries
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.measurement.delivery import Delivery
from kafka_quotas.loadtest.results.result import ClientResult, LoadResult, ProbeResult
from kafka_quotas.loadtest.scenario.model import Scenario, Variant
from kafka_quotas.loadtest.verdict.comparison import ComparisonOutcome, Limits, compare


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kept run with all its files."""
    folder = tmp_path_factory.mktemp("drawn")
    control = replace(unlimited(), control=True, solo=unlimited().response)
    probes = (ProbeResult(at_s=1.0, wait_ms=250.0), ProbeResult(at_s=2.0, wait_ms=None, error="no answer"))
    keep_result(replace(result(greedy(), control), probes=probes), folder, plot=True)
    return folder


@pytest.fixture
def kept(drawn: Path, tmp_path: Path) -> Path:
    """A copy of the run for a test of its own."""
    return Path(shutil.copytree(drawn, tmp_path / "kept"))


def _kept_plainly(run: LoadResult, folder: Path) -> Path:
    """The folder, with what can be written without drawing."""
    folder.mkdir()
    (folder / "run.json").write_text(json_text(envelope(load_listing(run))), encoding="utf-8")
    return folder


def test_a_run_is_kept_in_every_form(kept: Path) -> None:
    assert json.loads((kept / "run.json").read_text(encoding="utf-8"))["schema"] == "kafka-quotas.load-test/3"
    assert (kept / "run.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in kept.iterdir()) == ["report.html", "run.json", "run.png", "samples.parquet"]


def test_a_full_disk_leaves_the_folder_as_it_was(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in kept.iterdir()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kafka_quotas.loadtest.write_samples", full)
    with pytest.raises(KafkaQuotasError, match="the disk is full; nothing of it was kept") as raised:
        keep_result(result(greedy(ok=False)), kept)

    assert raised.value.hint == "make room, or name another folder with --out"
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == before


def test_a_file_that_cannot_take_its_place_is_named_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_quotas.loadtest.can_write_samples", lambda: False)
    (tmp_path / "run.json").mkdir()

    with pytest.raises(KafkaQuotasError, match=r"can't keep all of the run .*: it lacks run.json \(Is a directory\)"):
        keep_result(result(greedy()), tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "run.json"]
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_every_output_is_tried_and_those_that_fail_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_keeping, "draw_result", lambda *_, **__: None)
    folder = tmp_path / "kept"
    output = ResultOutput(output=Output.JSON, plot=[tmp_path / "no" / "run.svg", tmp_path / "run.svg"], out=folder)
    scenario = Scenario(name="s", title="s", entities=(), duration_s=1.0)
    runs = (VariantResult(variant=Variant.WITH_QUOTAS, result=result(greedy())),)

    with pytest.raises(KafkaQuotasError) as raised:
        keep_runs(ScenarioResult(scenario=scenario, scale=1.0, runs=runs, interrupted=False, leftovers=()), output)

    assert raised.value.message == f"can't draw {tmp_path}/no/run.svg: there is no folder {tmp_path}/no"
    assert (folder / "run.json").is_file()
    assert (tmp_path / "run.svg").is_file()


def test_what_libraries_are_missing_is_said_and_the_rest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kafka_quotas.loadtest.can_write_samples", lambda: False)
    monkeypatch.setattr(load_keeping, "find_spec", lambda _: None)

    keep_result(result(greedy()), tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert capsys.readouterr().err.splitlines() == [
        f"note: no samples.parquet without pyarrow: {install_libraries('pyarrow')}",
        f"note: no report.html without matplotlib and jinja2: {install_extra('plot')}",
    ]


def test_the_report_needs_no_network_and_answers_the_questions(kept: Path) -> None:
    page = (kept / "report.html").read_text(encoding="utf-8")

    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//|@import|url\((?!#)", page)
    assert "<script" not in page
    for words in ("Rate against quota", "Throttling over time", "Latency", "Isolation", "later topic", "The evidence"):
        assert words in page


def test_a_kept_run_is_drawn_again_from_its_files(kept: Path) -> None:
    page = (kept / "report.html").read_bytes()
    (kept / "report.html").unlink()

    plot = (kept / "run.png").read_bytes()
    (kept / "run.png").unlink()

    code, out, err = run_cli("load-test", "report", str(kept), "--plot", str(kept / "run.png"))

    assert (code, "held" in out) == (0, True)
    assert (kept / "report.html").read_bytes() == page
    assert (kept / "run.png").read_bytes() == plot
    assert "report.html drawn in" in err


def test_a_report_ends_with_the_verdict_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_report, "draw_result", lambda *_, **__: None)
    for name, run, code in (
        ("failed", result(greedy(ok=False)), 1),
        ("ended", result(greedy(), interrupted=True), 130),
    ):
        assert run_cli("load-test", "report", str(_kept_plainly(run, tmp_path / name)))[0] == code
    assert run_cli("load-test", "report", str(tmp_path))[0] == 2


def _changed(entity: ClientResult, **changes: object) -> LoadResult:
    return result(replace(entity, **changes))  # type: ignore[arg-type]


def test_the_same_run_is_not_worse_than_itself() -> None:
    run = result(greedy(), unlimited())
    comparison = compare([run], [run], Limits())

    assert comparison.ok
    assert {each.outcome for each in comparison.differences} == {ComparisonOutcome.SAME, ComparisonOutcome.NOT_COMPARED}
    assert [note.partition(",")[0] for note in comparison.notes] == ["a single run has no interval"]


_VERDICT, _RESPONSE, _THROTTLE = greedy().verdict, greedy().response, greedy().throttle


@pytest.mark.parametrize(
    ("metric", "field", "better", "worse"),
    [
        ("achieved", "verdict", replace(_VERDICT, achieved=2.2e6), replace(_VERDICT, achieved=1.8e6)),
        ("response.p99", "response", replace(_RESPONSE, p99_us=900), replace(_RESPONSE, p99_us=26_000)),
        ("throttle.sum", "throttle", replace(_THROTTLE, sum_ms=100.0), replace(_THROTTLE, sum_ms=8900.0)),
        ("records.failed", "failures", (), (("TIMED_OUT", 2),)),
        ("records.lost", "delivery", Delivery(), Delivery(lost=2)),
    ],
)
def test_each_figure_has_a_direction_in_which_it_is_worse(
    metric: str, field: str, better: object, worse: object
) -> None:
    start: dict[str, object] = {
        "failures": (("TIMED_OUT", 1),),
        "delivery": Delivery(lost=1),
        "response": replace(_RESPONSE, p99_us=12_300),
    }
    first = _changed(greedy(), **start)
    for value, outcome in ((better, ComparisonOutcome.BETTER), (worse, ComparisonOutcome.WORSE)):
        comparison = compare([first], [_changed(greedy(), **{**start, field: value})], Limits(latency=0.1))
        found = {each.metric.name: each.outcome for each in comparison.differences}
        assert found.pop(metric) is outcome
        assert outcome not in found.values()


def test_throttling_is_compared_per_second_of_the_run() -> None:
    longer = replace(
        _changed(greedy(), throttle=replace(greedy().throttle, sum_ms=16_000.0)), elapsed_s=2 * result().elapsed_s
    )

    assert compare([result(greedy())], [longer], Limits()).ok


def test_runs_of_different_loads_are_noted() -> None:
    other = replace(result(greedy()), window=QuotaWindow(samples=11), interrupted=True)
    comparison = compare([result(unlimited())], [other], Limits())

    assert comparison.differences == ()
    assert comparison.notes[:-1] == (
        "the quota windows differ: 3 x 1 s and 11 x 1 s",
        "1 clients are in the first run alone: alice/free",
        "1 clients are in the second run alone: greedy",
    )


def test_the_comparison_is_an_exit_code_and_a_document(kept: Path, tmp_path: Path) -> None:
    slower = _kept_plainly(_changed(greedy(), verdict=replace(_VERDICT, achieved=1.8e6)), tmp_path / "slower")

    code, out, _ = run_cli("load-test", "compare", str(kept), str(slower))
    assert code == 1
    assert "WORSE: 1 of" in out
    row = next(line for line in out.splitlines() if "WORSE" in line and "achieved" in line)
    assert row.split() == ["greedy", "achieved", "1.996", "MB/s", "1.8", "MB/s", "-9.8%", "5%", "WORSE"]

    code, out, _ = run_cli("load-test", "compare", str(kept), str(slower), "--max-rate-fall", "0.1", "--output", "json")
    document = json.loads(out)
    assert (code, document["schema"], document["ok"]) == (0, "kafka-quotas.load-comparison/1", True)
    assert document["differences"][0]["metric"] == "achieved"


def test_repeats_are_compared_by_intervals(tmp_path: Path) -> None:
    for side in ("before", "after"):
        (tmp_path / side).mkdir()
    for side, rates in (("before", (1.95e6, 2.0e6, 2.05e6)), ("after", (1.8e6, 1.82e6, 1.81e6))):
        for number, rate in enumerate(rates, start=1):
            changed = _changed(greedy(), verdict=replace(_VERDICT, achieved=rate, ratio=rate / 2e6))
            _kept_plainly(changed, tmp_path / side / f"repeat-{number}")
    sides = [str(tmp_path / side) for side in ("before", "after")]

    code, out, _ = run_cli("load-test", "compare", *sides, "--output", "json")
    document = json.loads(out)
    assert (code, document["first"]["runs"], document["notes"]) == (0, 3, [])
    achieved = document["differences"][0]
    assert (achieved["metric"], achieved["outcome"]) == ("achieved", "undecided")
    assert achieved["interval"]["low"] < -0.1 < achieved["change"] < achieved["interval"]["high"] < 0

    code, out, _ = run_cli("load-test", "compare", *sides, "--max-rate-fall", "1%")
    assert (code, "95 %" in out, "WORSE: 2 of" in out) == (1, True, True)


def test_repeats_need_a_folder_without_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "out" / "repeat-1").mkdir(parents=True)
    for options in (("--repeat", "2"), ("--repeat", "2", "--out", str(tmp_path / "out"))):
        code, _, err = run_cli("load-test", "run", "kip124-stall", *options)
        assert (code, "--out" in err) == (2, True)


@pytest.mark.parametrize(
    "options", [("--max-rate-fall", "five"), ("--max-latency-rise", "-1%"), ("--max-throttle-rise", "")]
)
def test_thresholds_that_are_no_shares_are_refused(kept: Path, options: tuple[str, ...]) -> None:
    code, _, err = run_cli("load-test", "compare", str(kept), str(kept), *options)

    assert code == 2
    assert "5% or 0.05" in err


def test_the_latency_curve_and_its_table_mark_lower_bounds() -> None:
    response = replace(greedy().response, censored=greedy().response.count // 2)
    section = latencies(result(replace(greedy(), response=response, service=replace(response, censored=0))))

    assert section is not None
    assert "at least: no answer by the end" in section.charts[0][0]
    assert [row[1:4] for row in section.tables[0].rows[:2]] == [
        ("response", "900 us", "> 1.5 ms"), ("service", "900 us", "1.5 ms"),
    ]  # fmt: skip
    known = latencies(result(greedy()))
    assert known is not None
    assert "no answer by the end" not in known.charts[0][0]
