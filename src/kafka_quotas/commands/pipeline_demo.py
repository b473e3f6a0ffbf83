"""Traffic for the pipeline's demo: a load test against a real broker that logs its requests."""

import shutil
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

from kafka_quotas.commands.alter import alter
from kafka_quotas.commands.daemon_process import work_folder
from kafka_quotas.commands.kafka_broker import BROKER_ID, REQUEST_LOG, RunningBroker, running_broker
from kafka_quotas.commands.kafka_jars import KafkaServerError, kafka_jars
from kafka_quotas.core.clock import Clock
from kafka_quotas.core.entity import Entity
from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.core.quota_file_text import FileFormat, file_text
from kafka_quotas.core.quota_key import PRODUCER_BYTE_RATE
from kafka_quotas.loadtest.cycles import Direction
from kafka_quotas.loadtest.plan import EntityLoad, EntityName, LoadPlan
from kafka_quotas.loadtest.progress import Watcher
from kafka_quotas.loadtest.result import LoadResult
from kafka_quotas.loadtest.run import run_load
from kafka_quotas.loadtest.workload import Workload
from kafka_quotas.stores.open_store import open_store

WINDOW: Final = QuotaWindow(samples=3, window_s=1)
DURATION_S: Final = 24.0
RECORD_SIZE: Final = 1024
LIMITED: Final = "nightly-export"
LIMIT: Final = 1_500_000
"""bytes/s: the one quota in force while traffic is recorded, on the client `LIMITED`."""
_PRODUCED: Final = "orders"
_CONSUMED: Final = "history"
_FILL_BYTES: Final = 30_000_000
_TOPIC_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoClient:
    """A client of the load: what it does, and how many bytes/s it offers; None is all it can."""

    client_id: str
    direction: Direction
    offers: int | None


CAST: Final = (
    DemoClient(client_id="shop", direction=Direction.PRODUCE, offers=400_000),
    DemoClient(client_id="payments", direction=Direction.PRODUCE, offers=250_000),
    DemoClient(client_id="clicks", direction=Direction.PRODUCE, offers=700_000),
    DemoClient(client_id="sensors", direction=Direction.PRODUCE, offers=150_000),
    DemoClient(client_id="audit", direction=Direction.PRODUCE, offers=60_000),
    DemoClient(client_id=LIMITED, direction=Direction.PRODUCE, offers=None),
    DemoClient(client_id="dashboards", direction=Direction.CONSUME, offers=300_000),
    DemoClient(client_id="reports", direction=Direction.CONSUME, offers=800_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTraffic:
    """What was recorded: the folder of request logs by broker, and the file of the quota that was in force."""

    logs: Path
    in_force: Path
    result: LoadResult


def record_traffic(*, java: Path, jars: Path, out: Path, clock: Clock, watcher: Watcher | None) -> DemoTraffic:
    """The request log of a real broker under load, with one quota in force; the broker is gone at the end.

    Raises `KafkaServerError` where there is no broker to be had, and what `run_load` raises.
    """
    libraries = kafka_jars(jars.absolute())
    with work_folder() as folder:
        with running_broker(java=java, jars=libraries, folder=folder, window=WINDOW) as broker:
            in_force = _limit(broker, out / "in-force.yaml")
            _fill(broker)
            filled = broker.request_log.stat().st_size  # what was needed to fill a topic is no traffic
            result = run_load(_plan(broker), clock=clock, watcher=watcher)
        logs = out / "logs"
        target = logs / str(BROKER_ID) / REQUEST_LOG
        target.parent.mkdir(parents=True, exist_ok=True)
        with broker.request_log.open("rb") as source, target.open("wb") as copy:
            source.seek(filled)
            source.readline()  # it may be the rest of a line
            shutil.copyfileobj(source, copy)
    return DemoTraffic(logs=logs, in_force=in_force, result=result)


def _limit(broker: RunningBroker, target: Path) -> Path:
    """The file that declares the quota, which the broker keeps from now on."""
    entity, quotas = Entity.of(client_id=LIMITED), {PRODUCER_BYTE_RATE.name: float(LIMIT)}
    store = open_store(f"kafka://{broker.bootstrap}")
    try:
        alter(store, entity=entity, changes=dict(quotas))
    finally:
        store.close()
    target.write_text("".join(file_text([(entity, quotas)], FileFormat.YAML)), encoding="utf-8")
    return target


def _fill(broker: RunningBroker) -> None:
    """Nothing; both topics exist, and the one that is read from holds enough."""
    from confluent_kafka import Producer  # noqa: PLC0415 - loads librdkafka

    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "kafka-quotas-demo", "linger.ms": 50})
    for topic in (_PRODUCED, _CONSUMED):
        producer.list_topics(topic, timeout=_TOPIC_S)  # asked for, it is made
    payload = bytes(RECORD_SIZE)
    for number in range(_FILL_BYTES // RECORD_SIZE):
        producer.produce(_CONSUMED, payload)
        if number % 5000 == 0:
            producer.flush(60)
    if producer.flush(60):
        raise KafkaServerError("the broker does not take records in time")


def _plan(broker: RunningBroker) -> LoadPlan:
    return LoadPlan(
        bootstrap=broker.bootstrap,
        entities=tuple(_load(each) for each in CAST),
        duration_s=DURATION_S,
        warmup_s=float(WINDOW.samples * WINDOW.window_s),
        window=WINDOW,
    )


def _load(client: DemoClient) -> EntityLoad:
    return EntityLoad(
        name=EntityName(user=None, client_id=client.client_id),
        workload=Workload(client.direction.value),
        topic=_PRODUCED if client.direction is Direction.PRODUCE else _CONSUMED,
        arrivals_per_second=None if client.offers is None else Fraction(client.offers, RECORD_SIZE),
        quota=float(LIMIT) if client.client_id == LIMITED else None,
        record_size=RECORD_SIZE,
    )
