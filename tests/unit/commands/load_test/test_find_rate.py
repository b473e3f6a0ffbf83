"""What a search for a rate makes of its runs, without any target."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.support.load.results import result, unlimited

from kafka_quotas.commands.load_test import find_rate
from kafka_quotas.commands.load_test.find_rate import FoundRate, RateGoal, parse_target, search_rate
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.ramp import RampPhase
from kafka_quotas.loadtest.plan.workload import Loop, Workload
from kafka_quotas.loadtest.result.result import ClientResult, LoadResult
from kafka_quotas.loadtest.scenario.model import Scenario

SCENARIO = Scenario(name="s", title="t", entities=(), duration_s=60.0, solo_s=5.0, window=QuotaWindow(samples=1))
FREE = unlimited(Workload.PRODUCE)
CALM = replace(FREE, name=ClientName(user=None, client_id="calm"), control=True)
KNEE = 500.0


def load(client: ClientResult, rate: Fraction | None = Fraction(100)) -> ClientLoad:
    return ClientLoad(
        name=client.name, workload=client.workload, topic="t", arrivals_per_second=rate, control=client.control
    )


class Target:
    """A target that is slow above `KNEE` records/s, on a clock of its own."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, answer: Callable[[LoadResult, float], LoadResult] = lambda run, _: run
    ) -> None:
        self.now_s = 0.0
        self.plans: list[LoadPlan] = []
        self._answer = answer
        monkeypatch.setattr(find_rate, "time", self)

    def monotonic(self) -> float:
        return self.now_s

    def run(self, plan: LoadPlan) -> LoadResult:
        self.plans.append(plan)
        self.now_s += plan.warmup_s + plan.duration_s
        rate = float(plan.entities[0].arrivals_per_second or 0)
        response = replace(FREE.response, p99_us=10_000 if rate <= KNEE else 90_000)
        return self._answer(result(replace(FREE, response=response), CALM), rate)

    def search(self, target: str = "p99<50ms", *, time_s: float = 900.0, first: ClientLoad | None = None) -> FoundRate:
        plan = LoadPlan(
            bootstrap="b:1",
            entities=(first or load(FREE), load(CALM)),
            duration_s=60.0,
            warmup_s=1.0,
            window=QuotaWindow(samples=1),
        )
        goal = RateGoal(target=parse_target(target), time_s=time_s)
        return search_rate(plan, SCENARIO, goal, run=self.run, step=lambda _: None)


def test_the_highest_rate_is_found_and_control_clients_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(monkeypatch)
    found = target.search()

    assert (found.state, found.ok) == (State.MET, True)
    assert found.low is not None
    assert found.high is not None
    assert found.low.offered[0][1] <= KNEE * 1024 < found.high.offered[0][1]
    assert found.evidence == (
        "response.p99<50ms is kept up to 487.1 kB/s, 4.757 times the scenario's rates: 5 of 5 runs kept it, and 5 of 5 "
        "runs at 531.2 kB/s broke it; 95 % confidence of each"
    )
    assert {plan.entities[1].arrivals_per_second for plan in target.plans} == {Fraction(100)}
    assert {plan.duration_s for plan in target.plans} == {5.0}


def test_a_search_whose_time_is_over_is_undecided_and_says_what_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Target(monkeypatch).search(time_s=40.0)

    assert (found.state, found.ok) == (State.UNDECIDED, False)
    assert sum(each.tally.runs for each in found.rates) == 6
    assert found.evidence == (
        "the time of 40 s was over; 1 of 1 runs at 487.1 kB/s kept the target, and 1 of 1 runs at 579.3 kB/s broke it"
    )


def test_what_the_load_tester_can_not_send_is_not_the_targets_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(run: LoadResult, rate: float) -> LoadResult:
        return replace(run, cpu=replace(run.cpu, python=0.99 if rate > KNEE else 0.3))

    found = Target(monkeypatch, busy).search()

    assert found.state is State.UNDECIDED
    assert "the load tester was the bottleneck, so the target may take more" in found.evidence


def test_a_target_that_goes_away_ends_the_search_as_void(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(run: LoadResult, rate: float) -> LoadResult:
        return replace(run, outages=("b:1 did not answer any more from 3 s on",) if rate > KNEE else ())

    target = Target(monkeypatch, gone)
    found = target.search()

    assert (found.state, found.evidence) == (State.VOID, "b:1 did not answer any more from 3 s on")
    assert len(target.plans) == 4


def test_a_rate_at_which_clients_get_less_than_they_offer_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(run: LoadResult, rate: float) -> LoadResult:
        verdict = replace(FREE.verdict, ok=rate <= 150, evidence="half of what it offered")
        return replace(run, entities=(replace(FREE, verdict=verdict), CALM))

    found = Target(monkeypatch, starved).search("p99<10s")

    assert found.state is State.MET
    assert found.high is not None
    assert found.high.factor < 2
    assert found.high.trials[0].evidence.endswith("half of what it offered")


def test_an_interrupted_search_says_what_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Target(monkeypatch, lambda run, rate: replace(run, interrupted=rate > KNEE)).search()

    assert (found.interrupted, found.ok) == (True, False)
    assert found.evidence.startswith("ended after 3 runs; 1 of 1 runs at 400 KiB/s kept the target")


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (load(FREE, None), "no client has a rate that a search can change"),
        (replace(load(FREE), loop=Loop.CLOSED), "no client has a rate that a search can change"),
        (
            replace(load(FREE), ramp=(RampPhase(duration_s=1.0, start_rate=Fraction(1), end_rate=Fraction(2)),)),
            "stages change the rate already",
        ),
    ],
)
def test_a_load_without_a_rate_to_change_is_refused(
    first: ClientLoad, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=message):
        Target(monkeypatch).search(first=first)


def test_a_target_that_no_client_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"no client of the run has the figure of 'achieved/quota > 0\.9'"):
        Target(monkeypatch).search("achieved/quota > 0.9")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("p99<50ms", "response.p99<50ms"),
        ("entity(app).p999 < 1s", "entity(app).response.p999 < 1s"),
        ("max<=2s", "response.max<=2s"),
        ("service.p99 < 50ms", "service.p99 < 50ms"),
        ("throttle.count == 0", "throttle.count == 0"),
    ],
)
def test_a_percentile_alone_is_that_of_the_response_time(text: str, meaning: str) -> None:
    assert parse_target(text).text == meaning


def test_a_figure_from_reading_back_is_no_target() -> None:
    with pytest.raises(UsageError, match="which a search does not do"):
        parse_target("records.lost == 0")
