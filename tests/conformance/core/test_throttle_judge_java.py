"""Kafka's own classes as the judge of a load test's throttle times."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.brokers.java_process import java
from tests.support.brokers.maven import KAFKA_4, jars

from kafka_quotas.commands.testbed.kafka_broker import kafka_classes, known_jars
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results import prediction
from kafka_quotas.loadtest.results.prediction import OUR_CORE, Charge, PredictionSource, ThrottleJudge, predict

WINDOW = QuotaWindow(samples=3, window_s=1)
QUOTA = 10_000.0


@pytest.fixture(scope="module")
def judge() -> Iterator[ThrottleJudge]:
    if java() is None:
        pytest.skip("needs Java")
    with kafka_classes(jars(KAFKA_4)) as found:
        assert found is not None
        if found.throttle_times([], workload=Workload.PRODUCE, quota=1.0, window=WINDOW) is None:
            pytest.skip("needs a JDK: this Java can't run a source file")
        yield found


def charges(*, brokers: int = 2, unit: float = 1.0) -> list[Charge]:
    """Charges of a client that wants twice its quota, at random times."""
    source = random.Random(7)
    return [
        Charge(t_ms=index * 50 + source.randrange(50), charged=source.randrange(2000) * unit, broker=index % brokers)
        for index in range(600)
    ]


@pytest.mark.parametrize(
    ("workload", "unit"), [(Workload.PRODUCE, 1.0), (Workload.CONSUME, 1.0), (Workload.MUTATE, 0.02)]
)
def test_both_judges_say_the_same(judge: ThrottleJudge, workload: Workload, unit: float) -> None:
    given = charges(unit=unit)
    ours = predict(
        given,
        workload=workload,
        quota=QUOTA * (unit if workload is not Workload.MUTATE else unit / 2),
        window=WINDOW,
        source=PredictionSource.RESPONSES,
        announced_ms=0.0,
    )
    theirs = predict(
        given,
        workload=workload,
        quota=QUOTA * (unit if workload is not Workload.MUTATE else unit / 2),
        window=WINDOW,
        source=PredictionSource.RESPONSES,
        announced_ms=0.0,
        judge=judge,
    )

    assert ours.predicted_ms > 10_000
    assert theirs.predicted_ms == ours.predicted_ms
    assert (ours.judge, theirs.judge) == (OUR_CORE, "Kafka 4.3.1's own classes")
    assert "predicted by Kafka 4.3.1's own classes from 600 events" in theirs.evidence


def test_a_defect_that_daemon_and_core_share_is_found(judge: ThrottleJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    """The announced times come from a core whose window is one sample too long."""
    right = prediction.new_limiter

    def wrong(*given: object, samples: int, **more: object) -> object:
        return right(*given, samples=samples + 1, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(prediction, "new_limiter", wrong)
    given = charges(brokers=1)
    options = {"workload": Workload.PRODUCE, "quota": QUOTA, "window": WINDOW, "source": PredictionSource.EVENT_LOG}
    announced_ms = predict(given, announced_ms=0.0, **options).predicted_ms  # type: ignore[arg-type]

    by_core = predict(given, announced_ms=announced_ms, **options)  # type: ignore[arg-type]
    by_kafka = predict(given, announced_ms=announced_ms, judge=judge, **options)  # type: ignore[arg-type]

    assert (by_core.state, by_kafka.state) == (State.MET, State.NOT_MET)


def test_classes_that_can_not_be_run_leave_the_judgement_to_our_core(tmp_path: Path) -> None:
    (tmp_path / "kafka-clients-9.9.9.jar").write_bytes(b"no archive")
    with kafka_classes(tmp_path) as broken:
        found = predict(
            charges(),
            workload=Workload.PRODUCE,
            quota=QUOTA,
            window=WINDOW,
            source=PredictionSource.RESPONSES,
            judge=broken,
        )

    assert found.judge == OUR_CORE
    assert found.predicted_ms > 0


def test_jars_are_those_that_are_named_or_installed(tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()

    assert known_jars(tmp_path, {}) == tmp_path
    assert known_jars(None, {"KAFKA_HOME": str(tmp_path)}) == tmp_path / "libs"
    assert known_jars(None, {"KAFKA_HOME": "/nowhere"}) is None
    assert known_jars(None, {}) is None
    with kafka_classes(None) as none:
        assert none is None
