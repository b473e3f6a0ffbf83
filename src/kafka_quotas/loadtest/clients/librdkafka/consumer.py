"""A consumer under load: reads a topic's records over and over, as fast as it can or on a schedule.

It restarts at the first record after the last, so that any topic with a few records lasts for the whole run. It
assigns its partitions by hand, or gets them as a member of a group, and commits no offsets.
"""

import threading
import time
from typing import TYPE_CHECKING

from kafka_quotas.loadtest.clients.engine import RunClock
from kafka_quotas.loadtest.clients.errors import open_client
from kafka_quotas.loadtest.clients.librdkafka.client import LONGEST_WAIT_S, LibrdkafkaClient
from kafka_quotas.loadtest.clients.librdkafka.settings import client_properties
from kafka_quotas.loadtest.clients.librdkafka.topic_view import PartitionRange
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_BATCH = 500
_GATHER_S = 0.01  # librdkafka's wait to fill a batch, and so the precision of arrival times


class ConsumerLoad(LibrdkafkaClient):
    """One librdkafka consumer of a run."""

    def __init__(
        self, plan: LoadPlan, entity: ClientLoad, clock: RunClock, partitions: tuple[PartitionRange, ...]
    ) -> None:
        super().__init__(plan, entity, clock)
        self._every = self.latency_every = self.sample_every()
        self._partitions = partitions
        self._last = {each.partition: each.high - 1 for each in partitions}
        self._consumer = self._open()

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

    def _open(self) -> "Consumer":
        from confluent_kafka import Consumer  # noqa: PLC0415 - loads librdkafka

        return open_client(Consumer, {**client_properties(self.plan, self.entity), **self.callbacks()})

    def _begin(self) -> None:
        """Take the partitions, or join the group that assigns them."""
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - loaded by now

        if self.entity.group is not None:
            self._consumer.subscribe([self.entity.topic])
            return
        self._consumer.assign(
            [TopicPartition(self.entity.topic, each.partition, each.low) for each in self._partitions]
        )

    def _take(self, messages: "list[Message]") -> None:
        """Record the records of a batch, and restart partitions that are at their end."""
        now_ns = time.monotonic_ns()
        size = records = 0
        for message in messages:
            error = message.error()
            if error is not None:
                self.on_error(error)
                continue
            records += 1
            size += len(message)
            if (message.offset() or 0) >= self._last[message.partition() or 0]:
                self._start_again(message)
        if records:
            self._record_arrivals(self.pacer.taken, records, now_ns)
            self.pacer.taken += records
            self.recorder.sent += records
            self.recorder.acknowledged(now_ns, records=records, size=size)

    def _record_arrivals(self, first: int, count: int, now_ns: int) -> None:
        if self.pacer.is_unpaced:
            return
        for index in range(first, first + count):
            if index % self._every == 0:
                self.recorder.arrival(intended_ns=self.pacer.intended_ns(index, now_ns), arrived_ns=now_ns)

    def _start_again(self, message: "Message") -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition  # noqa: PLC0415 - loaded by now

        self._consumer.seek(TopicPartition(self.entity.topic, message.partition() or 0, OFFSET_BEGINNING))
