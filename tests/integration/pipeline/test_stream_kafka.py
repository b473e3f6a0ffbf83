"""Streams from and to real topics, killed in the middle and started again: every event counts once.

The daemon feeds one of them, so that what it enforces, what is seen live and what is recorded are the same events.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from deltalake import DeltaTable
from tests.support.brokers.appended_records import make_topic
from tests.support.brokers.java_process import java
from tests.support.brokers.servers import Kafka, kafka_4
from tests.support.daemon.process import running_daemon, set_quota
from tests.support.pipeline.spark_servers import QUICK_EXECUTORS, SMALL, executor_pids, spark_cluster
from tests.support.processes.awaiting import await_true

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.pipeline.stream.batch import write_once
from kafka_quotas.pipeline.stream.source import TopicSource

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(java() is None, reason="Spark and Kafka need Java, and there is none here"),
    pytest.mark.timeout(1800),
]
_DEADLINE_S = 600.0
_EVENTS = 1000
_BATCH = 200
_LATE = 5
_WINDOW = ("--quota-window-num", "2", "--quota-window-size-seconds", "1")
_START_MS = round(time.time() - 3600) * 1000
"""Events later than the clock of this machine are set aside."""
_YEARS_MS = 9 * 365 * 86_400_000
_BAD = b'{"v":1,"ts_ms":"rubbish"}'


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    """A broker of this file alone: with the one that others share it would wait for all of them."""
    with kafka_4(quick_start=True) as kafka:
        yield kafka


def event(number: int, *, ts_ms: int | None = None) -> bytes:
    at_ms = _START_MS + number if ts_ms is None else ts_ms
    fields = {"v": 1, "ts_ms": at_ms, "cluster": "c", "broker_id": 1, "connection": number % 3}
    client = {"user": f"u{number % 4}", "client_id": "app", "ip": "10.0.0.7", "quota_type": "produce", "api_key": 0}
    amounts = {"bytes": number, "thread_ms": 0, "mutations": 0, "throttle_ms": 1, "is_exempt": False}
    return json.dumps(fields | client | amounts).encode()


def fill(bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic, partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(_EVENTS):
        producer.produce(topic, event(number), key=str(number % 4))
    producer.produce(topic, _BAD)
    for partition in range(2):  # believed, it would make all that follow late
        producer.produce(topic, event(0, ts_ms=_START_MS + _YEARS_MS), partition=partition)
    assert producer.flush(120) == 0


def command(source: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "kafka_quotas", "pipeline", "stream", source, "--batch-size", str(_BATCH), *arguments]


def live_rows(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(folder).to_pyarrow_table().to_pylist()
    return rows


def commits(folder: Path) -> int:
    return len(list(folder.glob("_delta_log/*.json")))


def killed_in_the_end(arguments: list[str], *steps: tuple[Callable[[], bool], Callable[[], None]]) -> None:
    """Run a stream, do each step as soon as its condition holds, and then kill the stream and its Java with it."""
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        for holds, act in steps:
            await_true(lambda: process.poll() is not None or holds(), "what comes before a kill", timeout_s=_DEADLINE_S)  # noqa: B023
            assert process.poll() is None, process.communicate()
            act()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def restart(broker: Kafka) -> None:
    broker.servers[0].kill()
    broker.servers[0].start_again()


def run_to_the_end(arguments: list[str]) -> str:
    """What a stream says that takes what is there and ends."""
    done = subprocess.run([*arguments, "--once"], capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def send_late_events(bootstrap: str, topic: str) -> None:
    """Send events of the first user a minute after their time."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(_LATE):
        producer.produce(topic, event(4 * number, ts_ms=_START_MS - 60_000), key="0")
    assert producer.flush(120) == 0


def produce_through_a_daemon(bootstrap: str, topic: str, folder: Path) -> tuple[int, int]:
    """How often a client was throttled by a daemon, and for how many ms together.

    Each charge is in the topic.
    """
    make_topic(bootstrap, f"{topic}-through", partitions=2)
    set_quota(folder, Entity.of(user="ANONYMOUS"), producer_byte_rate=50_000.0)
    options = ["--event-log", f"kafka://{bootstrap}/{topic}", *_WINDOW]
    with running_daemon(folder, upstream=bootstrap, options=options) as daemon:
        settings = {"bootstrap.servers": daemon.bootstrap, "message.timeout.ms": 120_000}
        producer = Producer(settings)
        for _ in range(4):
            producer.produce(f"{topic}-through", bytes(100_000))
            assert producer.flush(120) == 0
        (throttled,) = [each for each in daemon.status().throttles if each.user == "ANONYMOUS"]
    return throttled.times, throttled.total_ms


