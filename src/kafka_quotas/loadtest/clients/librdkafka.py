"""The producers and consumers of a run that use librdkafka, and their properties.

Invariant: the load test replaces no property that the user gives.
"""

import functools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafka_quotas.loadtest.clients.cluster_check import PartitionRange, is_fatal, open_client, translated
from kafka_quotas.loadtest.clients.engine import LoadClient, RunClock, WireCount
from kafka_quotas.loadtest.measurement.delivery import SEQUENCE_SIZE, STAMP_SIZE, stamp
from kafka_quotas.loadtest.plan.plan import LARGEST_REQUEST, ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import Loop, Workload

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, ThrottleEvent

STATISTICS_INTERVAL_MS = 500

# A throttling broker responds at once but delays its next read, so a request may wait for the whole throttle time.
# librdkafka's default of 30 s would close the connection and resend the same records (the problem in KIP-219).
_PATIENT_MS = 300_000
_LEAST_MESSAGE = 1000  # bytes that librdkafka takes for message.max.bytes
_PACED_PREFETCH_S = 0.25  # a paced consumer fetches no further ahead, or it would exceed its rate at the broker


def client_properties(plan: LoadPlan, entity: ClientLoad) -> dict[str, object]:
    """Return the properties of a client's producer or consumer, without callbacks."""
    own = _producer(entity) if entity.workload is Workload.PRODUCE else _consumer(entity)
    return {
        "bootstrap.servers": entity.bootstrap or plan.bootstrap,
        "client.id": entity.name.client_id,
        "socket.timeout.ms": _PATIENT_MS,
        "statistics.interval.ms": STATISTICS_INTERVAL_MS,
        "log_level": 0,  # errors arrive through error_cb; librdkafka's own log lines would break the live view
        **own,
        **plan.properties_of(entity),
    }


def _producer(entity: ClientLoad) -> dict[str, object]:
    return {
        "acks": entity.acks,
        "batch.size": max(entity.request_bytes, entity.record_size + 100),
        "compression.type": entity.compression,
        "max.in.flight.requests.per.connection": entity.in_flight,
        "request.timeout.ms": _PATIENT_MS,
        "message.timeout.ms": _PATIENT_MS,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
    }


def _consumer(entity: ClientLoad) -> dict[str, object]:
    prefetched = 64 << 20
    if entity.arrivals_per_second is not None:
        ahead = int(float(entity.arrivals_per_second) * entity.record_size * _PACED_PREFETCH_S)
        prefetched = max(ahead, LARGEST_REQUEST)
    return {
        "group.id": f"kafka-quotas-load-test-{entity.group or entity.name.client_id}",  # nothing is ever committed
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": entity.request_bytes,
        "fetch.max.bytes": max(entity.request_bytes, _LEAST_MESSAGE),  # of all partitions together
        "message.max.bytes": max(entity.request_bytes, _LEAST_MESSAGE),  # librdkafka fetches no less
        "fetch.wait.max.ms": 50,
        "fetch.queue.backoff.ms": 10,  # librdkafka pauses for 1 s where its queue is full for a moment
        "queued.max.messages.kbytes": prefetched // 1024,
    }


LONGEST_WAIT_S = 0.05
"""Longest wait between two looks at the end of the run."""
_SAMPLES_PER_S = 2000
"""Latencies recorded per second and client: a delivery callback costs about a microsecond, and so do its entries."""


