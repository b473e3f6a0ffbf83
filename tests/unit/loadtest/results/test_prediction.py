"""Announced throttle times held against the simulator's, from what each kind of client knows of its events."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.simulation import (
    Algorithm,
    Event,
    EventOperation,
    SimulatedLimiter,
    full_bucket_ms,
    new_limiter,
    replay,
)
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.measurement.traces import Charge
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results.prediction import Prediction, PredictionSource, logged_charges, predict

WINDOW = QuotaWindow(samples=3, window_s=1)
QUOTA = 1000.0
REQUEST = 300


def _limiter() -> SimulatedLimiter:
    return new_limiter(Algorithm.RATE, bound=QUOTA, samples=WINDOW.samples, window_ms=WINDOW.window_ms)


def _produced(seconds: int, *, broker: int = 0) -> list[Charge]:
    """A greedy producer at one broker: its next request comes when the throttle time of the last is over."""
    limiter, charges, now_ms = _limiter(), [], 0
    while now_ms < seconds * 1000:
        throttle_ms = limiter.apply(EventOperation.RECORD, REQUEST, now_ms).throttle_ms
        charges.append(Charge(t_ms=now_ms, charged=REQUEST, throttle_ms=throttle_ms, broker=broker))
        now_ms += throttle_ms + 7
    return charges


def _predicted(
    charges: Sequence[Charge],
    *,
    workload: Workload = Workload.PRODUCE,
    source: PredictionSource = PredictionSource.RESPONSES,
    announced_ms: float | None = None,
    quota: float = QUOTA,
) -> Prediction:
    return predict(charges, workload=workload, quota=quota, window=WINDOW, source=source, announced_ms=announced_ms)


def test_single_responses_are_predicted_to_the_millisecond() -> None:
    prediction = _predicted(_produced(20))

    assert prediction.announced_ms > 10_000
    assert prediction.predicted_ms == prediction.announced_ms
    assert prediction.state is State.MET
    assert "each response's charge" in prediction.evidence


@pytest.mark.parametrize(("factor", "state"), [(0.85, State.NOT_MET), (0.93, State.MET), (1.25, State.NOT_MET)])
def test_a_sum_may_be_a_tenth_off(factor: float, state: State) -> None:
    charges = [replace(charge, throttle_ms=int(charge.throttle_ms * factor)) for charge in _produced(20)]

    assert _predicted(charges).state is state


def test_each_broker_has_its_own_bucket() -> None:
    both = sorted(_produced(10, broker=1) + _produced(10, broker=2), key=lambda charge: charge.t_ms)

    assert _predicted(both).predicted_ms == 2 * _predicted(_produced(10)).predicted_ms
    assert _predicted(both).state is State.MET
    assert _predicted([replace(charge, broker=1) for charge in both]).state is State.NOT_MET


def test_a_log_tells_what_was_taken_back() -> None:
    charges = [
        Charge(t_ms=0, charged=2500),
        Charge(t_ms=100, charged=900, throttle_ms=1300),
        Charge(t_ms=100, charged=-900),
        Charge(t_ms=1500, charged=100),
    ]
    events = [Event(t_ms=each.t_ms, amount=each.charged) for each in charges if each.charged > 0]
    events.insert(2, Event(t_ms=100, amount=900, operation=EventOperation.UNRECORD))
    expected = sum(each.outcome.throttle_ms for each in replay(events, _limiter(), usual=EventOperation.RECORD))

    prediction = _predicted(charges, workload=Workload.CONSUME, source=PredictionSource.EVENT_LOG, announced_ms=1800)

    assert prediction.predicted_ms == expected > 0
    assert prediction.state is State.MET


def test_a_permissive_mutation_is_accepted_and_waits() -> None:
    # 3 windows of 1 s at 5/s are 15 tokens: 20 partitions leave a debt of 5, which is a second
    charges = [Charge(t_ms=0, charged=20, throttle_ms=1000), Charge(t_ms=1000, charged=5, throttle_ms=1000)]

    assert _predicted(charges, workload=Workload.MUTATE, quota=5).predicted_ms == 2000


def test_a_strict_mutation_is_refused_while_there_is_a_debt() -> None:
    charges = [
        Charge(t_ms=0, charged=20),
        Charge(t_ms=0, charged=0, throttle_ms=1000),
        Charge(t_ms=400, charged=0, throttle_ms=600),
        Charge(t_ms=1000, charged=20),
    ]
    full_ms = full_bucket_ms(samples=WINDOW.samples, window_ms=WINDOW.window_ms)
    prediction = _predicted(charges, workload=Workload.MUTATE, quota=5)

    assert full_ms == 3000
    assert (prediction.predicted_ms, prediction.state) == (1600, State.MET)


def test_acknowledgements_are_coarse_and_decide_only_where_that_does_not_matter() -> None:
    charges = _produced(20)
    seen = [Charge(t_ms=charge.t_ms + 30, charged=charge.charged) for charge in charges]
    exact_ms = sum(charge.throttle_ms for charge in charges)

    def told(announced_ms: float) -> State:
        return _predicted(seen, source=PredictionSource.ACKNOWLEDGEMENTS, announced_ms=announced_ms).state

    assert told(exact_ms) is State.MET
    assert told(exact_ms * 1.14) is State.UNCHECKED
    assert told(exact_ms * 3) is State.NOT_MET


def test_nothing_is_predicted_for_who_keeps_within_the_quota() -> None:
    prediction = _predicted([Charge(t_ms=second * 1000, charged=600) for second in range(20)])

    assert (prediction.predicted_ms, prediction.announced_ms, prediction.state) == (0, 0, State.MET)


STARTED_MS = 1_700_000_000_000
LOAD = ClientLoad(name=ClientName(user=None, client_id="app"), workload=Workload.CONSUME, topic="t")


def _daemon_log(folder: Path, times_ms: Sequence[int], *, amount: int) -> list[int]:
    """Write what a daemon charges at these times since the start of the load, and return its throttle times."""
    events = (Event(t_ms=STARTED_MS + each, amount=amount) for each in times_ms)
    throttle_ms = [each.outcome.throttle_ms for each in replay(events, _limiter(), usual=EventOperation.RECORD)]
    common = {"v": 1, "quota_type": "fetch", "user": "ANONYMOUS", "client_id": "app", "bytes": amount, "broker_id": 1}
    lines = (
        json.dumps({**common, "ts_ms": STARTED_MS + t_ms, "throttle_ms": throttle})
        for t_ms, throttle in zip(times_ms, throttle_ms, strict=True)
    )
    (folder / "events-1.jsonl").write_text("\n".join(lines), encoding="ascii")
    return throttle_ms


@pytest.mark.parametrize("first_ms", [-2999, -1500, -1, 0])
def test_a_charge_before_the_load_is_in_the_bucket_and_in_no_sum(tmp_path: Path, first_ms: int) -> None:
    """A library that fetches before the load begins was judged without its first fetches, and as throttled wrongly."""
    times_ms = [first_ms, 0, 400, 900, 1600, 2300]
    throttle_ms = _daemon_log(tmp_path, times_ms, amount=900)
    during = [each for t_ms, each in zip(times_ms, throttle_ms, strict=True) if t_ms >= 0]

    charges = logged_charges(tmp_path, [LOAD], started_ms=STARTED_MS, ended_ms=STARTED_MS + 2300)[LOAD.key]
    source, announced_ms = PredictionSource.EVENT_LOG, sum(during)
    prediction = _predicted(charges, workload=Workload.CONSUME, source=source, announced_ms=announced_ms)

    assert [charge.t_ms for charge in charges] == times_ms
    assert (prediction.predicted_ms, prediction.events) == (sum(during), len(during))
    assert prediction.announced_ms > 0
    assert prediction.state is State.MET


def test_a_charge_after_the_load_is_left_out(tmp_path: Path) -> None:
    _daemon_log(tmp_path, [0, 1000, 1001], amount=1)

    charges = logged_charges(tmp_path, [LOAD], started_ms=STARTED_MS, ended_ms=STARTED_MS + 1000)[LOAD.key]

    assert [charge.t_ms for charge in charges] == [0, 1000]


def test_a_bucket_of_tokens_is_full_before_its_first_charge() -> None:
    # 3 windows of 1 s at 5/s are 15 tokens, of which 20 partitions leave a debt of 5: a second
    assert full_bucket_ms(samples=WINDOW.samples, window_ms=WINDOW.window_ms) == 3000
    charges = [
        Charge(t_ms=-9000, charged=20, throttle_ms=1000),
        Charge(t_ms=-8500, charged=0),
        Charge(t_ms=0, charged=41),
    ]

    source = PredictionSource.EVENT_LOG
    prediction = _predicted(charges, workload=Workload.MUTATE, quota=5, source=source, announced_ms=5200)

    assert (prediction.predicted_ms, prediction.events) == (5200, 1)  # 15 tokens again, a debt of 26
