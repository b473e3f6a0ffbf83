"""Idempotent producers of three libraries that send numbered records until they are told to stop.

Each record is `NAME:NUMBER`, filled up with zero bytes, in partition 0 of a topic. What makes a record neither lost nor
doubled while servers die is a setting of each library:

| library | settings |
| --- | --- |
| librdkafka | `enable.idempotence=true` (which sets `acks=all`), `message.timeout.ms` longer than any outage |
| kafka-python 3 | `enable_idempotence=True`, `acks="all"`, `delivery_timeout_ms` and `max_block_ms` likewise |
| Java | `enable.idempotence=true`, `acks=all`, `delivery.timeout.ms` and `max.block.ms` likewise |
"""

import selectors
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaProducer
from tests.support.brokers.java_process import java_command
from tests.support.brokers.maven import KAFKA_4, jars
from tests.support.brokers.tls_leaks import leaked_sockets_collected
from tests.support.processes.awaiting import await_true

TIMEOUT_S = 240.0
RECORD_BYTES = 1000
PAUSE_S = 0.005
"""Between two records, so that a load without a quota stays small."""
OUTSTANDING = 300
"""Records that may wait for their answer: a producer that is held has always something to send."""
BATCH_BYTES = 16_384
_TIMEOUT_MS = int(TIMEOUT_S * 1000)
_SHORTEST_WAIT_S = 0.01


class NumberedLoad(ABC):
    """A producer that goes on until it is told to stop.

    `name` is its client-id as well.
    """

    library: str

    def __init__(self, bootstrap: str, topic: str, name: str, *, pause_s: float = PAUSE_S) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.name = name
        self.pause_s = pause_s
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"load {name}")
        self._thread.start()

    def goes_on(self, records: int = 20) -> None:
        """Wait until this many records more are acknowledged.

        Raises:
            AssertionError: not within `TIMEOUT_S`, or the producer ended.
        """
        before = len(self.acknowledged)
        await_true(lambda: self._has_more_than(before + records), f"{self.name} has more acknowledged")

    def stop(self) -> None:
        """End the load once every record is answered."""
        self.ended.set()
        self._thread.join(2 * TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def give_up(self) -> None:
        """End the load and forget what was not sent."""
        self.ended.set()
        if self._thread.is_alive():
            self._forget()
            self._thread.join(TIMEOUT_S)

    def value(self, number: int) -> bytes:
        return f"{self.name}:{number:08d} ".encode().ljust(RECORD_BYTES, b"\0")

    def _has_more_than(self, records: int) -> bool:
        assert self._thread.is_alive(), f"{self.name} ended: {self.failures}"
        return len(self.acknowledged) > records

    @abstractmethod
    def _run(self) -> None:
        """Send until `ended` is set, then wait for what is outstanding."""

    @abstractmethod
    def _forget(self) -> None:
        """Let `_run` end soon, whatever is outstanding."""


class LibrdkafkaLoad(NumberedLoad):
    """Records by librdkafka, through confluent-kafka."""

    library = "librdkafka"

    def _run(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "client.id": self.name, "enable.idempotence": True}
        waits = {"message.timeout.ms": _TIMEOUT_MS, "reconnect.backoff.max.ms": 500, "linger.ms": 5}
        self._producer = Producer(settings | waits | {"batch.size": BATCH_BYTES, "log_level": 0})
        number = 0
        while not self.ended.is_set():
            if number - len(self.acknowledged) - len(self.failures) < OUTSTANDING:
                self._producer.produce(self.topic, self.value(number), partition=0, on_delivery=self._delivered)
                number += 1
            self._producer.poll(self.pause_s)
        left = self._producer.flush(TIMEOUT_S)
        if left:
            self.failures.append(f"{left} records without an answer")
        self._producer.close()

    def _forget(self) -> None:
        self._producer.purge()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(number_of(message.value() or b"")[1])
        else:
            self.failures.append(str(error))


class _PatientSelector(selectors.DefaultSelector):
    """A selector that waits a little where kafka-python asks without end: while a quota holds its connection."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready, after ten milliseconds at least where nothing is."""
        return super().select(timeout if timeout is None else max(timeout, _SHORTEST_WAIT_S))


class KafkaPythonLoad(NumberedLoad):
    """Records by kafka-python."""

    library = "kafka-python"

    def _run(self) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            client_id=self.name,
            enable_idempotence=True,
            acks="all",
            delivery_timeout_ms=_TIMEOUT_MS,
            max_block_ms=_TIMEOUT_MS,
            reconnect_backoff_max_ms=500,
            linger_ms=5,
            batch_size=BATCH_BYTES,
            selector=_PatientSelector,
        )
        number = 0
        while not self.ended.wait(self.pause_s):
            if number - len(self.acknowledged) - len(self.failures) < OUTSTANDING:
                future = self._producer.send(self.topic, self.value(number), partition=0)
                future.add_callback(self._acknowledged, number)
                future.add_errback(self._failed)
                number += 1
        self._producer.close(timeout=TIMEOUT_S)

    def _forget(self) -> None:
        self._producer.close(timeout=0)

    def _acknowledged(self, number: int, _metadata: object) -> None:
        self.acknowledged.append(number)

    def _failed(self, error: BaseException) -> None:
        self.failures.append(repr(error))


class JavaLoad(NumberedLoad):
    """Records by Java's producer, in a process of its own."""

    library = "Java"

    def _run(self) -> None:
        properties: Mapping[str, str | int] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": self.name,
            "enable.idempotence": "true",
            "acks": "all",
            "delivery.timeout.ms": _TIMEOUT_MS,
            "max.block.ms": _TIMEOUT_MS,
            "reconnect.backoff.max.ms": 500,
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
        }
        program = str(Path(__file__).parents[1] / "java" / "NumberedProducer.java")
        sizes = [str(RECORD_BYTES), str(max(1, round(self.pause_s * 1000))), str(OUTSTANDING)]
        arguments = [self.topic, self.name, *sizes, *(f"{key}={value}" for key, value in properties.items())]
        options = ["-Xmx128m", "-XX:TieredStopAtLevel=1"]
        self._process = subprocess.Popen(
            java_command(jars(KAFKA_4), program, arguments, options=options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._process:
            teller = threading.Thread(target=self._tell_end)
            teller.start()
            last = ""
            for line in self._process.stdout:
                last = line.strip()
                kind, _, rest = last.partition(" ")
                if kind == "acked":
                    self.acknowledged.append(int(rest))
                elif kind == "failed":
                    self.failures.append(rest)
            if last != "done":
                self.failures.append(f"the producer ended after {last!r}")
            self.ended.set()
            teller.join()

    def _tell_end(self) -> None:
        self.ended.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _forget(self) -> None:
        self._process.kill()


LOADS: tuple[type[NumberedLoad], ...] = (LibrdkafkaLoad, KafkaPythonLoad, JavaLoad)


@contextmanager
def running_loads(bootstrap: str, topic: str, *, pause_s: float = PAUSE_S) -> Iterator[list[NumberedLoad]]:
    """A load of each library on one topic, given up at the end where it was not stopped."""
    with leaked_sockets_collected(), ExitStack() as stack:
        loads = []
        for kind in LOADS:
            load = kind(bootstrap, topic, f"load-{kind.library.lower()}", pause_s=pause_s)
            stack.callback(load.give_up)
            loads.append(load)
        yield loads


def number_of(value: bytes) -> tuple[str, int]:
    """Return who sent a record, and its number."""
    name, _, rest = value.partition(b":")
    return name.decode(), int(rest[:8])
