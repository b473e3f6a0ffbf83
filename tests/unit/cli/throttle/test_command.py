"""The calculator on the command line: every form of output, every refusal one line."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.support.processes.run_cli import done, refused, run_cli

EXAMPLES = Path(__file__).parents[4] / "examples"
KIP_13 = ("throttle", "rate", "--quota", "5MB/s", "--steady", "5MB/s", "--burst", "15MB")
STALL = ("throttle", "request", "--quota", "0.1%", "--stall", "100ms")
BURST = ("throttle", "mutation", "--quota", "5", "--burst", "560", "--controller-quota-window-num", "100")
COMPARE = ("throttle", "compare")
SIMULATE = ("throttle", "simulate", str(EXAMPLES / "events-kip13.jsonl"), "--quota", "5MB/s")
BUCKET = ("throttle", "simulate", str(EXAMPLES / "events-kip599.csv"), "--quota", "5", "--algorithm", "token-bucket")
EVERY = [KIP_13, STALL, BURST, COMPARE, SIMULATE]


def document(*argv: str) -> dict:
    return json.loads(done(*argv, "--output", "json"))


@pytest.mark.parametrize("argv", EVERY, ids=lambda argv: " ".join(argv[1:2] + argv[-1:]))
def test_every_answer_comes_in_markdown_and_as_a_table(argv) -> None:
    assert "|" in done(*argv, "--output", "markdown")
    table = done(*argv)
    assert max(map(len, table.splitlines())) <= 120
    assert run_cli(*argv, terminal=True)[0] == 0


def test_every_figure_is_printed_once_and_its_arithmetic_if_it_is_asked_for() -> None:
    once, explained = done(*KIP_13), done(*KIP_13, "--explain")
    assert (once.count("6.364 MB/s"), "arithmetic" in once) == (1, False)
    assert explained.count("arithmetic") == 3
    assert "arithmetic" in done(*STALL), "figures that stand nowhere else"


def test_the_json_of_an_answer_holds_plain_numbers_without_noise() -> None:
    text = done(*KIP_13, "--output", "json")
    assert json.loads(text)["delay_ms"] == {"kip-13": 2000, "kafka-start": 3000, "kafka-end": 2100}
    assert "e+" not in text
    assert "99999" not in text
    assert '"value": 60000000,' in text


def test_the_contract_of_an_answer() -> None:
    answer = document(*STALL)
    assert list(answer) == ["schema", "given", "window", "delay_ms", "calculations", "notes"]
    assert answer["window"] == {"num": 11, "size_seconds": 1, "origin": "Kafka's default"}
    assert list(answer["calculations"][0]) == ["method", "title", "source", "delay_ms", "steps"]
    assert answer["calculations"][0]["steps"][0] == {
        "figure": "time per window",
        "arithmetic": "0.1 % x 1 s",
        "value": 1,
        "unit": "ms",
    }


def test_the_contract_of_a_comparison() -> None:
    comparison = document(*COMPARE)
    assert list(comparison) == ["schema", "quota", "burst", "window", "algorithms", "states"]
    assert comparison["window"] == {"num": 100, "size_seconds": 1, "origin": "KIP-599's example"}
    assert comparison["states"][0]["levels"]["token-bucket"] == -60


def test_only_a_bare_comparison_takes_the_documents_window() -> None:
    assert document(*COMPARE, "--burst", "56")["window"]["num"] == 11
    assert document(*COMPARE, "--controller-quota-window-num", "20")["window"]["num"] == 20


def test_a_burst_may_be_topics_by_partitions() -> None:
    assert document(*BURST)["delay_ms"] == {"token-bucket": 12_000, "strict": 12_000, "permissive": 12_000}
    assert document(*BURST, "--burst", "7x80")["delay_ms"] == document(*BURST)["delay_ms"]


@pytest.mark.parametrize("algorithm", ["rate", "rate-spread-even", "rate-spread-fill"])
def test_a_mutation_may_be_asked_of_each_algorithm(algorithm: str) -> None:
    assert document(*BURST, "--algorithm", algorithm)["delay_ms"] == {algorithm: 12_000}


def test_a_replay_streams_its_decisions_and_adds_them_up() -> None:
    replay = document(*BUCKET, "--controller-quota-window-num", "100")
    assert replay["decisions"][0] == {
        "t_ms": 0,
        "due_ms": 0,
        "amount": 560,
        "op": "strict",
        "attempt": 1,
        "verdict": "admitted",
        "level": 500,
        "after": -60,
        "window_ms": None,
        "throttle_ms": 0,
    }
    verdicts = [each["verdict"] for each in replay["decisions"]]
    assert verdicts == ["admitted"] + ["refused"] * 11 + ["admitted"] * 4
    assert [each["throttle_ms"] for each in replay["decisions"][1:13]] == [*range(11_000, 0, -1000), 0]
    assert replay["summary"]["refused"] == 11
    assert replay["operation"] == "strict"


def test_a_closed_loop_keeps_to_the_quota() -> None:
    summary = document(*SIMULATE, "--closed-loop")["summary"]
    assert summary["mean_rate"] == pytest.approx(5e6)
    assert summary["longest_delay_ms"] == 3000


def test_a_long_request_is_paid_off_in_seconds_of_a_second(tmp_path: Path) -> None:
    file = str(EXAMPLES / "events-request.csv")
    replay = document("throttle", "simulate", file, "--quota", "0.1%", "--algorithm", "bounded")
    assert max(each["throttle_ms"] for each in replay["decisions"]) == 1000
    unbounded = document("throttle", "simulate", file, "--quota", "0.1%")
    assert max(each["throttle_ms"] for each in unbounded["decisions"]) > 90_000


def test_events_come_from_standard_input_in_either_form(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ('{"t_ms": 0, "amount": 60}\n', "t_ms,amount\n0,60\n"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert document("throttle", "simulate", "-", "--quota", "5")["decisions"][0]["throttle_ms"] == 2000


def test_a_chart_goes_below_the_table_and_beside_the_data() -> None:
    out = done(*SIMULATE, "--chart")
    assert "[bytes/s]" in out
    _, out, err = run_cli(*SIMULATE, "--chart", "--output", "json")
    assert json.loads(out)
    assert "[bytes/s]" in err
    assert "[tokens]" in done(*BUCKET, "--chart")
    assert done(*SIMULATE, "--chart", "--output", "markdown").endswith("```\n")


def test_plots_are_written_and_said_on_standard_error(tmp_path: Path) -> None:
    targets = [tmp_path / f"run.{form}" for form in ("svg", "png")]
    plots = [word for target in targets for word in ("--plot", str(target))]
    code, out, err = run_cli(*SIMULATE, "--output", "json", *plots)
    assert (code, err) == (0, "".join(f"drawn: {target}\n" for target in targets))
    assert json.loads(out)
    assert all(target.stat().st_size > 5000 for target in targets)


REFUSED = [
    (("throttle", "rate", "--quota", "0", "--observed", "5"), "--quota: must be above 0"),
    (("throttle", "rate", "--quota", "-5MB/s", "--observed", "5"), "--quota: must be above 0"),
    (("throttle", "rate", "--quota", "5%", "--observed", "5"), "--quota: not a size"),
    (("throttle", "rate", "--quota", "5", "--observed", "1e999"), "--observed: too large"),
    (("throttle", "rate", "--quota", "5", "--observed", "nan"), "--observed: not a size"),
    (("throttle", "rate", "--quota", "5"), "give either --observed or --burst"),
    (("throttle", "rate", "--quota", "5", "--observed", "6", "--over", "1"), "--over: not a length of time"),
    (("throttle", "rate", "--quota", "5", "--observed", "6", "--steady", "6"), "--steady goes with --burst"),
    (("throttle", "request", "--quota", "1MB"), "--quota: not a value"),
    (("throttle", "request", "--quota", "1", "--connections", "5"), "--connections and --request-time go together"),
    (("throttle", "request", "--quota", "1", "--steady", "1"), "--steady goes with --stall"),
    (("throttle", "mutation", "--quota", "5", "--burst", "-1"), "--burst: must be partitions"),
    (("throttle", "mutation", "--quota", "5", "--burst", "7x8x9"), "--burst: must be partitions"),
    (("throttle", "mutation", "--quota", "5", "--burst", "0"), "--burst: must be above 0"),
    (("throttle", "mutation", "--quota", "5", "--burst", "9" * 400), "--burst: too large"),
    ((*COMPARE, "--controller-quota-window-num", "200000"), "takes at most 100000 samples"),
    ((*KIP_13, "--quota-window-num", "99999999999"), "must be between 1 and 2147483647, not 99999999999"),
    ((*KIP_13, "--quota-window-num", "0"), "'--quota-window-num': 0 is out of range: it must be at least 1"),
    ((*KIP_13, "--bootstrap-server", ""), "--bootstrap-server is empty"),
    ((*SIMULATE[:3], "--quota", "x"), "--quota: not a size"),
    ((*SIMULATE, "--plot", "plot.gif"), "must end in .png or .svg"),
    (("throttle", "simulate", "missing.csv", "--quota", "5"), "can't read missing.csv"),
    ((*SIMULATE, "--controller-quota-window-num", "100"), "rate does not go by the window that was given"),
    ((*BUCKET, "--quota-window-size-seconds", "2"), "token-bucket does not go by the window that was given"),
]


@pytest.mark.parametrize(("argv", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_makes_no_sense_is_refused_in_one_line(argv, message: str) -> None:
    err = refused(*argv)
    assert message in err
    assert err.startswith("error: ")
    assert len(err.splitlines()) <= 2


@pytest.mark.parametrize(("form", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_bad_line_leaves_a_whole_document_without_summary(
    form: str, parse: Callable[[str], dict], tmp_path: Path
) -> None:
    """Decisions before the line are printed by then.

    Whoever parses the output must still be able to.
    """
    file = tmp_path / "events.csv"
    file.write_text("t_ms,amount\n0,10\n1000,20\n2000,much\n", encoding="utf-8")
    code, out, err = run_cli("throttle", "simulate", str(file), "--quota", "5", "--output", form)
    assert code == 2
    assert err.startswith(f"error: {file}, line 4: amount must be")
    told = parse(out)
    assert [each["amount"] for each in told["decisions"]] == [10, 20]
    assert told["summary"] is None


def test_thread_time_is_per_cent_and_not_per_second() -> None:
    out = done(
        "throttle", "simulate", str(EXAMPLES / "events-request.csv"), "--quota", "0.1%", "--algorithm", "bounded"
    )
    assert out.startswith("bounded, quota 0.1 %, window")
    assert "%/s" not in out
    assert "1.00909 %" in out


def test_a_calculator_takes_no_unlimited_and_hints_at_none() -> None:
    code, _, err = run_cli("throttle", "rate", "--quota", "unlimited", "--burst", "1MB")
    assert code == 2
    assert err.splitlines()[1] == "hint: examples: 1048576, 10MiB, 2M (2,000,000), 80Mbps (bits)"