@pytest.mark.long
def test_every_event_of_a_topic_counts_once_through_kills_of_executor_broker_and_driver(
    broker: Kafka, unique_name: str, tmp_path: Path
) -> None:
    fill(broker.bootstrap, unique_name)
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text(
        "entries:\n"
        "  - {entity: {user: u1}, quotas: {producer_byte_rate: 100k}}\n"
        "  - {entity: {user: ANONYMOUS}, quotas: {producer_byte_rate: 50k}}\n"
    )
    out = tmp_path / "live"
    options = ["--out", str(out), "--quotas", str(quotas), *SMALL]
    arguments = command(f"kafka://{broker.bootstrap}/{unique_name}", *options, *_WINDOW)
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    with spark_cluster(cluster) as master:
        engine = ["--master", master, *QUICK_EXECUTORS]
        killed_in_the_end(
            [*arguments, *engine, "--interval", "10ms"],
            (lambda: commits(out) >= 1, lambda: os.kill(executor_pids(cluster)[0], signal.SIGKILL)),
            (lambda: commits(out) >= 2, lambda: restart(broker)),
            (lambda: commits(out) >= 3, lambda: None),
        )
    assert commits(out) < _EVENTS / _BATCH  # it was in the middle
    send_late_events(broker.bootstrap, unique_name)
    throttled = produce_through_a_daemon(broker.bootstrap, unique_name, tmp_path)
    told = run_to_the_end([*arguments, "--master", "local[1]"])
    rows = live_rows(out)
    each_user = {f"u{number}": [row for row in rows if row["user"] == f"u{number}"] for number in range(4)}
    for number, own in enumerate(each_user.values()):
        late = _LATE if number == 0 else 0
        assert sum(row["events"] for row in own) == _EVENTS // 4
        last = max(own, key=lambda row: row["batch_id"])
        amount = sum(range(number, _EVENTS, 4)) + sum(range(0, 4 * late, 4))
        assert (last["total_events"], last["total_amount"]) == (_EVENTS // 4 + late, amount)
        assert sum(row["late_events"] for row in own) == late
        assert sum(row["observed_throttle_ms"] for row in own) == _EVENTS // 4 + late
    assert f"{_LATE} charges too late" in told
    watched = [row for row in rows if row["user"] == "ANONYMOUS" and row["quota_type"] == "produce"]
    assert sum(row["amount"] for row in watched) > 400_000
    for figure in ("throttle_ms", "observed_throttle_ms"):  # reckoned from the daemon's log, and told by it
        assert (sum(row["throttled_events"] for row in watched), sum(row[figure] for row in watched)) == throttled
    assert throttled > (0, 0)
    unreadable = out / "_checkpoint" / "kafka-quotas-unreadable"
    found = live_rows(unreadable)
    assert [row["raw"] for row in found if "future" not in row["reason"]] == [_BAD.decode()]
    assert sum(f'"ts_ms": {_START_MS + _YEARS_MS}' in row["raw"] for row in found) == 2


def live_rows_through_kill_9(bootstrap: str, source: str, target: str, folder: Path) -> list[dict[str, Any]]:
    """What a stream writes into a topic that is killed after two batches and started again."""
    make_topic(bootstrap, target, partitions=2)
    out = ["--out", f"kafka://{bootstrap}/{target}", "--checkpoint", str(folder / "state")]
    arguments = command(source, *out, "--master", "local[1]", *SMALL)
    if not source.startswith("kafka:"):
        arguments += ["--batch-size", "1"]
    with closing(reader(bootstrap, target)) as consumer:
        begun: set[int] = set()

        def has_begun() -> bool:
            while (message := consumer.poll(0.1)) is not None:
                if message.error() is None:
                    begun.add(json.loads(message.value())["batch_id"])
            return begun >= {0, 1}

        killed_in_the_end([*arguments, "--interval", "10ms"], (has_begun, lambda: None))
    run_to_the_end(arguments)
    return records(bootstrap, target)


def test_every_event_of_a_topic_is_in_another_once_through_kill_9(
    broker: Kafka, unique_name: str, tmp_path: Path
) -> None:
    fill(broker.bootstrap, unique_name)
    source = f"kafka://{broker.bootstrap}/{unique_name}"
    found = live_rows_through_kill_9(broker.bootstrap, source, f"{unique_name}-live", tmp_path)
    places = Counter((row["batch_id"], row["user"]) for row in found)
    assert set(places.values()) == {1}
    for number in range(4):
        own = [row for row in found if row["user"] == f"u{number}"]
        assert sum(row["events"] for row in own) == _EVENTS // 4
        last = max(own, key=lambda row: row["batch_id"])
        assert (last["total_events"], last["total_amount"]) == (_EVENTS // 4, sum(range(number, _EVENTS, 4)))


@pytest.mark.long
def test_live_rows_of_files_are_in_a_topic_once_through_kill_9(broker: Kafka, unique_name: str, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    for number in range(4):
        lines = [event(each) for each in range(number * 100, number * 100 + 100)]
        lines += [event(0, ts_ms=_START_MS - 60_000)] * (number == 3)  # far too late
        (folder / f"events-{number}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    found = live_rows_through_kill_9(broker.bootstrap, str(folder), unique_name, tmp_path)
    assert sorted((row["batch_id"], row["user"], row["events"]) for row in found) == [
        (batch, f"u{user}", 25) for batch in range(4) for user in range(4)
    ]
    assert [(row["user"], row["late_events"]) for row in found if row["late_events"]] == [("u0", 1)]


def live_table(batch_id: int) -> list[dict[str, Any]]:
    """Two rows of a batch, with what the sink looks at."""
    names = ("cluster", "broker_id", "quota_type", "user", "client_id")
    return [dict.fromkeys(names, key) | {"batch_id": batch_id} for key in "xy"]


def test_a_batch_that_a_topic_has_is_not_written_again(broker: Kafka, unique_name: str) -> None:
    make_topic(broker.bootstrap, unique_name, partitions=2)
    topic = TopicSource(bootstrap=broker.bootstrap, topic=unique_name)

    name = f"stream-{unique_name}"
    for batch_id in (0, 1):  # and now the checkpoint is not written: both batches come again
        write_once(topic, live_table(batch_id), name=name, batch_id=batch_id)
    dying = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    dying.init_transactions(60)
    dying.begin_transaction()
    dying.produce(unique_name, b'{"batch_id": 2}')
    dying.flush(60)  # it is in the topic, and never committed
    others = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(30):
        others.produce(unique_name, b'{"batch_id": -1}')
    others.flush(60)
    for batch_id in (1, 2):
        write_once(topic, live_table(batch_id), name=name, batch_id=batch_id)
    # a checkpoint that begins with batch 0 again
    write_once(topic, live_table(0), name=f"another-{unique_name}", batch_id=0)
    found = [row["batch_id"] for row in records(broker.bootstrap, unique_name)]
    assert sorted(number for number in found if number >= 0) == [0, 0, 0, 0, 1, 1, 2, 2]


def reader(bootstrap: str, topic: str, **settings: bool) -> Consumer:
    """A consumer of the committed records of a topic from its beginning on."""
    common = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**common, "isolation.level": "read_committed", **settings})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(2)])
    return consumer


def records(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """The committed records of a topic, read to its end."""
    consumer = reader(bootstrap, topic, **{"enable.partition.eof": True})
    found: list[dict[str, Any]] = []
    ends, deadline_s = set(), time.monotonic() + _DEADLINE_S
    while len(ends) < 2:
        assert time.monotonic() < deadline_s, f"{len(found)} so far"
        message = consumer.poll(1.0)
        error = None if message is None else message.error()
        if message is not None and error is None:
            found.append(json.loads(message.value()))
        elif message is not None and error.code() == KafkaError._PARTITION_EOF:
            ends.add(message.partition())  # another error says that the topic is not known yet
    consumer.close()
    return found