class LibrdkafkaClient(LoadClient):
    """The base of producers and consumers, each an engine of its own, with their callbacks."""

    def __init__(self, plan: LoadPlan, entity: ClientLoad, clock: RunClock) -> None:
        super().__init__(plan, entity, clock)
        self._wires = WireCounter(topic=entity.topic, workload=entity.workload)

    @property
    def clients(self) -> Sequence[LoadClient]:
        """The client itself."""
        return (self,)

    @property
    def head_start_ns(self) -> int:
        """Always 0: the library connects when it has something to send."""
        return 0

    def takes_part(self, stop: threading.Event) -> bool:
        """Return whether the client still sends, which it does until the run stops."""
        return self.is_active and not stop.is_set()

    def callbacks(self) -> dict[str, object]:
        """Return the properties that set librdkafka's callbacks."""
        return {"error_cb": self.on_error, "throttle_cb": self.on_throttle, "stats_cb": self.on_statistics}

    def on_error(self, error: "KafkaError") -> None:
        """Keep the client's last error, and end the run if the error is fatal."""
        self.trouble = translated(error, bootstrap=self.plan.bootstrap)
        if is_fatal(error) and self.error is None:
            self.error = self.trouble

    def on_throttle(self, event: "ThrottleEvent") -> None:
        """Record a throttle time, which librdkafka reports in seconds."""
        self.recorder.throttled(time.monotonic_ns(), round(event.throttle_time * 1000))

    def on_statistics(self, statistics: str) -> None:
        """Update the bytes on the wire and the number of requests."""
        self.wire = self._wires.counted(statistics)
        self.recorder.responded(time.monotonic_ns(), self.wire.requests)

    def sample_every(self) -> int:
        """Return N, where every Nth record has its latency recorded: 100 without a rate."""
        rate = self.entity.arrivals_per_second
        return 100 if rate is None else max(1, int(rate) // _SAMPLES_PER_S)

    def wait_until_due_s(self, now_ns: int) -> float:
        """Return the seconds until the next record is due, at most `LONGEST_WAIT_S`, and 0 without a schedule."""
        return min(max((self.pacer.next_ns(now_ns) - now_ns) / 1e9, 0.0), LONGEST_WAIT_S)


class WireCounter:
    """The bytes and requests of one topic and workload, over all statistics of a client.

    librdkafka drops a lost broker from its statistics, and counts from 0 when it finds the broker again. So each count
    is summed by its growth, and a reconnect takes nothing away.

    Source:
        librdkafka STATISTICS.md: `brokers.*.txbytes|rxbytes|req`, `topics.*.partitions.*.txbytes|rxbytes`.
    """

    def __init__(self, *, topic: str, workload: Workload) -> None:
        self._topic = topic
        self._workload = workload
        self._last: dict[tuple[str, str], int] = {}
        self._sums: Counter[str] = Counter()

    def counted(self, statistics: str) -> WireCount:
        """Return the counts since the start, from a further statistics document (JSON)."""
        document = json.loads(statistics)
        brokers = document.get("brokers", {})
        partitions = document.get("topics", {}).get(self._topic, {}).get("partitions", {})
        reads = self._workload is Workload.CONSUME
        for name, broker in brokers.items():
            self._grow("wire", name, broker["rxbytes" if reads else "txbytes"])
            self._grow("requests", name, broker.get("req", {}).get("Fetch" if reads else "Produce", 0))
        for name, partition in partitions.items():
            self._grow("payload", name, partition["rxbytes" if reads else "txbytes"])
            self._grow("records", name, 0 if reads else partition["txmsgs"])
        payload = self._sums["payload"]
        if self._sums["records"]:
            waiting = sum(broker["outbuf_msg_cnt"] for broker in brokers.values())  # in requests built and not yet sent
            payload -= waiting * payload // self._sums["records"]
        return WireCount(wire_bytes=self._sums["wire"], payload_bytes=payload, requests=self._sums["requests"])

    def _grow(self, count: str, name: str, now: int) -> None:
        before = self._last.get((count, name), 0)
        self._sums[count] += now - before if now >= before else now
        self._last[count, name] = now


_BATCH = 500
_GATHER_S = 0.01  # librdkafka's wait to fill a batch, and so the precision of arrival times


class ConsumerLoad(LibrdkafkaClient):
    """One librdkafka consumer of a run."""

    def __init__(
        self, plan: LoadPlan, entity: ClientLoad, clock: RunClock, partitions: tuple[PartitionRange, ...]
    ) -> None:
        from confluent_kafka import Consumer  # noqa: PLC0415 - loads librdkafka

        super().__init__(plan, entity, clock)
        self._every = self.latency_every = self.sample_every()
        self._partitions = partitions
        self._last = {each.partition: each.high - 1 for each in partitions}
        self._consumer = open_client(Consumer, {**client_properties(plan, entity), **self.callbacks()})

    def run(self, stop: threading.Event) -> None:
        """Read records until the end of the run."""
        stop.wait(self.start_in_s())
        try:
            self._begin()  # not before: librdkafka fetches, and joins a group, from then on
            while self.takes_part(stop):
                now_ns = time.monotonic_ns()
                due = self.pacer.due(now_ns, most=_BATCH)
                if due > 0:
                    self._take(self._consumer.consume(due, _GATHER_S))
                else:
                    stop.wait(self.wait_until_due_s(now_ns) or LONGEST_WAIT_S)
        finally:
            self._consumer.close()

    def _begin(self) -> None:
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - loaded by now

        if self.entity.group is not None:
            self._consumer.subscribe([self.entity.topic])
            return
        self._consumer.assign(
            [TopicPartition(self.entity.topic, each.partition, each.low) for each in self._partitions]
        )

    def _take(self, messages: "list[Message]") -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition  # noqa: PLC0415 - loaded by now

        now_ns = time.monotonic_ns()
        size = records = 0
        for message in messages:
            error = message.error()
            if error is not None:
                self.on_error(error)
                continue
            records += 1
            size += len(message)
            partition = message.partition() or 0
            if (message.offset() or 0) >= self._last[partition]:
                self._consumer.seek(TopicPartition(self.entity.topic, partition, OFFSET_BEGINNING))
        if records:
            first = self.pacer.taken
            for index in () if self.pacer.is_unpaced else range(first, first + records):
                if index % self._every == 0:
                    self.recorder.arrival(intended_ns=self.pacer.intended_ns(index, now_ns), arrived_ns=now_ns)
            self.pacer.taken += records
            self.recorder.sent += records
            self.recorder.acknowledged(now_ns, records=records, size=size)


_PATTERN: Final = 64
"""Length of the repeated bytes where a client compresses: its requests are small then, and their records large."""


def padding(entity: ClientLoad, *, size: int) -> bytes:
    """Return `size` bytes of padding, the same for all records of a client, and others for others."""
    source = random.Random(entity.name.label)  # noqa: S311 - nobody is to be kept from guessing them
    if entity.compression == "none":
        return source.randbytes(size)
    return (source.randbytes(_PATTERN) * (size // _PATTERN + 1))[:size]


_BURST = 500  # records between two looks at clock and acknowledgements
_SHORTEST_WAIT_S = 0.001  # the grain of librdkafka's timers; a smaller one would be a busy loop
_LAST_POLLS = 20  # a client that is not throttled has new acknowledgements in each
_CLOSE_S = 5.0  # to serve the callbacks of purged records, which takes a moment
_SMALLEST_BACKLOG = 1 << 20
_LARGEST_BACKLOG = 64 << 20


class ProducerLoad(LibrdkafkaClient):
    """One librdkafka producer of a run."""

    def __init__(self, plan: LoadPlan, entity: ClientLoad, clock: RunClock) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415 - loads librdkafka

        super().__init__(plan, entity, clock)
        self._every = self.latency_every = self.sample_every()
        self._is_over = False
        self._is_sampled = self._every > 1
        self._unwatched = 0  # records without a callback
        self._producer = open_client(Producer, {**client_properties(plan, entity), **self.callbacks()})
        self._is_stamped = entity.record_size >= STAMP_SIZE
        padding_size = entity.record_size - STAMP_SIZE if self._is_stamped else entity.record_size
        self._padding = padding(entity, size=padding_size)
        self._head = stamp(plan.run_id, self.index, 0)[:-SEQUENCE_SIZE]
        self._backlog = max(2, _backlog_bytes(entity) // entity.record_size)
        if entity.loop is Loop.CLOSED:
            self._backlog = entity.in_flight

    def run(self, stop: threading.Event) -> None:
        """Send records until the end of the run, and record those that are acknowledged by then."""
        stop.wait(self.start_in_s())
        try:
            while self.takes_part(stop):
                now_ns = time.monotonic_ns()
                held = len(self._producer)
                count = self.pacer.due(now_ns, most=min(self._backlog - held, _BURST))
                sent = self._send(count) if count > 0 else 0
                # More may be due already, or a due record needs this loop; a full buffer drains while it is polled.
                wait_s = 0.0 if sent == _BURST else max(self.wait_until_due_s(now_ns), _SHORTEST_WAIT_S)
                self._producer.poll(LONGEST_WAIT_S if held >= self._backlog else wait_s)
                self._acknowledge(held=len(self._producer))
            self._finish()
        finally:
            self._close()

    def _send(self, count: int) -> int:
        produce, topic, every = self._producer.produce, self.entity.topic, self._every
        head, rest, is_stamped = self._head, self._padding, self._is_stamped
        first = self.recorder.sent
        index = first
        try:
            for index in range(first, first + count):
                value = head + index.to_bytes(SEQUENCE_SIZE, "big") + rest if is_stamped else rest
                if index % every:
                    produce(topic, value)
                    self._unwatched += 1
                else:
                    sent_ns = time.monotonic_ns()
                    times = self.pacer.intended_ns(index, sent_ns), sent_ns
                    produce(topic, value, on_delivery=functools.partial(self._delivered, index, *times))
            index += 1
        except BufferError:  # librdkafka's own queue is full: the record is sent later
            pass
        self.recorder.sent = self.pacer.taken = index
        return index - first

    def _delivered(
        self, index: int, intended_ns: int, sent_ns: int, error: "KafkaError | None", _message: "Message"
    ) -> None:
        if error is None:
            if self._is_sampled:
                self.recorder.unwatched.confirm(index)
            self.recorder.latency(intended_ns=intended_ns, sent_ns=sent_ns, acked_ns=time.monotonic_ns())
            return
        if self._is_over:  # it was purged, and is unanswered, not failed
            self.recorder.unanswered(intended_ns=intended_ns, sent_ns=sent_ns, until_ns=self.end_ns)
            return
        self._every = 1  # after the first failure every record has a callback
        self.recorder.failed(error.name())
        self.trouble = translated(error, bootstrap=self.plan.bootstrap)

    def _acknowledge(self, *, held: int) -> None:
        """Record the acknowledgement of all records but those that librdkafka holds, and those that failed."""
        recorder = self.recorder
        fresh = recorder.sent - held - recorder.acked - recorder.failures.total()
        if fresh > 0:
            recorder.acknowledged(time.monotonic_ns(), records=fresh, size=fresh * self.entity.record_size)

    def _finish(self) -> None:
        held = 0
        for _ in range(_LAST_POLLS):
            held = len(self._producer)
            # The length counts events that wait for a poll, such as statistics, like records without an answer. It is
            # right if the next poll finds none.
            if not self._producer.poll(0):
                break
        self._acknowledge(held=held)
        self.unfinished = self.recorder.sent - self.recorder.acked - self.recorder.failures.total()
        if self.recorder.failures:
            self.recorder.unwatched.count = self._unwatched
        self.end_ns = min(self.end_ns, time.monotonic_ns())

    def _close(self) -> None:
        """Drop the records that librdkafka still holds, and end its threads and connections.

        A record's callback keeps this client, and so the producer, in a way that garbage collection can't see. Threads
        that run while the process ends race with OpenSSL's clean-up, which then ends it by SIGABRT or SIGSEGV.
        """
        self._is_over = True
        self._producer.purge()
        self._producer.flush(_CLOSE_S)
        del self._producer


def _backlog_bytes(entity: ClientLoad) -> int:
    rates = [entity.quota]
    if entity.arrivals_per_second is not None:
        rates.append(float(entity.arrivals_per_second) * entity.record_size)
    known = [rate for rate in rates if rate is not None]
    return int(min(max(*known, _SMALLEST_BACKLOG), _LARGEST_BACKLOG)) if known else _LARGEST_BACKLOG
