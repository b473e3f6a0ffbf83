"""`load-test run --find-rate` on the command line: its document, its table, and what does not go with it."""

import json

import pytest
from tests.support.processes.run_cli import run_cli

from kafka_quotas.cli.load_test.rate_search import print_found
from kafka_quotas.cli.output.render import Output
from kafka_quotas.commands.load_test.find_rate import FoundRate, RateTrial, TriedRate, parse_target
from kafka_quotas.loadtest.judge.rate_search import RateTally, factor_of
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.plan.workload import RateUnit

RUN = ("load-test", "run", "kip13-default", "--find-rate", "p99<50ms")


def tried(step: int, *, kept: int, broken: int) -> TriedRate:
    """A rate with its runs, whose p99 is 10 ms where they kept it."""
    trials = tuple(
        RateTrial(step=step, is_kept=is_kept, evidence="why", figures=(10.0 if is_kept else 90.0,), is_bottleneck=False)
        for is_kept in (*(True,) * kept, *(False,) * broken)
    )
    return TriedRate(
        factor=factor_of(step),
        offered=((RateUnit.BYTES, 1e6 * factor_of(step)),),
        tally=RateTally(step=step, kept=kept, broken=broken),
        trials=trials,
    )


def found() -> FoundRate:
    low, high = tried(0, kept=5, broken=0), tried(8, kept=1, broken=9)
    return FoundRate(
        scenario="s",
        target=parse_target("p99<50ms"),
        state=State.MET,
        evidence="it is kept up to 1 MB/s",
        run_s=5.0,
        rates=(low, high),
        low=low,
        high=high,
    )


def test_people_get_a_row_for_each_rate_and_the_conclusion(capsys: pytest.CaptureFixture[str]) -> None:
    print_found(found(), Output.TABLE)

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "s: response.p99<50ms, 15 runs of 5 s"
    assert [line.split() for line in lines[3:5]] == [
        ["x", "1", "1", "MB/s", "5", "of", "5", "10", "ms"],
        ["x", "2", "2", "MB/s", "1", "of", "10", "10", "ms", "to", "90", "ms"],
    ]
    assert lines[-1] == "find rate: met: it is kept up to 1 MB/s"


def test_programs_get_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    print_found(found(), Output.JSON)

    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["ok"], document["state"]) == ("kafka-quotas.load-rate/1", True, "met")
    assert set(document) == {
        *("schema", "ok", "scenario", "target", "state", "evidence", "run_s", "low", "high", "rates"),
    }
    assert document["low"] == {
        "factor": 1.0,
        "offered": [{"unit": "bytes/s", "rate": 1e6}],
        "kept": 5,
        "runs": 5,
        "is_sure": True,
        "figures": [[10.0]] * 5,
        "evidence": ["why"] * 5,
    }


@pytest.mark.parametrize(
    "options",
    [
        ("--out", "kept"),
        ("--repeat", "2"),
        ("--expect", "throttle.count == 0"),
        ("--experiment", "1min"),
        ("--shard", "1/2"),
    ],
)
def test_what_belongs_to_one_run_does_not_go_with_a_search(options: tuple[str, ...]) -> None:
    code, out, err = run_cli(*RUN, *options)

    assert (code, out) == (2, "")
    assert "--find-rate" in err


def test_a_time_without_a_search_is_refused() -> None:
    code, _, err = run_cli("load-test", "run", "kip13-default", "--find-within", "1min")

    assert (code, "--find-within belongs to a search" in err) == (2, True)
