"""A load test's result in every form, live and afterwards."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from tests.support.load.results import greedy, result, unlimited
from tests.support.processes.run_cli import run_cli

from kafka_quotas.cli.charts.text_chart import Style
from kafka_quotas.cli.load_test.views.charts import load_series
from kafka_quotas.cli.load_test.views.view import (
    bar,
    headline,
    judgement_lines,
    live_view,
    load_listing,
    marked,
    print_load,
    progress_rows,
    verdict_line,
)
from kafka_quotas.cli.options.windows import WindowSource
from kafka_quotas.cli.output.listing import Output
from kafka_quotas.commands.load_test.request import RunRequest
from kafka_quotas.core.errors import StoreRefusedError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.value_format import format_duration_us
from kafka_quotas.loadtest.measurement.delivery import Delivery
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results.result import LoadResult, QuotaEffect
from kafka_quotas.loadtest.run.runner import ClientProgress, RunProgress
from kafka_quotas.loadtest.verdict.judging import Evidence
from kafka_quotas.loadtest.verdict.thresholds import parse_expectation


def test_the_table_fits_a_terminal_and_says_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    print_load(result(greedy(), unlimited()), Output.TABLE)

    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if "MB/s" in line]
    assert table[0].split() == ["greedy", "produces", "1.996", "MB/s", "2", "MB/s", "0.998", "50x", "8", "s", "held"]
    assert "unhindered" in table[1]
    assert max(len(line) for line in table) <= 80
    assert lines[-2:] == ["✓ rate: greedy, alice/free", "✓ accounting: greedy, alice/free"]


def test_latency_is_shown_where_all_do_the_same() -> None:
    alike = load_listing(result(greedy(), unlimited(Workload.PRODUCE))).table

    assert [column.title for column in alike.columns] == [
        "client", "achieved", "quota", "ratio", "throttled", "p99", "verdict",
    ]  # fmt: skip
    assert alike.rows[0][5] == "12.3 ms"


def test_a_void_run_holds_nobody() -> None:
    void = result(greedy(), evidence=Evidence(outages=("b:9092 did not answer any more from 9 s on",)))

    assert load_listing(void).table.rows[0][-1] == "VOID"


def test_lost_records_are_no_success() -> None:
    failed = result(greedy(failures=(("_MSG_TIMED_OUT", 3),)))
    lost = result(greedy(), evidence=Evidence(deliveries={greedy().key: Delivery(acked=4900, found=4899, lost=1)}))

    assert not failed.ok
    assert load_listing(failed).table.rows[0][-1] == "FAILED"
    assert load_listing(lost).table.rows[0][-1] == "RECORDS LOST"
    assert not result(greedy(ok=False)).ok
    assert not result(greedy(), interrupted=True).ok


def test_the_chart_holds_rates_limits_and_throttle_times() -> None:
    series = load_series(result(greedy(), unlimited()))

    assert [(each.name, each.style) for each in series] == [
        ("greedy", Style.LINE),
        ("alice/free", Style.LINE),
        ("quota of greedy, 2 MB/s", Style.LIMIT),
        ("longest throttle time", Style.BARS),
    ]
    assert series[0].points[0] == (3.0, 2e6)  # the end of the first whole window
    assert [each.name for each in load_series(result(unlimited()), limited_only=True)] == []


@pytest.mark.parametrize(
    ("microseconds", "text"), [(0, "0 us"), (820, "820 us"), (12_345, "12.3 ms"), (4_560_000, "4.56 s")]
)
def test_durations_are_short(microseconds: float, text: str) -> None:
    assert format_duration_us(microseconds) == text


def _progress(client_id: str, *, rate: float, throttled: int = 0, quota: float | None = 2e6) -> ClientProgress:
    load = ClientLoad(
        name=ClientName(user=None, client_id=client_id), workload=Workload.PRODUCE, topic="t", quota=quota
    )
    return ClientProgress(
        entity=load, rate=rate, acked=10, waiting=2, throttle_count=throttled, throttle_sum_ms=throttled * 100.0
    )


def test_the_live_view_shows_time_rates_and_bounds() -> None:
    entities = (_progress("greedy", rate=1.9e6, throttled=4), _progress("free", rate=8e6, quota=None))
    progress = RunProgress(elapsed_s=6.0, total_s=24.0, warming_up=False, entities=entities)
    console = Console(file=io.StringIO(), width=100, record=True)

    console.print(live_view(progress, "load"))

    head, titles, greedy_row, free_row = console.export_text().splitlines()
    assert head.rstrip() == f"load {'━' * 6}{'╌' * 18} 6 of 24 s, measuring, 18 s left"
    assert titles.split() == ["client", "does", "rate", "quota", "of", "it", "throttled", "waiting"]
    assert greedy_row.split() == "greedy produce 1.9 MB/s 2 MB/s ━━━━━━━━━━ 0.95 4x 400 ms 2".split()  # noqa: SIM905
    assert free_row.split() == ["free", "produce", "8", "MB/s", "none", "2"]


def test_of_many_clients_the_live_view_shows_the_throttled_and_the_sum() -> None:
    entities = tuple(_progress(f"c{number}", rate=1e3, throttled=number) for number in range(1000))
    progress = RunProgress(elapsed_s=1.0, total_s=2.0, warming_up=True, entities=entities)

    rows = progress_rows(progress)

    assert len(rows) == 16
    assert [row[0] for row in rows[:2]] == ["c999", "c998"]
    assert rows[-1] == ("all 1,000", "", "1 MB/s", "", "", f"{sum(range(1000)):,}x 49950 s", "2,000")


def test_a_bar_never_leaves_its_width() -> None:
    assert (bar(-1, width=4), bar(0.5, width=4), bar(9, width=4)) == ("╌╌╌╌", "━━╌╌", "━━━━")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["produce"], "say what to put under load"),
        (["produce", "--embedded", "--bootstrap-server", "127.0.0.1:1"], "exclude each other"),
        (["produce", "--embedded", "--rate", "fast"], "not a rate: 'fast'"),
        (["produce", "--embedded", "--quota", "0"], "--quota must be above 0"),
        (["produce", "--embedded", "--duration", "soon"], "not a length of time"),
        (["produce", "--embedded", "--duration", "0s"], "a duration must be above 0 s"),
        (["produce", "--embedded", "-X", "nonsense"], "not a property: 'nonsense'"),
        (["produce", "--embedded", "--entity", "a/"], "not an entity: 'a/'"),
        (["run", "everyday", "--plot", "run.gif"], "must end in .png or .svg"),
        (["consume", "--embedded", "--passwords", "nowhere.txt"], "cannot read nowhere.txt"),
        (["produce", "--embedded", "--broker-windows"], "no such option: --broker-windows"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(arguments: list[str], message: str) -> None:
    code, out, err = run_cli("load-test", *arguments)

    assert (code, out) == (2, "")
    told, hint = err.splitlines()
    assert told.startswith("error: ")
    assert message in told
    assert hint.startswith("hint: ")


@pytest.mark.parametrize(
    ("options", "window"),
    [
        ((), QuotaWindow(samples=3, window_s=2)),
        (("--quota-window-num", "5"), QuotaWindow(samples=5, window_s=2)),
        (("--quota-window-num", "5", "--quota-window-size-seconds", "3"), QuotaWindow(samples=5, window_s=3)),
        (("--through-daemon",), QuotaWindow()),
    ],
)
def test_the_window_is_that_of_the_brokers_unless_it_is_given(
    options: tuple[str, ...], window: QuotaWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[RunRequest] = []

    def brokers(url: str, _settings: object) -> WindowSource:
        assert url == "kafka://127.0.0.1:9092"
        return (url, {"quota.window.num": "3", "quota.window.size.seconds": "2"})

    def run(order: RunRequest, *_: object, **__: object) -> int:
        asked.append(order)
        return 0

    monkeypatch.setattr("kafka_quotas.cli.options.windows.broker_source", brokers)
    monkeypatch.setattr("kafka_quotas.cli.load_test.typed.run_and_keep", run)
    code, _, err = run_cli("load-test", "consume", "--bootstrap-server", "127.0.0.1:9092", *options)

    assert (code, err) == (0, "")
    assert asked[0].target.window == window


def test_evidence_is_there_for_what_is_not_met_alone() -> None:
    part = Delivery(acked=4900, found=1150, unchecked="the topic no longer keeps the first records")
    expected = (parse_expectation("achieved > 1MB/s"), parse_expectation("records.lost < 0"))
    run = result(
        greedy(ok=False), unlimited(), evidence=Evidence(deliveries={greedy().key: part}, expectations=expected)
    )

    assert judgement_lines(run) == [
        "✓ rate: alice/free",
        "✓ accounting: greedy, alice/free",
        "\N{EN DASH} delivery: greedy not checked",
        "✓ achieved > 1MB/s: greedy 3 MB/s, alice/free 8 MB/s",
        "✗ greedy: rate not met: the evidence",
        "✗ expectation: not met: records.lost < 0: no client of the run has that figure",
    ]
    assert len(judgement_lines(run, verbose=True)) == len(run.judgements)
    assert "✓ alice/free: rate met: all it offered" in judgement_lines(run, verbose=True)


def test_many_clients_are_a_number_and_many_failures_are_cut() -> None:
    entities = [
        replace(greedy(ok=number > 50), name=ClientName(user=None, client_id=f"c{number}")) for number in range(60)
    ]
    lines = judgement_lines(result(*entities))

    assert lines[:2] == ["✓ rate: 9 clients", "✓ accounting: 60 clients"]
    assert len(lines) == 2 + 40 + 1
    assert lines[-1] == "✗ 11 more are not met"


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (result(greedy(), unlimited()), "PASS: 4 checks met"),
        (
            result(
                greedy(), evidence=Evidence(deliveries={greedy().key: Delivery(acked=9, found=1, unchecked="late")})
            ),
            "PASS: 2 checks met, 1 could not be made",
        ),
        (result(greedy(ok=False), unlimited()), "FAIL: greedy rate not met, of 4 checks"),
        (
            result(greedy(), evidence=Evidence(expectations=(parse_expectation("achieved < 1MB/s"),))),
            "FAIL: achieved < 1MB/s not met, of 3 checks",
        ),
        (result(greedy(ok=False), evidence=Evidence(outages=("too busy",))), "VOID: this run proves nothing: too busy"),
        (result(greedy(), interrupted=True), "VOID: interrupted after 23 s"),
    ],
)
def test_the_last_line_says_how_it_ended_and_why(run: LoadResult, line: str) -> None:
    assert verdict_line(run) == line


def test_a_scatter_that_decides_nothing_is_no_failure() -> None:
    control = replace(unlimited(), control=True)
    effect = QuotaEffect(with_us=(1, 1), without_us=(4, 4), ratio=4.0, low=0.5, high=30.0)
    run = result(control, evidence=Evidence(solo={control.key: control.response}, effects={control.key: effect}))

    assert not run.ok
    assert verdict_line(run) == "VOID: alice/free isolation undecided, because the figures scatter too much"


def test_marks_are_ascii_where_the_terminal_has_no_others() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")

    assert [marked(f"{mark} rate", stream) for mark in "✓✗\N{EN DASH}"] == ["+ rate", "x rate", "- rate"]


def test_verdicts_on_rates_say_in_which_direction() -> None:
    much, little = greedy(ok=False), greedy(ok=False)
    little = replace(little, verdict=replace(little.verdict, ratio=0.8))
    unit = replace(greedy(), verdict=replace(greedy().verdict, achieved=0.0, span_ms=0.0))

    assert [load_listing(result(each)).table.rows[0][-1] for each in (much, little)] == ["NOT HELD", "TOO LITTLE"]
    assert load_listing(result(unit)).table.rows[0][1] == "too short to measure"


def test_one_bar_covers_all_loads_of_a_run() -> None:
    progress = RunProgress(elapsed_s=6.0, total_s=24.0, warming_up=False, entities=(), before_s=30.0, whole_s=72.0)

    assert headline(progress, "load") == f"load {'━' * 12}{'╌' * 12} 36 of 72 s, measuring, 36 s left"


def test_a_window_that_brokers_refuse_to_tell_is_kafkas_default_and_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[RunRequest] = []

    def brokers(url: str, _settings: object) -> WindowSource:
        raise StoreRefusedError(f"{url} refuses it", hint="kafka-acls --add")

    monkeypatch.setattr("kafka_quotas.cli.options.windows.broker_source", brokers)
    monkeypatch.setattr(
        "kafka_quotas.cli.load_test.scenarios.run_and_keep", lambda order, *_, **__: asked.append(order) or 0
    )
    code, _, err = run_cli("load-test", "run", "ratio", "--bootstrap-server", "127.0.0.1:9092", "--yes")

    assert code == 0
    assert asked[0].target.window == QuotaWindow(samples=11, window_s=1)
    assert err.startswith("note: the quota window is not known, and Kafka's default of 11 x 1 s is assumed: ")
