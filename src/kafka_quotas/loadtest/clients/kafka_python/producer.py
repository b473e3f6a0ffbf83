"""A kafka-python producer under load.

The library's own thread reports the result of each record, and the client's thread records it.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.engine import RunClock, WireCount
from kafka_quotas.loadtest.clients.kafka_python.client import KafkaPythonClient
from kafka_quotas.loadtest.clients.kafka_python.settings import PATIENT_MS, request_timeout_ms, translated_error
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import Loop
from kafka_quotas.loadtest.record.delivery import STAMP_SIZE, stamp

if TYPE_CHECKING:
    from kafka import KafkaProducer

_BACKLOG_BYTES: Final = 8 << 20
_BURST: Final = 100
_COMPRESSIONS: Final = ("none", "gzip")
_ACKS: Final[dict[str, int | str]] = {"0": 0, "1": 1, "all": "all", "-1": "all"}
_LINGER_MS: Final = 5
_LINGER_SLACK_MS: Final = 1000  # a delivery may take longer than linger and request together
_BATCH_HEAD: Final = 61
_REQUEST_HEAD: Final = 60  # about this many bytes: header, acks, names, lengths; a request has one batch per partition
_Answer = tuple[int, int, Exception | None]  # the number of a record, when it was answered, and its error


class KafkaPythonProducer(KafkaPythonClient):
    """One kafka-python producer of a run.

    Raises:
        UsageError: If the load test does not support the compression with kafka-python.
    """

    def __init__(self, plan: LoadPlan, entity: ClientLoad, clock: RunClock) -> None:
        super().__init__(plan, entity, clock)
        if entity.compression not in _COMPRESSIONS:
            raise UsageError(
                f"kafka-python can't compress with {entity.compression} here",
                hint="compression gzip or none, or client librdkafka",
            )
        self._payload = random.Random(entity.name.label).randbytes(entity.record_size)  # noqa: S311 - only incompressible
        self._answers: deque[_Answer] = deque()
        self._waiting: dict[int, tuple[int, int]] = {}
        """When records without an answer were due and sent, by their number."""
        self._backlog = max(2, _BACKLOG_BYTES // entity.record_size)
        if entity.loop is Loop.CLOSED:
            self._backlog = entity.in_flight

    def opened(self) -> "KafkaProducer":
        """Open the library's producer."""
        from kafka import KafkaProducer  # noqa: PLC0415 - only its own clients load the library

        class Producer(KafkaProducer):  # type: ignore[misc]
            """A producer that closes at once, where the library's own waits for every outstanding record."""

            def flush(self, timeout: float | None = None) -> None:
                """Give up the records that have no response."""

        choices: dict[str, Any] = {
            "acks": _ACKS[self.entity.acks],
            "compression_type": None if self.entity.compression == "none" else self.entity.compression,
        }
        return Producer(
            **self.settings,
            **choices,
            batch_size=max(self.entity.request_bytes, self.entity.record_size),
            linger_ms=_LINGER_MS,
            enable_idempotence=False,
            max_in_flight_requests_per_connection=self.entity.in_flight,
            request_timeout_ms=request_timeout_ms(self.plan, self.entity, default_ms=PATIENT_MS - _LINGER_SLACK_MS),
            delivery_timeout_ms=PATIENT_MS,
            max_block_ms=int(self.plan.connect_timeout_s * 1000),
        )

    def work(self, client: "KafkaProducer", stop: threading.Event) -> None:
        """Send records until the end of the run."""
        while self.takes_part(stop):
            now_ns = time.monotonic_ns()
            self.count_dropped(now_ns)
            waiting = self.recorder.sent - self.recorder.acked - self.recorder.failures.total()
            room = min(self._backlog - waiting, _BURST)
            count = self.pacer.due(now_ns, most=room) if room > 0 else 0
            for _ in range(count):
                self._send(client)
            self._count()
            if not count:
                self.wait(stop, until_ns=None if room > 0 else self.end_ns)

    def closed(self, client: "KafkaProducer") -> None:
        """Count the records without a response as unfinished, compute `wire`, and close the producer."""
        self._count()
        self.unfinished = self.recorder.sent - self.recorder.acked - self.recorder.failures.total()
        end_ns = min(self.end_ns, time.monotonic_ns())
        for due_ns, sent_ns in self._waiting.values():
            self.recorder.unanswered(intended_ns=due_ns, sent_ns=sent_ns, until_ns=end_ns)
        metrics: Any = client.metrics()
        self._reckon_wire(metrics["producer-metrics"])
        client.close(timeout=0)

    def _reckon_wire(self, averages: Mapping[str, float]) -> None:
        """Compute the bytes on the wire per byte of payload from the average batch."""
        batch, record = averages.get("batch-size-avg", 0.0), averages.get("record-size-avg", 0.0)
        if batch > 0 and record > 0 and self.entity.compression == "none":
            records = (batch - _BATCH_HEAD) / record
            payload = round(records * self.entity.record_size)
            self.wire = WireCount(wire_bytes=round(batch + _REQUEST_HEAD), payload_bytes=max(payload, 1))

    def _send(self, client: "KafkaProducer") -> None:
        sent_ns = time.monotonic_ns()
        value = self._payload
        if len(value) >= STAMP_SIZE:
            value = stamp(self.plan.run_id, self.index, self.recorder.sent) + value[STAMP_SIZE:]
        index = self.recorder.sent
        self._waiting[index] = self.pacer.next_ns(sent_ns), sent_ns
        future: Any = client.send(self.entity.topic, value)
        future.add_callback(partial(self._sent, index))
        future.add_errback(partial(self._failed, index))
        self.pacer.taken += 1
        self.recorder.sent += 1

    def _sent(self, index: int, _metadata: object) -> None:
        self._answers.append((index, time.monotonic_ns(), None))

    def _failed(self, index: int, error: Exception) -> None:
        self._answers.append((index, time.monotonic_ns(), error))

    def _count(self) -> None:
        acked = 0
        for _ in range(len(self._answers)):
            index, now_ns, error = self._answers.popleft()
            due_ns, sent_ns = self._waiting.pop(index)
            if error is None:
                acked += 1
                self.recorder.latency(intended_ns=due_ns, sent_ns=sent_ns, acked_ns=now_ns)
            else:
                self.recorder.failed(type(error).__name__)
                self.trouble = translated_error(error, bootstrap=self.plan.bootstrap)
        if acked:
            now_ns = time.monotonic_ns()
            self.recorder.acknowledged(now_ns, records=acked, size=acked * self.entity.record_size)
            self.pacer.answered(now_ns)
        self.count_throttles()
