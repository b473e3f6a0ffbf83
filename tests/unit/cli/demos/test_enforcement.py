"""The demo: a load in which clients got too little, which a busy machine explains and no quota does, and its end."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from tests.support.load.results import greedy, result, unlimited
from tests.support.processes.run_cli import run_cli

from kafka_quotas.cli.demos import enforcement as module
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.plan.client_verdict import MAX_BLUR
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results.result import ClientResult, LoadResult
from kafka_quotas.loadtest.verdict.judging import Evidence

OVER = greedy(ok=False)
SHORT = replace(OVER, verdict=replace(OVER.verdict, achieved=1_800_000.0, ratio=0.9))
FREE = unlimited()
LATE = replace(FREE, verdict=replace(FREE.verdict, ok=False, achieved=6e6))
THROTTLED = replace(LATE, throttle=SHORT.throttle)
WARNED = Evidence(warnings=("2 clients were sent late",))


@pytest.mark.parametrize(
    ("clients", "is_shortfall"),
    [
        ((greedy(), FREE), False),
        ((SHORT, FREE), True),
        ((SHORT, LATE), True),
        ((OVER, LATE), False),
        ((SHORT, THROTTLED), False),
    ],
)
def test_only_too_little_is_a_shortfall(clients: tuple[ClientResult, ...], *, is_shortfall: bool) -> None:
    assert module.is_shortfall(result(*clients)) is is_shortfall


@pytest.mark.parametrize(
    ("runs", "state", "repeats"),
    [
        ([result(greedy())], State.MET, 0),
        ([result(OVER, evidence=WARNED)], State.NOT_MET, 0),
        ([result(SHORT), result(greedy())], State.MET, 1),
        ([result(SHORT, evidence=WARNED), result(SHORT, evidence=WARNED)], State.VOID, 1),
        ([result(SHORT, evidence=WARNED), result(SHORT)], State.NOT_MET, 1),
        ([result(SHORT), result(OVER, evidence=WARNED)], State.NOT_MET, 1),
        ([result(SHORT, interrupted=True)], State.VOID, 0),
    ],
)
def test_a_load_with_too_little_runs_once_more(
    runs: list[LoadResult], state: State, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(runs)
    said = io.StringIO()
    monkeypatch.setattr("kafka_quotas.loadtest.EmbeddedCluster", cluster)
    monkeypatch.setattr(module, "measured", lambda *_: next(left))

    assert module.measured_twice(module.Narrator(stream=said)).state is state
    assert said.getvalue().count("the same load once more") == repeats
    assert next(left, None) is None


@contextmanager
def cluster() -> Iterator[mock.Mock]:
    yield mock.Mock()


def test_requests_are_small_enough_to_judge_every_quota() -> None:
    window_s = module.WINDOW.samples * module.WINDOW.window_s
    limited = [load for load in module.load_plan("127.0.0.1:1").entities if load.quota is not None]

    assert len(limited) == 3
    assert all(load.request_bytes <= MAX_BLUR * (load.quota or 0.0) * window_s for load in limited)


@pytest.mark.parametrize(
    ("outcome", "code", "last"),
    [
        (result(greedy()), 0, "Every quota held."),
        (result(greedy(ok=False)), 1, "A quota did NOT hold."),
        (result(greedy(), interrupted=True), 130, "kept in"),
        (result(greedy(), evidence=Evidence(outages=("too busy",))), 1, "This run proves nothing"),
    ],
)
def test_the_demo_ends_as_its_verdicts_say(
    outcome: LoadResult, code: int, last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "measured_twice", lambda _: outcome)
    monkeypatch.setattr("kafka_quotas.cli.load_test.options.draw_result", lambda *_, **__: None)

    found, out, _ = run_cli("demo", "--out", str(tmp_path))

    assert found == code
    assert out.splitlines()[-1].startswith(last)


def test_the_demo_has_a_greedy_a_modest_and_an_unlimited_client() -> None:
    limited = [client for client in module.CLIENTS if client.quota is not None]
    greedy_ones = [client for client in limited if client.arrivals_per_second is None]
    modest = [client for client in limited if client.arrivals_per_second is not None]

    assert {client.workload for client in greedy_ones} == {Workload.PRODUCE, Workload.CONSUME}
    assert all((client.arrivals_per_second or 0) * client.record_size < (client.quota or 0) for client in modest)
    assert [client.name.client_id for client in module.CLIENTS if client.quota is None] == ["unlimited"]
