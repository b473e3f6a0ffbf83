"""Topics for tests: made, and read to their end, every record with the time at which the broker took it."""

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.processes.awaiting import await_true

TIMEOUT_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedRecord:
    """A record as the broker keeps it.

    `at_ms` is when it was appended.
    """

    value: bytes
    at_ms: int


def make_topic(bootstrap: str, topic: str, *, partitions: int = 1, append_time: bool = True) -> None:
    """Make a topic without replicas whose records bear the broker's time or their producer's, and wait for its leaders.

    Raises:
        confluent_kafka.KafkaException: it can't be made.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"message.timestamp.type": "LogAppendTime" if append_time else "CreateTime"}
    wanted = NewTopic(topic, partitions, 1, config=config)
    admin.create_topics([wanted])[topic].result(TIMEOUT_S)

    def has_leaders() -> bool:
        found = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        return len(found) == partitions and all(each.leader >= 0 for each in found.values())

    await_true(has_leaders, f"{topic} has its leaders")


def appended(bootstrap: str, topic: str, *, partitions: int = 1, **properties: str) -> list[AppendedRecord]:
    """Return the records of the topic's first partitions, each in its order, as a consumer with `properties` gets them.

    Raises:
        AssertionError: the topic's end was not reached in time.
    """
    settings = {name.replace("_", "."): value for name, value in properties.items()}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.partition.eof": True, **settings})
    records: list[AppendedRecord] = []
    ended: set[int | None] = set()
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while time.monotonic() < deadline_s:
            for message in consumer.consume(5000, 0.5):
                error = message.error()
                if error is None:
                    records.append(AppendedRecord(value=message.value() or b"", at_ms=message.timestamp()[1]))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
            if len(ended) == partitions:
                return records
    finally:
        consumer.close()
    raise AssertionError("the topic's end was not reached")
