"""Kafka's own share consumer behind the daemon: held to `consumer_byte_rate` like any other consumer.

It is given records as fast as it takes them where nothing limits it, so that a quota shows in the time between the
first record and the last.
"""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.brokers.java_process import java_command
from tests.support.brokers.servers import Kafka
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.enforcement.telemetry.status import DaemonStatus

RECORDS = 6000
RECORD_BYTES = 1000
BYTES_PER_SECOND = 400_000.0
WINDOW_S = 2
"""Whole samples of the window: what may be had at once is this many seconds' quota."""
TIMEOUT_S = 100.0


@pytest.fixture(scope="module")
def topic(kafka4: Kafka) -> str:
    """A topic of one partition with the records, in batches that are small beside the quota's window."""
    name = "share-consumer"
    producer = Producer({"bootstrap.servers": kafka4.bootstrap, "batch.size": 50_000})
    for number in range(RECORDS):
        producer.produce(name, f"{number:06}".ljust(RECORD_BYTES, "x"))
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    return name


def limited(kafka: Kafka, folder: Path, *options: str) -> Iterator[DaemonProcess]:
    set_quota(folder, Entity.of(client_id=None), consumer_byte_rate=BYTES_PER_SECOND)
    with running_daemon(folder, upstream=kafka.bootstrap, options=["--quota-window-num", "3", *options]) as running:
        yield running


@pytest.fixture(scope="module")
def delivering(kafka4: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    yield from limited(kafka4, tmp_path_factory.mktemp("deliver"))


@pytest.fixture(scope="module")
def emptying(kafka4: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    yield from limited(kafka4, tmp_path_factory.mktemp("empty"), "--fetch-over-quota", "kafka")


class ShareConsumer:
    """A share consumer, and when each of its records came.

    Ended by `stop`.
    """

    def __init__(self, kafka: Kafka, bootstrap: str, topic: str, group: str) -> None:
        reset = ["--alter", "--entity-type", "groups", "--entity-name", group]
        told = kafka.run_tool(
            "kafka.admin.ConfigCommand",
            ["--bootstrap-server", kafka.bootstrap, *reset, "--add-config", "share.auto.offset.reset=earliest"],
        )
        assert told.returncode == 0, told.stderr
        place = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group]
        command = java_command(
            kafka.jars,
            "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
            [*place, "--max-messages", str(RECORDS), "--command-property", f"client.id={group}"],
            options=["-Xmx256m", "-XX:TieredStopAtLevel=1"],
        )
        self.came: list[tuple[float, str]] = []
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.came.append((time.monotonic(), line[:6]))

    def wait(self) -> None:
        """Wait until it has all records."""
        self._process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def share_consumer(kafka: Kafka, daemon: DaemonProcess, topic: str, group: str) -> Iterator[ShareConsumer]:
    """A share consumer behind a daemon, whose group and client-id have the same name."""
    consumer = ShareConsumer(kafka, daemon.bootstrap, topic, group)
    try:
        yield consumer
    finally:
        consumer.stop()


def test_a_share_consumer_gets_its_records_at_the_rate_of_its_quota(
    kafka4: Kafka, delivering: DaemonProcess, topic: str, unique_name: str
) -> None:
    with share_consumer(kafka4, delivering, topic, unique_name) as consumer:
        consumer.wait()
    numbers = [number for _, number in consumer.came]
    assert sorted(numbers) == [f"{number:06}" for number in range(RECORDS)]
    # The last response is paid for after it; before that at most a window and a response (a window as well) are ahead.
    least_s = (RECORDS * RECORD_BYTES - 2 * WINDOW_S * BYTES_PER_SECOND) / BYTES_PER_SECOND
    assert consumer.came[-1][0] - consumer.came[0][0] >= least_s
    (row,) = [row for row in delivering.status().throttles if row.client_id == unique_name]
    assert (row.quota, row.times > 0) == ("consumer_byte_rate", True)


def test_a_throttled_share_fetch_is_answered_without_its_records_as_by_a_broker(
    kafka4: Kafka, emptying: DaemonProcess, topic: str, unique_name: str
) -> None:
    """What a broker keeps stays locked for the group until its time is over, so not all of it is waited for."""

    def throttled(status: DaemonStatus) -> bool:
        return any(row.client_id == unique_name and row.times > 0 for row in status.throttles)

    with share_consumer(kafka4, emptying, topic, unique_name) as consumer:
        status = emptying.wait_until(throttled, timeout_s=TIMEOUT_S)
        before = len(consumer.came)
        emptying.wait_until(lambda _: len(consumer.came) > before, timeout_s=TIMEOUT_S)
    assert status.fetch_over_quota == "kafka"
    assert emptying.status().counters["protocol_errors"] == 0
    numbers = [number for _, number in consumer.came]
    assert len(set(numbers)) == len(numbers)
