"""Every record of a topic of one partition, with the time at which the broker took it."""

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedRecord:
    """A record as the broker keeps it.

    `at_ms` is when it was appended.
    """

    value: bytes
    at_ms: int


def make_topic(bootstrap: str, topic: str, *, partitions: int = 1) -> None:
    """Make a topic without replicas whose records bear the broker's time.

    Raises:
        confluent_kafka.KafkaException: it can't be made.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(topic, partitions, 1, config={"message.timestamp.type": "LogAppendTime"})
    admin.create_topics([wanted])[topic].result(TIMEOUT_S)


def appended(bootstrap: str, topic: str) -> list[AppendedRecord]:
    """Return the records of the topic's one partition, in order.

    Raises:
        AssertionError: the topic's end was not reached in time.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.partition.eof": True})
    records: list[AppendedRecord] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while time.monotonic() < deadline_s:
            for message in consumer.consume(5000, 0.5):
                error = message.error()
                if error is None:
                    records.append(AppendedRecord(value=message.value() or b"", at_ms=message.timestamp()[1]))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return records
    finally:
        consumer.close()
    raise AssertionError("the topic's end was not reached")
