"""Live rows to a topic, each batch in one transaction.

What Kafka has no transaction for is our own checkpoint: a crash may fall between the two. So every record carries its
batch's number, and after a start the topic's end is read to learn which batch was the last to be committed.
Whoever reads the topic with `isolation.level=read_committed` sees every batch once. **Source:** KIP-98.
"""

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.stream.source import TopicSource

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer, TopicPartition

_HEADER: Final = "kafka-quotas-batch"
_TIMEOUT_S: Final = 30.0
_TAIL_RECORDS: Final = 5
"""Looked at from a partition's end: the last record, and the markers of transactions behind it."""


class TopicSink:
    """Writes each row as JSON, keyed by its bucket; `name` tells this stream's records from others'."""

    def __init__(self, topic: TopicSource, *, name: str) -> None:
        self._topic = topic
        self._name = name
        self._producer: Producer | None = None
        self._committed = -1

    def write(self, rows: pa.Table, *, batch_id: int) -> None:
        """Nothing; the batch is in the topic once. Raises `KafkaQuotasError` where the topic does not take it."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - only streams to a topic

        try:
            producer = self._open()
            if batch_id <= self._committed:
                return
            producer.begin_transaction()
            for row in rows.to_pylist():
                key = json.dumps([row[name] for name in ("cluster", "broker_id", "quota_type", "user", "client_id")])
                headers: dict[str, str | bytes | None] = {_HEADER: f"{self._name} {batch_id}"}
                while True:
                    try:
                        producer.produce(self._topic.topic, json.dumps(row), key=key, headers=headers)
                    except BufferError:
                        producer.poll(1.0)
                    else:
                        break
            producer.commit_transaction(_TIMEOUT_S)
        except KafkaException as error:
            raise _failed(self._topic, error) from error
        self._committed = batch_id

    def close(self) -> None:
        """Nothing; what was committed is delivered already."""

    def _open(self) -> "Producer":
        """The producer; nobody else with this name can commit any more, so the topic's end is certain."""
        if self._producer is None:
            from confluent_kafka import Producer  # noqa: PLC0415

            settings = {**self._topic.properties, "bootstrap.servers": self._topic.bootstrap, "log_level": 0}
            producer = Producer({**settings, "transactional.id": self._name, "linger.ms": 20})
            producer.init_transactions(_TIMEOUT_S)
            self._committed = _last_committed(self._topic, self._name)
            self._producer = producer
        return self._producer


def _last_committed(topic: TopicSource, name: str) -> int:
    """The highest batch of this name at the end of any partition, -1 for none."""
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

    settings = {**topic.properties, "bootstrap.servers": topic.bootstrap, "log_level": 0, "group.id": name}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    try:
        found = consumer.list_topics(topic.topic, timeout=_TIMEOUT_S).topics[topic.topic]
        partitions = [TopicPartition(topic.topic, number) for number in found.partitions]
        return max((_last_in(consumer, each, name) for each in partitions), default=-1)
    finally:
        consumer.close()


def _last_in(consumer: "Consumer", partition: "TopicPartition", name: str) -> int:
    low, high = consumer.get_watermark_offsets(partition, timeout=_TIMEOUT_S)
    partition.offset = max(low, high - _TAIL_RECORDS)
    if partition.offset >= high:
        return -1
    consumer.assign([partition])
    last, deadline_s = -1, time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            last = max(last, _batch_of(dict(message.headers() or ()), name))
        position = consumer.position([partition])[0].offset
        if position >= high:
            break
    return last


def _batch_of(headers: Mapping[str, str | bytes | None], name: str) -> int:
    value = headers.get(_HEADER) or b""
    text = value if isinstance(value, str) else value.decode("utf-8", "replace")
    owner, _, number = text.rpartition(" ")
    return int(number) if owner == name and number.isdigit() else -1


def _failed(topic: TopicSource, error: Exception) -> KafkaQuotasError:
    return KafkaQuotasError(f"cannot write to {topic}: {error}", hint="do the brokers of that topic run?")
