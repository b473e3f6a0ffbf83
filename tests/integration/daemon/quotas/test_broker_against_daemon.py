"""The daemon does what a real broker does: the same clients, load and quotas, once against each.

A producer and a consumer run straight at the broker, which keeps their quotas, and at the same time another pair
through the daemon, which keeps the same quotas while the broker has none for them. Both windows are 3 x 1 s.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from tests.support.brokers.appended_records import make_topic
from tests.support.brokers.servers import Kafka
from tests.support.stores.stored_quotas import store_quotas

from kafka_quotas.commands.testbed.daemon_process import running_daemon, work_folder
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan, request_size
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results.result import ClientResult
from kafka_quotas.loadtest.run.runner import run_load

pytestmark = pytest.mark.measuring

WINDOW: Final = QuotaWindow(samples=3, window_s=1)
PRODUCER_QUOTA: Final = 4e6
CONSUMER_QUOTA: Final = 5e6
QUOTAS: Final = {"producer_byte_rate": PRODUCER_QUOTA, "consumer_byte_rate": CONSUMER_QUOTA}
TOLERANCE: Final = 0.03
FILL_BYTES: Final = 40_000_000
ATTEMPTS: Final = 3
"""A machine that takes the processor away for half a second leaves no throttle cycles to judge by."""


@pytest.fixture(scope="module")
def runs(kafka4: Kafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[Workload, ClientResult]]:
    """What each client got, by who kept the quotas: `broker` and `daemon`."""
    topic = f"compared-{tmp_path_factory.mktemp('name').name}"
    _make_topics(kafka4, topic)
    keepers = ("broker", "daemon")
    with work_folder() as folder:
        stores = {"broker": f"kafka://{kafka4.bootstrap}", "daemon": f"local:{folder / 'quotas.db'}"}
        for keeper in keepers:
            store_quotas(stores[keeper], {Entity.of(client_id=f"{topic}-{keeper}"): dict(QUOTAS)})
        with (
            running_daemon(
                upstream=kafka4.bootstrap, store_url=stores["daemon"], window=WINDOW, folder=folder
            ) as daemon,
            ThreadPoolExecutor(len(keepers)) as pool,
        ):
            addresses = {"broker": kafka4.bootstrap, "daemon": daemon.bootstrap}
            for _ in range(ATTEMPTS):
                results = pool.map(lambda keeper: _run(addresses[keeper], topic, f"{topic}-{keeper}"), keepers)
                runs = dict(zip(keepers, results, strict=True))
                states = {each.verdict.state for of_keeper in runs.values() for each in of_keeper.values()}
                if State.VOID not in states:
                    break
            log = Path(folder / "daemon.log").read_text(encoding="utf-8")
        store_quotas(stores["broker"], {Entity.of(client_id=f"{topic}-broker"): dict.fromkeys(QUOTAS)})
    assert "Traceback" not in log
    return runs


def test_producers_get_their_quota_from_both(runs: dict[str, dict[Workload, ClientResult]]) -> None:
    broker, daemon = (_ratio(runs[keeper][Workload.PRODUCE]) for keeper in ("broker", "daemon"))

    assert broker == pytest.approx(1.0, abs=TOLERANCE)
    assert daemon == pytest.approx(1.0, abs=TOLERANCE)
    assert daemon == pytest.approx(broker, abs=TOLERANCE)


def test_consumers_get_no_less_than_from_the_broker_and_no_more_than_their_quota(
    runs: dict[str, dict[Workload, ClientResult]],
) -> None:
    broker, daemon = (_ratio(runs[keeper][Workload.CONSUME]) for keeper in ("broker", "daemon"))

    assert broker - TOLERANCE <= daemon <= 1.0 + TOLERANCE


@pytest.mark.parametrize("keeper", ["broker", "daemon"])
@pytest.mark.parametrize("workload", [Workload.PRODUCE, Workload.CONSUME])
def test_the_judging_rule_holds_for_both(
    runs: dict[str, dict[Workload, ClientResult]], keeper: str, workload: Workload
) -> None:
    entity = runs[keeper][workload]

    assert entity.ok, entity.verdict.evidence
    assert entity.throttle.count > 0


def _ratio(entity: ClientResult) -> float:
    assert entity.verdict.ratio is not None
    return entity.verdict.ratio


def _run(bootstrap: str, topic: str, name: str) -> dict[Workload, ClientResult]:
    quotas = {Workload.PRODUCE: PRODUCER_QUOTA, Workload.CONSUME: CONSUMER_QUOTA}
    plan = LoadPlan(
        bootstrap=bootstrap,
        entities=tuple(
            ClientLoad(
                name=ClientName(user=None, client_id=name),
                workload=workload,
                topic=f"{topic}-{workload.value}",
                quota=quota,
                batch_bytes=request_size(quota, window_s=WINDOW.samples * WINDOW.window_s),
            )
            for workload, quota in quotas.items()
        ),
        duration_s=21.0,
        warmup_s=3.0,
        window=WINDOW,
    )
    result = run_load(plan, clock=SystemClock())
    return {entity.workload: entity for entity in result.entities}


def _make_topics(kafka: Kafka, name: str) -> None:
    for workload in (Workload.PRODUCE, Workload.CONSUME):
        make_topic(kafka.bootstrap, f"{name}-{workload.value}")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.size": 100_000})
    for index in range(FILL_BYTES // 1024):
        producer.produce(f"{name}-{Workload.CONSUME.value}", bytes(1024))
        if index % 1000 == 999:
            producer.flush(240)
    assert producer.flush(240) == 0
