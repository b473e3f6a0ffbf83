"""What the demo makes of a load in which clients got too little: a busy machine explains that, and no quota does."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import pytest
from tests.support.load.results import greedy, result, unlimited

from kafka_quotas.cli.demos import enforcement as module
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.plan.client_verdict import MAX_BLUR
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
