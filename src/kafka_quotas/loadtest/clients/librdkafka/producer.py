"""A producer under load: open loop on a schedule, or as many records as its buffer takes.

Counts are exact at no cost per record: the records handed to librdkafka less those that it still holds. Only sampled
records have a delivery callback, which costs about a microsecond, so records that fail before a sampled one does count
as acknowledged. After the first failure every record has a callback, and `Recorder.unwatched` has the number of those
without one.

After its stamp a record holds bytes that can't be compressed, unless the client compresses.
"""

import functools
import random
import threading
import time
from typing import TYPE_CHECKING, Final

from kafka_quotas.loadtest.clients.engine import RunClock
from kafka_quotas.loadtest.clients.errors import open_client, translated
from kafka_quotas.loadtest.clients.librdkafka.client import LONGEST_WAIT_S, LibrdkafkaClient
from kafka_quotas.loadtest.clients.librdkafka.settings import client_properties
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import Loop
from kafka_quotas.loadtest.record.delivery import SEQUENCE_SIZE, STAMP_SIZE, stamp

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

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
                full = sent == _BURST  # more may be due already: serve callbacks without a wait
                self._serve(0 if full else self._wait_s(now_ns, blocked=held >= self._backlog))
            self._finish()
        finally:
            self._close()

    def _wait_s(self, now_ns: int, *, blocked: bool) -> float:
        """Return the seconds to wait for acknowledgements.

        A full buffer drains while librdkafka is polled, but a due record needs this loop to send it.
        """
        if blocked:
            return LONGEST_WAIT_S
        return max(self.wait_until_due_s(now_ns), _SHORTEST_WAIT_S)

    def _send(self, count: int) -> int:
        """Hand up to `count` records to librdkafka and return the number that it took."""
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
                    produce(topic, value, on_delivery=functools.partial(self._delivered, index, *self._times(index)))
            index += 1
        except BufferError:  # librdkafka's own queue is full: the record is sent later
            pass
        self.recorder.sent = self.pacer.taken = index
        return index - first

    def _times(self, index: int) -> tuple[int, int]:
        sent_ns = time.monotonic_ns()
        return self.pacer.intended_ns(index, sent_ns), sent_ns

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

    def _serve(self, wait_s: float) -> None:
        self._producer.poll(wait_s)
        self._count(len(self._producer))

    def _count(self, held: int) -> None:
        recorder = self.recorder
        fresh = recorder.sent - held - recorder.acked - recorder.failures.total()
        if fresh > 0:
            recorder.acknowledged(time.monotonic_ns(), records=fresh, size=fresh * self.entity.record_size)

    def _finish(self) -> None:
        """Count the records that librdkafka still holds as unfinished."""
        self._serve(0)
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
    """Return how many bytes of records may wait in librdkafka, about a second's worth."""
    rates = [entity.quota]
    if entity.arrivals_per_second is not None:
        rates.append(float(entity.arrivals_per_second) * entity.record_size)
    known = [rate for rate in rates if rate is not None]
    return int(min(max(*known, _SMALLEST_BACKLOG), _LARGEST_BACKLOG)) if known else _LARGEST_BACKLOG
