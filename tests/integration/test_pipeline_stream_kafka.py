"""A stream from a real topic, killed in the middle and started again: every event counts once."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.servers import Kafka

pytestmark = pytest.mark.timeout(900)
_DEADLINE_S = 600.0
_EVENTS = 2000
_BATCH = 200
_START_MS = 1_795_262_400_000
_BAD = b'{"v":1,"ts_ms":"rubbish"}'


def event(number: int) -> bytes:
    fields = {"v": 1, "ts_ms": _START_MS + number, "cluster": "c", "broker_id": 1, "connection": number % 3}
    client = {"user": f"u{number % 4}", "client_id": "app", "ip": "10.0.0.7", "quota_type": "produce", "api_key": 0}
    amounts = {"bytes": number, "thread_ms": 0, "mutations": 0, "throttle_ms": 1, "is_exempt": False}
    return json.dumps(fields | client | amounts).encode()


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(120)


def fill(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(_EVENTS):
        producer.produce(topic, event(number), key=str(number % 4))
    producer.produce(topic, _BAD)
    assert producer.flush(120) == 0


def command(source: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "kafka_quotas", "pipeline", "stream", source, "--batch-size", str(_BATCH), *arguments]


def live_rows(folder: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(folder.glob("batch=*/*.parquet")) for row in pq.ParquetFile(file).read().to_pylist()]


def wait_for_batches(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + _DEADLINE_S
    while len(list(folder.glob("batch=*"))) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def killed_after(batches: int, folder: Path, arguments: list[str]) -> None:
    """Nothing, once a stream has written some batches and was killed, its Java with it, without being asked."""
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_for_batches(folder, batches, process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_every_event_of_a_topic_counts_once_through_kill_9(kafka4: Kafka, unique_name: str, tmp_path: Path) -> None:
    fill(kafka4.bootstrap, unique_name)
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text("entries:\n  - {entity: {user: u1}, quotas: {producer_byte_rate: 100k}}\n")
    out = tmp_path / "live"
    options = ["--out", str(out), "--quotas", str(quotas), "--master", "local[2]", "--spark-log", str(tmp_path / "log")]
    arguments = command(f"kafka://{kafka4.bootstrap}/{unique_name}", *options)
    killed_after(3, out, [*arguments, "--interval", "10ms"])
    before = len(list(out.glob("batch=*")))
    assert before < _EVENTS / _BATCH  # it was in the middle
    done = subprocess.run([*arguments, "--once"], capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    rows = live_rows(out)
    assert {user: sum(row["events"] for row in rows if row["user"] == user) for user in ("u0", "u1", "u2", "u3")} == {
        f"u{each}": _EVENTS // 4 for each in range(4)
    }
    for each in range(4):
        last = max((row for row in rows if row["user"] == f"u{each}"), key=lambda row: row["batch_id"])
        assert (last["total_events"], last["total_amount"]) == (_EVENTS // 4, sum(range(each, _EVENTS, 4)))
        assert sum(row["observed_throttle_ms"] for row in rows if row["user"] == f"u{each}") == _EVENTS // 4
    assert sum(row["late_events"] for row in rows) == 0
    unreadable = out / "_checkpoint" / "kafka-quotas-unreadable"
    assert [row["raw"] for row in live_rows(unreadable)] == [_BAD.decode()]


def test_live_rows_go_to_a_topic_once_from_a_folder(kafka4: Kafka, unique_name: str, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    for number in range(3):
        lines = (event(each) for each in range(number * 100, number * 100 + 100))
        (folder / f"events-{number}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    create(kafka4.bootstrap, unique_name)
    target = f"kafka://{kafka4.bootstrap}/{unique_name}"
    options = ["--out", target, "--checkpoint", str(tmp_path / "state"), "--master", "local[1]", "--once"]
    arguments = [*command(str(folder), *options), "--batch-size", "1", "--spark-log", str(tmp_path / "log")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    found = records(kafka4.bootstrap, unique_name, 12)
    assert sorted((row["batch_id"], row["user"], row["events"]) for row in found) == [
        (batch, f"u{user}", 25) for batch in range(3) for user in range(4)
    ]


def records(bootstrap: str, topic: str, count: int) -> list[dict[str, Any]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.subscribe([topic])
    found: list[dict[str, Any]] = []
    ends, deadline_s = set(), time.monotonic() + _DEADLINE_S
    while len(ends) < 2:
        assert time.monotonic() < deadline_s, f"{len(found)} of {count}"
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(json.loads(message.value()))
        elif message is not None:
            ends.add(message.partition())
    consumer.close()
    return found
