"""Topics read back after a run: what was lost, what came twice, and what can't be told, on the embedded cluster."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.brokers.appended_records import make_topic
from tests.support.brokers.servers import Kafka
from tests.support.daemon.process import running_daemon, set_quota
from tests.support.load.results import greedy
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.measurement.delivery import stamp
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results.result import ClientResult
from kafka_quotas.loadtest.run.read_back import mark_topics, read_back
from kafka_quotas.loadtest.run.topics import EmbeddedCluster

_RECORD_SIZE = 100


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as embedded:
        yield embedded


def _plan(cluster: EmbeddedCluster, topic: str, *, record_size: int = _RECORD_SIZE) -> LoadPlan:
    cluster.make_topic(topic)
    load = ClientLoad(
        name=ClientName(user=None, client_id="greedy"), workload=Workload.PRODUCE, topic=topic, record_size=record_size
    )
    return LoadPlan(
        bootstrap=cluster.bootstrap,
        entities=(load,),
        duration_s=1,
        warmup_s=0,
        window=QuotaWindow(samples=3, window_s=1),
        run_id=99,
    )


def _produce(plan: LoadPlan, sequences: Iterable[int], *, run_id: int = 99, size: int = _RECORD_SIZE) -> None:
    producer = Producer({"bootstrap.servers": plan.bootstrap})
    for sequence in sequences:
        producer.produce(plan.entities[0].topic, stamp(run_id, 0, sequence).ljust(size, b"x"))
    assert producer.flush(240) == 0


def _found(plan: LoadPlan, *, sent: int) -> ClientResult:
    return replace(greedy(), topic=plan.entities[0].topic, sent=sent, acked=sent)


def test_what_was_lost_or_doubled_is_counted_and_what_was_there_before_is_not(cluster: EmbeddedCluster) -> None:
    plan = _plan(cluster, "counted")
    _produce(plan, range(5))  # the same run's id, but before the marks
    marks = mark_topics(plan)
    _produce(plan, [*range(990), 7])
    _produce(plan, range(3), run_id=1)

    entity = _found(plan, sent=1000)
    delivery = read_back(plan, [entity], marks)[entity.key]

    assert (delivery.found, delivery.lost, delivery.duplicated) == (990, 10, 1)
    assert delivery.unchecked == ""
    assert delivery.state is State.NOT_MET


def test_a_topic_that_kept_less_than_was_sent_proves_nothing(cluster: EmbeddedCluster) -> None:
    plan = _plan(cluster, "forgetful")
    marks = mark_topics(plan)
    _produce(plan, range(300), size=100_000)  # the cluster keeps about 5 MB in each of 4 partitions

    entity = _found(plan, sent=300)
    delivery = read_back(plan, [entity], marks)[entity.key]

    assert delivery.state is State.UNCHECKED
    assert delivery.lost == 0
    assert "no longer keeps" in delivery.evidence


def test_a_reading_without_time_says_so(cluster: EmbeddedCluster) -> None:
    plan = _plan(cluster, "hasty")
    marks = mark_topics(plan)
    _produce(plan, range(50))

    entity = _found(plan, sent=50)
    delivery = read_back(plan, [entity], marks, within_s=0)[entity.key]

    assert delivery.state is State.UNCHECKED
    assert "could not be read back in time" in delivery.evidence


def test_a_quota_that_slows_the_reading_down_is_said_while_it_does_and_afterwards(
    cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_quotas.loadtest.run.read_back._STEP_S", 0.1)
    plan = _plan(cluster, "slow")
    marks = mark_topics(plan)
    _produce(plan, range(300), size=10_000)
    set_quota(tmp_path, Entity.of(client_id=None), consumer_byte_rate=20_000)
    steps: list[str] = []
    with running_daemon(tmp_path, upstream=cluster.bootstrap, options=["--quota-window-num", "2"]) as daemon:
        entity = _found(plan, sent=300)
        behind = replace(plan, bootstrap=daemon.bootstrap)
        delivery = read_back(behind, [entity], marks, within_s=10, step=steps.append)[entity.key]

    why = r", as a quota of consumers throttles the reader \(kafka-quotas-load-test-check\), so far for \d+ s"
    assert any(re.fullmatch(rf"read \d+ of 300 records back{why}", step) for step in steps), steps
    assert delivery.state is State.UNCHECKED
    assert re.search(rf"could not be read back in time{why}", delivery.evidence), delivery.evidence


def test_records_without_a_stamp_can_not_be_checked(cluster: EmbeddedCluster) -> None:
    short = _plan(cluster, "short", record_size=10)
    foreign = _plan(cluster, "foreign")
    marks = mark_topics(foreign)
    _produce(foreign, range(20), run_id=1)

    for plan, told in ((short, "no room for a stamp"), (foreign, "carry no stamp of this run")):
        entity = _found(plan, sent=20)
        delivery = read_back(plan, [entity], marks if plan is foreign else {})[entity.key]
        assert delivery.state is State.UNCHECKED
        assert told in delivery.evidence


def test_refused_records_are_not_called_lost(kafka4: Kafka, unique_name: str, tmp_path: Path) -> None:
    """With errors instead of throttle times most records are refused, many of them before any is watched."""
    store = f"local:{tmp_path}/quotas.db"
    limit = ("--client", unique_name, "--add-config", "producer_byte_rate=500000")
    assert run_cli("alter", "--store", store, *limit)[0] == 0
    options = ["--on-violation", "error", "--quota-window-num", "1"]
    make_topic(kafka4.bootstrap, unique_name)
    with running_daemon(tmp_path, upstream=kafka4.bootstrap, options=options, store=store) as daemon:
        load = ("--bootstrap-server", daemon.bootstrap, "--entity", f"/{unique_name}", "--topic", unique_name)
        window = ("--duration", "4s", "--warmup", "1s", "--rate", "max", "--quota-window-num", "1")
        _, out, err = run_cli("load-test", "produce", *load, *window, "-X", "retries=0", "--output", "json")
    (client,) = json.loads(out)["entities"]
    assert sum(client["records"]["failed"].values()) > 0, err
    assert (client["delivery"]["lost"], client["delivery"]["duplicated"]) == (0, 0)
    assert client["delivery"]["state"] != State.NOT_MET.value
