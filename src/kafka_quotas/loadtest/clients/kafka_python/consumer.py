"""A kafka-python consumer under load: reads a topic's records over and over, alone or in a group."""

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kafka_quotas.loadtest.clients.engine import RunClock, WireCount
from kafka_quotas.loadtest.clients.kafka_python.client import KafkaPythonClient
from kafka_quotas.loadtest.clients.kafka_python.settings import PATIENT_MS, request_timeout_ms
from kafka_quotas.loadtest.clients.librdkafka.topic_view import PartitionRange
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan

if TYPE_CHECKING:
    from kafka import KafkaConsumer

_POLL_MS: Final = 50
_MOST: Final = 500
_ANSWER_HEAD: Final = 90  # about this many bytes: header, names, offsets


class KafkaPythonConsumer(KafkaPythonClient):
    """One kafka-python consumer of a run, for the partitions that held records before it."""

    def __init__(
        self, plan: LoadPlan, entity: ClientLoad, clock: RunClock, partitions: Sequence[PartitionRange]
    ) -> None:
        super().__init__(plan, entity, clock)
        self._partitions = tuple(partitions)
        self._ends = {each.partition: each.high for each in partitions}

    def opened(self) -> "KafkaConsumer":
        """Open the library's consumer with its partitions or its group."""
        from kafka import KafkaConsumer  # noqa: PLC0415 - only its own clients load the library
        from kafka.structs import TopicPartition  # noqa: PLC0415

        most_bytes = self.entity.request_bytes
        timeout_ms = request_timeout_ms(self.plan, self.entity, default_ms=PATIENT_MS)
        client: Any = KafkaConsumer(
            **self.settings,
            group_id=self.entity.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_bytes=most_bytes,
            max_partition_fetch_bytes=most_bytes,
            fetch_max_wait_ms=min(_POLL_MS, timeout_ms - 1),  # the library refuses a wait as long as the timeout
            request_timeout_ms=timeout_ms,
        )
        if self.entity.group is not None:
            client.subscribe([self.entity.topic])
            return client
        client.assign([TopicPartition(self.entity.topic, each.partition) for each in self._partitions])
        for each in self._partitions:
            client.seek(TopicPartition(self.entity.topic, each.partition), each.low)
        return client

    def work(self, client: "KafkaConsumer", stop: threading.Event) -> None:
        """Read records until the end of the run."""
        while self.takes_part(stop):
            now_ns = time.monotonic_ns()
            self.count_dropped(now_ns)
            due = self.pacer.due(now_ns, most=_MOST)
            if due > 0:
                self._take(client, client.poll(timeout_ms=_POLL_MS, max_records=due))
            else:
                self.wait(stop)
            self.count_throttles()

    def closed(self, client: "KafkaConsumer") -> None:
        """Compute `wire` from the library's averages and close the consumer."""
        metrics: Any = client.metrics()
        averages = metrics.get("consumer-fetch-manager-metrics", {})
        size, records = averages.get("fetch-size-avg", 0.0), averages.get("records-per-request-avg", 0.0)
        if size > 0 and records > 0 and self.recorder.acked:
            payload = records * self.recorder.acked_bytes / self.recorder.acked
            self.wire = WireCount(wire_bytes=round(size + _ANSWER_HEAD), payload_bytes=max(round(payload), 1))
        client.close(autocommit=False)

    def _take(self, client: "KafkaConsumer", polled: Any) -> None:
        """Record the records of a poll, and restart partitions that are at their end."""
        now_ns = time.monotonic_ns()
        records = size = 0
        for partition, messages in polled.items():
            records += len(messages)
            size += sum(len(message.value or b"") for message in messages)
            if messages[-1].offset + 1 >= self._ends.get(partition.partition, 0):
                client.seek_to_beginning(partition)
        if records:
            due_ns = self.pacer.next_ns(now_ns)
            self.pacer.taken += records
            self.recorder.sent += records
            self.recorder.acknowledged(now_ns, records=records, size=size)
            self.recorder.arrival(intended_ns=min(due_ns, now_ns), arrived_ns=now_ns)
            self.pacer.answered(now_ns)
