"""What a bucket was charged with before the load is in the bucket when the load begins."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.simulation import Algorithm, Event, EventOperation, full_bucket_ms, new_limiter, replay
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.measurement.traces import Charge
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results.prediction import Prediction, PredictionSource, logged_charges, predict

WINDOW = QuotaWindow(samples=3, window_s=1)
STARTED_MS = 1_700_000_000_000
LOAD = ClientLoad(name=ClientName(user=None, client_id="app"), workload=Workload.CONSUME, topic="t")


def _daemon_log(folder: Path, times_ms: Sequence[int], *, amount: int, quota: float) -> list[int]:
    """Write what a daemon charges at these times since the start of the load, and return its throttle times."""
    limiter = new_limiter(Algorithm.RATE, bound=quota, samples=WINDOW.samples, window_ms=WINDOW.window_ms)
    events = (Event(t_ms=STARTED_MS + each, amount=amount) for each in times_ms)
    throttle_ms = [each.outcome.throttle_ms for each in replay(events, limiter, usual=EventOperation.RECORD)]
    common = {"v": 1, "quota_type": "fetch", "user": "ANONYMOUS", "client_id": "app", "bytes": amount, "broker_id": 1}
    lines = (
        json.dumps({**common, "ts_ms": STARTED_MS + t_ms, "throttle_ms": throttle})
        for t_ms, throttle in zip(times_ms, throttle_ms, strict=True)
    )
    (folder / "events-1.jsonl").write_text("\n".join(lines), encoding="ascii")
    return throttle_ms


def _prediction(charges: Sequence[Charge], *, announced_ms: float, quota: float) -> Prediction:
    return predict(
        charges,
        workload=Workload.CONSUME,
        quota=quota,
        window=WINDOW,
        source=PredictionSource.EVENT_LOG,
        announced_ms=announced_ms,
    )


@pytest.mark.parametrize("first_ms", [-2999, -1500, -1, 0])
def test_a_charge_before_the_load_is_in_the_bucket_and_in_no_sum(tmp_path: Path, first_ms: int) -> None:
    """A library that fetches before the load begins was judged without its first fetches, and as throttled wrongly."""
    times_ms = [first_ms, 0, 400, 900, 1600, 2300]
    throttle_ms = _daemon_log(tmp_path, times_ms, amount=900, quota=1000)
    during = [each for t_ms, each in zip(times_ms, throttle_ms, strict=True) if t_ms >= 0]

    charges = logged_charges(tmp_path, [LOAD], started_ms=STARTED_MS, ended_ms=STARTED_MS + 2300)[LOAD.key]
    prediction = _prediction(charges, announced_ms=sum(during), quota=1000)

    assert [charge.t_ms for charge in charges] == times_ms
    assert (prediction.predicted_ms, prediction.events) == (sum(during), len(during))
    assert prediction.announced_ms > 0
    assert prediction.state is State.MET


def test_a_charge_after_the_load_is_left_out(tmp_path: Path) -> None:
    _daemon_log(tmp_path, [0, 1000, 1001], amount=1, quota=1000)

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

    prediction = predict(
        charges, workload=Workload.MUTATE, quota=5, window=WINDOW, source=PredictionSource.EVENT_LOG, announced_ms=5200
    )

    assert (prediction.predicted_ms, prediction.events) == (5200, 1)  # 15 tokens again, a debt of 26
