"""Data that is refused on its way through the daemon to a real broker, by producers that number their batches.

It is refused because topics are over their thresholds, or clients over byte rates that give errors instead of delays.

Idempotent and transactional producers send on while their data starts to be rejected, and while it is taken again. What
a producer was told must be what is in the log: nothing twice, nothing lost, in order; and none of them may hang.
"""

import itertools
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from tests.support.brokers.appended_records import appended, make_topic
from tests.support.brokers.servers import Kafka
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota, store_url
from tests.support.processes.awaiting import await_true
from tests.support.stores.stored_quotas import store_quotas

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.enforcement.session.state import MAX_REFUSED
from kafka_quotas.enforcement.telemetry.status import DaemonStatus

TOTAL, SHARE = "total.bytes.in.per.sec.threshold", "bytes.in.per.sec.threshold"
POLICY_VIOLATION, QUOTA_EXCEEDED = 44, 89
TIMEOUT_S = 240.0
PER_SECOND = 100
SOME = 30
"""How many records have to be rejected, and taken afterwards, until a producer may end."""
RECORD_BYTES = 300


class Sender(ABC):
    """Sends numbers to one partition until it is told to end.

    What became of each is in `results` (0: taken).
    """

    def __init__(self) -> None:
        self.results: list[tuple[int, int]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "Sender":
        self._thread.start()
        return self

    def end(self) -> None:
        """Send no more."""
        self._end.set()

    def stop(self) -> None:
        """Wait until everything that was sent is answered, and fail if it is not in time."""
        self.end()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "it hangs"

    def abandon(self) -> None:
        """End without the answers that are missing, for a client that goes on would disturb the tests that follow."""
        self.end()
        deadline_s = time.monotonic() + TIMEOUT_S
        while self._thread.is_alive() and time.monotonic() < deadline_s:
            self._drop()
            self._thread.join(0.1)

    @abstractmethod
    def _drop(self) -> None:
        """Give up what is not answered."""

    def codes(self) -> list[int]:
        return [code for _, code in list(self.results)]

    def taken(self) -> list[int]:
        return sorted(number for number, code in self.results if code == 0)

    def _numbers(self) -> Iterator[int]:
        for number in itertools.count():
            if self._end.wait(1 / PER_SECOND):
                return
            yield number

    @abstractmethod
    def _run(self) -> None: ...


def value_of(number: int) -> bytes:
    return f"{number} ".encode().ljust(RECORD_BYTES, b".")


class ByLibrdkafka(Sender):
    """librdkafka's idempotent producer."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True})

    def _run(self) -> None:
        def told(number: int, error: Any) -> None:
            self.results.append((number, 0 if error is None else error.code()))

        for number in self._numbers():
            self._producer.produce(
                self._topic, value_of(number), partition=0, on_delivery=lambda error, _, n=number: told(n, error)
            )
            self._producer.poll(0)
        assert self._producer.flush(TIMEOUT_S) == 0

    def _drop(self) -> None:
        self._producer.purge()


class ByTransactions(Sender):
    """librdkafka's transactional producer, a few records to a transaction."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "transactional.id": topic})

    def _run(self) -> None:
        self._producer.init_transactions(TIMEOUT_S)
        numbers = self._numbers()
        while batch := list(itertools.islice(numbers, 5)):
            self._producer.begin_transaction()
            for number in batch:
                self._producer.produce(self._topic, value_of(number), partition=0)
            try:
                self._producer.commit_transaction(TIMEOUT_S)
            except KafkaException as failed:
                if not failed.args[0].txn_requires_abort():
                    raise
                self._producer.abort_transaction(TIMEOUT_S)
                self.results += [(number, POLICY_VIOLATION) for number in batch]
            else:
                self.results += [(number, 0) for number in batch]

    def _drop(self) -> None:
        self._producer.purge()


class ByKafkaPython(Sender):
    """kafka-python's idempotent producer. To it any error but those it repeats is the end of the producer."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)

    def _run(self) -> None:
        def told(number: int, code: int) -> None:
            self.results.append((number, code))

        for number in self._numbers():
            future = self._producer.send(self._topic, value_of(number), partition=0)
            future.add_callback(lambda _, n=number: told(n, 0))
            future.add_errback(lambda error, n=number: told(n, getattr(error, "errno", -1)))
        self._producer.flush(TIMEOUT_S)
        self._producer.close()

    def _drop(self) -> None:
        self._producer._sender.force_close()  # close() would wait for the answers first


class ByJava(Sender):
    """Kafka's own verifiable producer.

    It sends a fixed number of records and tells about them at its end.
    """

    RECORDS = 8 * PER_SECOND

    def __init__(self, kafka: Kafka, bootstrap: str, topic: str, folder: Path) -> None:
        super().__init__()
        properties = folder / "producer.properties"
        properties.write_text("enable.idempotence=true\nacks=all\nretries=2147483647\nlinger.ms=0\n")
        self._kafka = kafka
        self._arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--throughput", str(PER_SECOND)]
        self._arguments += ["--max-messages", str(self.RECORDS), "--command-config", str(properties)]

    def _run(self) -> None:
        done = self._kafka.run_tool("org.apache.kafka.tools.VerifiableProducer", self._arguments, timeout_s=TIMEOUT_S)
        for line in done.stdout.splitlines():
            event = json.loads(line)
            if event["name"] == "producer_send_success":
                self.results.append((int(event["value"]), 0))
            elif event["name"] == "producer_send_error":
                code = POLICY_VIOLATION if "PolicyViolation" in event["exception"] else -1
                self.results.append((int(event["value"]), code))
        assert len(self.results) == self.RECORDS, done

    def _drop(self) -> None:
        """A process of its own disturbs nobody, and ends in time."""


def set_threshold(daemon: DaemonProcess, folder: Path, entity: Entity, key: str, value: float) -> None:
    """Set a threshold, and wait until the daemon goes by it."""
    before = daemon.status().store.revision
    store_quotas(store_url(folder), {entity: {key: value}})
    daemon.wait_until(lambda status: status.store.revision != before)


def numbers_in(bootstrap: str, topic: str) -> list[int]:
    """The committed numbers in the first partition of a topic, in its order."""
    records = appended(bootstrap, topic, isolation_level="read_committed")
    return [int(record.value.split(b" ")[0]) for record in records]


@contextmanager
def rejecting_soon(folder: Path, kafka: Kafka, names: Sequence[str], error: str) -> Iterator[DaemonProcess]:
    """A daemon that lets these topics take in nothing once its meters have seen their data, which takes 5 s."""
    folder.mkdir()
    with running_daemon(folder, upstream=kafka.bootstrap, options=["--threshold-error", error]) as daemon:
        for name in names:
            set_threshold(daemon, folder, Entity.of(topic=name), SHARE, 1.0)
        set_threshold(daemon, folder, Entity.of(broker=None), TOTAL, 1000.0)
        yield daemon


@contextmanager
def refusing(folder: Path, kafka: Kafka) -> Iterator[DaemonProcess]:
    """A daemon that refuses what every client sends above a rate that is less than what the senders send."""
    folder.mkdir()
    set_quota(folder, Entity.of(client_id=None), producer_byte_rate=0.9 * PER_SECOND * RECORD_BYTES)
    # Java's has records of 10 bytes, and where it is slow few batches
    set_quota(folder, Entity.of(client_id="producer-1"), producer_byte_rate=1000.0)
    options = ["--on-violation", "error", "--quota-window-num", "2"]
    with running_daemon(folder, upstream=kafka.bootstrap, options=options) as daemon:
        yield daemon


def test_producers_that_number_their_batches_neither_hang_nor_lose_nor_reorder(
    kafka4: Kafka, tmp_path: Path, unique_name: str
) -> None:
    kinds = ("librdkafka", "transactions", "java", "fatal", "repeated")
    names = [f"{unique_name}-{kind}" for kind in kinds]
    for name in names:
        make_topic(kafka4.bootstrap, name)
    dropping, repeating = tmp_path / "dropping", tmp_path / "repeating"
    with (
        rejecting_soon(dropping, kafka4, names, "policy-violation") as drops,
        rejecting_soon(repeating, kafka4, names, "throttling-quota-exceeded") as repeats,
        ExitStack() as ends,
    ):
        recovering = [ByLibrdkafka(drops.bootstrap, names[0]), ByTransactions(drops.bootstrap, names[1])]
        java = ByJava(kafka4, drops.bootstrap, names[2], dropping)
        fatal, repeated = ByKafkaPython(drops.bootstrap, names[3]), ByKafkaPython(repeats.bootstrap, names[4])
        senders = [*recovering, java, fatal, repeated]
        for sender in senders:
            sender.start()
            ends.callback(sender.abandon)
        for sender in (*recovering, fatal):
            await_true(lambda s=sender: s.codes().count(POLICY_VIOLATION) >= SOME, "some are rejected")
        for daemon, name in ((drops, names[2]), (repeats, names[4])):
            said = daemon.wait_for_log("data rejected: topic over its threshold", f"topic={name}", timeout_s=TIMEOUT_S)
            assert f"topic {name} takes in" in said
        set_threshold(drops, dropping, Entity.of(broker=None), TOTAL, 1e12)
        set_threshold(repeats, repeating, Entity.of(broker=None), TOTAL, 1e12)
        for sender in (*recovering, repeated):
            before = sender.codes().count(0)
            await_true(lambda s=sender, b=before: s.codes().count(0) >= b + SOME, "some are taken again")
        for sender in senders:
            sender.stop()
    for sender, name in zip(senders, names, strict=True):
        assert set(sender.codes()) == ({0} if sender is repeated else {0, POLICY_VIOLATION}), name
        assert numbers_in(kafka4.bootstrap, name) == sender.taken(), name


def refused_clients(status: DaemonStatus) -> int:
    """How many clients were refused anything."""
    return sum(row.refused_times > 0 for row in status.throttles)


def test_producers_that_get_errors_for_quotas_neither_hang_nor_lose_nor_reorder(
    kafka4: Kafka, tmp_path: Path, unique_name: str
) -> None:
    names = [f"{unique_name}-{kind}" for kind in ("librdkafka", "python", "java")]
    for name in names:
        make_topic(kafka4.bootstrap, name)
    folder = tmp_path / "refusing"
    with refusing(folder, kafka4) as daemon, ExitStack() as ends:
        failed, python = ByLibrdkafka(daemon.bootstrap, names[0]), ByKafkaPython(daemon.bootstrap, names[1])
        java = ByJava(kafka4, daemon.bootstrap, names[2], folder)
        senders: list[Sender] = [failed, python, java]
        for sender in senders:
            sender.start()
            ends.callback(sender.abandon)
        await_true(lambda: failed.codes().count(QUOTA_EXCEEDED) >= MAX_REFUSED, "as many are refused as may be")
        daemon.wait_until(lambda status: refused_clients(status) == 3, timeout_s=TIMEOUT_S)
        before = failed.codes().count(0)
        await_true(lambda: failed.codes().count(0) >= before + SOME, "it is delayed, and some are taken")
        for sender in senders:
            sender.stop()
    for sender, name in zip(senders, names, strict=True):
        assert set(sender.codes()) == ({0, QUOTA_EXCEEDED} if sender is failed else {0}), name
        assert numbers_in(kafka4.bootstrap, name) == sender.taken(), name
