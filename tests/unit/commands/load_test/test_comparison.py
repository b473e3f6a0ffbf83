"""Which runs an experiment with and without quotas is made of, and quotas that change nothing."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.load.results import greedy, result, unlimited

from kafka_quotas.commands.load_test import comparison
from kafka_quotas.commands.load_test.comparison import ExperimentResult, check_effect, run_experiment
from kafka_quotas.commands.load_test.request import EXPERIMENT_S, RunRequest, RunTerms
from kafka_quotas.commands.load_test.target import LoadTarget
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results.result import LoadResult
from kafka_quotas.loadtest.scenario.model import Scenario, Variant, read_scenario
from kafka_quotas.loadtest.scenario.planning import Environment
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration

SCENARIO = Scenario(name="s", title="t", entities=(), duration_s=60.0, solo_s=5.0, window=QuotaWindow(samples=4))
BUSY, CONTROL = greedy(), replace(unlimited(), control=True)


class Bed:
    """A target on which every run takes as long as it should, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, factor: float = 5.0, interrupts_at: int = 0) -> None:
        self.now_s = 0.0
        self.opened: list[tuple[Variant, str]] = []
        self.plans: list[LoadPlan] = []
        self._factor = factor
        self._interrupts_at = interrupts_at
        monkeypatch.setattr(comparison, "time", self)

    def monotonic(self) -> float:
        return self.now_s

    @contextmanager
    def open(self, variant: Variant, name: str) -> Iterator[Environment]:
        self.opened.append((variant, name))
        yield Environment(bootstrap=f"daemon-{len(self.opened)}:1", prefix="")

    def run(self, plan: LoadPlan) -> LoadResult:
        self.plans.append(plan)
        self.now_s += plan.warmup_s + plan.duration_s
        factor = 1.0 if self.opened[-1][0] is Variant.WITH_QUOTAS else self._factor
        response = replace(CONTROL.response, p90_us=int(10_000 * factor) + 100 * len(self.plans))
        interrupted = len(self.plans) == self._interrupts_at
        return result(BUSY, replace(CONTROL, response=response), interrupted=interrupted)

    def experiment(self, *, controls: bool = True, time_s: float, solo_s: float = 5.0) -> ExperimentResult:
        entities = tuple(
            ClientLoad(
                name=each.name, workload=each.workload, topic="t", control=controls and each.control, start_s=9.0
            )
            for each in (BUSY, CONTROL)
        )
        plan = LoadPlan(
            bootstrap="b:1", entities=entities, duration_s=60, warmup_s=2, window=SCENARIO.window, run_id=100
        )
        scenario = replace(SCENARIO, solo_s=solo_s)
        return run_experiment(plan, scenario, opened=self.open, run=self.run, step=lambda _step: None, time_s=time_s)


def test_without_control_clients_one_run_without_quotas_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed(monkeypatch)
    found = bed.experiment(controls=False, time_s=1000)

    assert bed.opened == [(Variant.WITHOUT_QUOTAS, "compared-1")]
    assert found.without_quotas is not None
    assert found.effects == {}


def test_a_run_that_compares_no_latencies_is_two_windows_long(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed(monkeypatch)
    bed.experiment(controls=False, time_s=1000, solo_s=30.0)

    assert [plan.duration_s for plan in bed.plans] == [8.0]


def test_every_run_is_short_with_all_clients_from_the_start_in_an_environment_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bed = Bed(monkeypatch)
    bed.experiment(time_s=1000)

    assert {(plan.duration_s, plan.warmup_s) for plan in bed.plans} == {(8.0, 2)}  # two windows of 4 s
    assert {load.start_s for plan in bed.plans for load in plan.entities} == {0.0}
    assert len({(plan.bootstrap, plan.run_id) for plan in bed.plans}) == len(bed.plans) == 6
    assert 100 not in {plan.run_id for plan in bed.plans}


def test_the_effect_on_each_control_client_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Bed(monkeypatch).experiment(time_s=1000)

    (effect,) = found.effects.values()
    assert list(found.effects) == [(CONTROL.name, Workload.CONSUME)]
    assert effect.is_shown
    assert effect.ratio == pytest.approx(5, rel=0.1)


def test_the_time_bounds_the_number_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(_runs(Bed(monkeypatch), time_s=35)) == 3
    assert len(_runs(Bed(monkeypatch), time_s=9)) == 0


def test_an_interrupt_ends_the_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed(monkeypatch, interrupts_at=2)
    found = bed.experiment(time_s=1000)

    assert (len(bed.plans), found.is_interrupted) == (2, True)


def _runs(bed: Bed, *, time_s: float) -> list[LoadPlan]:
    bed.experiment(time_s=time_s)
    return bed.plans


@pytest.mark.parametrize(
    ("bootstrap", "is_typed", "asked_s", "time_s"),
    [
        (None, False, None, EXPERIMENT_S),
        (None, True, None, 0.0),
        ("prod:9092", False, None, 0.0),
        ("prod:9092", False, 60.0, 60.0),
        (None, False, 0.0, 0.0),
    ],
)
def test_a_cluster_that_is_there_is_not_loaded_without_quotas_unless_one_asks(
    bootstrap: str | None,
    is_typed: bool,
    asked_s: float | None,
    time_s: float,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    request = RunRequest(
        scenario=read_scenario("isolation"),
        target=LoadTarget(bootstrap=bootstrap),
        journal_folder=Path("journals"),
        is_typed=is_typed,
        terms=RunTerms(experiment_s=asked_s),
    )

    assert request.experiment_time_s == time_s


RATE = "producer_byte_rate"
GREEDY, MODEST = (Entity.of(client_id=name) for name in ("greedy", "modest"))
DEFAULT_PAIR = Entity.of(user=None, client_id=None)
NAMES = [ClientName(user=None, client_id=name) for name in ("greedy", "modest")]


def warnings(folder: Path, stored: Mapping[Entity, float], wanted: Sequence[Entity]) -> list[str]:
    """What is said of quotas of 2 MB/s for these entities, over those that are stored."""
    store, said = open_store(f"local:{folder / 'quotas.db'}"), list[str]()
    store.alter([Alteration(entity=entity, changes={RATE: value}) for entity, value in stored.items()])
    try:
        check_effect(store, [(entity, {RATE: 2e6}) for entity in wanted], NAMES, warn=said.append)
    finally:
        store.close()
    return said


def test_quotas_that_clients_get_are_not_mentioned(tmp_path: Path) -> None:
    assert warnings(tmp_path, {}, [GREEDY, MODEST]) == []
    assert warnings(tmp_path, {GREEDY: 2e6}, [GREEDY]) == []


def test_a_quota_that_a_more_specific_one_shadows_is_named(tmp_path: Path) -> None:
    pair = Entity.of(user=None, client_id="greedy")

    (said,) = warnings(tmp_path, {pair: 1e6}, [GREEDY, MODEST])

    assert said.startswith("client-id greedy: ")
    assert "1 MB/s" in said
    assert "remove producer_byte_rate" in said


def test_a_run_of_which_no_client_gets_a_quota_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no client of the run gets any of the quotas that it sets: client-id greedy"):
        warnings(tmp_path, {DEFAULT_PAIR: 1e6}, [GREEDY, MODEST])
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match=r"no client of the run gets any of the quotas that it sets$"):
        warnings(tmp_path / "other", {}, [Entity.of(client_id="somebody else")])
