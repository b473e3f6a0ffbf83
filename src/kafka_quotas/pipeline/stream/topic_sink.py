"""Live rows to a topic, each batch in one transaction.

Kafka's transactions do not cover our own checkpoint: after a crash between the two, the batch is run again. Every
transaction therefore commits, besides its records, the number of its batch, as the offset of a consumer group with the
stream's name. A batch that the group has passed is in the topic already. A consumer with
`isolation.level=read_committed` sees every batch once, whatever else is written to the topic.

**Source:** KIP-98, KIP-447.
"""

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.stream.source import TopicSource

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

_TIMEOUT_S: Final = 30.0
_KEY: Final = ("cluster", "broker_id", "quota_type", "user", "client_id")


class TopicSink:
    """Writes each row as JSON, keyed by its bucket, under one transactional id and consumer group."""

    def __init__(self, topic: TopicSource, *, name: str) -> None:
        self._topic = topic
        self._name = name
        self._producer: Producer | None = None
        self._group: Consumer | None = None
        self._next = 0

    def write(self, rows: pa.Table, *, batch_id: int) -> None:
        """Write the batch in one transaction, unless the topic has it already.

        Raises:
            KafkaQuotasError: The topic does not take the batch.
        """
        from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415 - only streams to a topic

        try:
            producer, group = self._open()
            if batch_id < self._next:
                return
            producer.begin_transaction()
            self._produce(producer, rows)
            passed = [TopicPartition(self._topic.topic, 0, batch_id + 1)]
            producer.send_offsets_to_transaction(passed, group.consumer_group_metadata(), _TIMEOUT_S)
            producer.commit_transaction(_TIMEOUT_S)
        except KafkaException as error:
            raise _failed(self._topic, error) from error
        self._next = batch_id + 1

    def close(self) -> None:
        """Close the consumer group."""
        if self._group is not None:
            self._group.close()

    def _produce(self, producer: "Producer", rows: pa.Table) -> None:
        for row in rows.to_pylist():
            key = json.dumps([row[name] for name in _KEY])
            while True:
                try:
                    producer.produce(self._topic.topic, json.dumps(row), key=key)
                except BufferError:
                    producer.poll(1.0)
                else:
                    break

    def _open(self) -> "tuple[Producer, Consumer]":
        """Return the producer and the group.

        Once the transactional id is initialised no other producer commits under it, which makes the group's offset
        final.
        """
        if self._producer is None or self._group is None:
            from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: PLC0415 - loads librdkafka

            settings = {**self._topic.properties, "bootstrap.servers": self._topic.bootstrap, "log_level": 0}
            producer = Producer({**settings, "transactional.id": self._name, "linger.ms": 20})
            producer.init_transactions(_TIMEOUT_S)
            group = Consumer({**settings, "group.id": self._name, "isolation.level": "read_committed"})
            (passed,) = group.committed([TopicPartition(self._topic.topic, 0)], timeout=_TIMEOUT_S)
            self._next = max(passed.offset, 0)  # below 0 where there is none
            self._producer, self._group = producer, group
        return self._producer, self._group


def _failed(topic: TopicSource, error: Exception) -> KafkaQuotasError:
    return KafkaQuotasError(f"cannot write to {topic}: {error}", hint="do the brokers of that topic run?")
