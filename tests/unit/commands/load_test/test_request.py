"""How long a scenario takes, comparison included, before anything is started."""

from dataclasses import replace

import pytest

from kafka_quotas.commands.load_test.request import run_length
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.scenario.model import Question, parse_scenario, question_text, read_scenario


def test_isolation_is_decided_within_a_minute_where_the_first_runs_do() -> None:
    length = run_length(read_scenario("isolation"))

    assert length.load_s + length.comparison_s <= 45  # and each of seven runs starts a daemon
    assert length.text == "11.4 s of load, then 18 s to 180 s to compare with and without quotas"
    short = run_length(read_scenario("isolation"), experiment_time_s=10.0)
    assert (short.comparison_s, short.comparison_most_s) == (10.0, 10.0)


@pytest.mark.parametrize(("window", "seconds"), [(QuotaWindow(samples=3), 23.0), (QuotaWindow(samples=11), 66.0)])
def test_a_run_lasts_for_five_windows_of_the_target(window: QuotaWindow, seconds: float) -> None:
    scenario = replace(parse_scenario(question_text(Question.HOLDS), "holds"), window=window)

    assert run_length(scenario, experiment_time_s=0.0).load_s == seconds
    assert run_length(scenario, experiment_time_s=0.0).text == f"{seconds:g} s of load"


def test_what_has_no_quotas_is_not_compared() -> None:
    length = run_length(parse_scenario(question_text(Question.TAKES), "takes"))

    assert (length.load_s, length.comparison_s) == (23.0, 0.0)
