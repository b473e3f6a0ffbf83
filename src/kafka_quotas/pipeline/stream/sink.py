"""Where the rows of a batch go: a Delta table, a topic, or a viewer.

Contract: executors write. After a crash a batch may be written again, with equal rows. The target then holds them once.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.engine.spark_tasks import content_row, in_tasks, rows_of
from kafka_quotas.pipeline.stream.batch_files import Commit, unpacked_rows
from kafka_quotas.pipeline.stream.source import TopicSource
from kafka_quotas.pipeline.tables.arrow import packed, unpacked
from kafka_quotas.pipeline.tables.lake import hadoop_url
from kafka_quotas.pipeline.tables.results import NAMES
from kafka_quotas.pipeline.tables.schemas import LIVE

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from pyspark.sql import DataFrame

NEAREST: Final = 20
"""Buckets of a batch that are shown."""
_TIMEOUT_S: Final = 30.0
_CONTENT: Final = "part int, content binary"


class Sink(Protocol):
    """A target for the rows of `live`, batch by batch."""

    def write(self, rows: "DataFrame", commit: Commit) -> None:
        """Write the rows of a batch, once even if the batch comes again.

        `rows` has the columns part and content, an Arrow stream of the part's rows.
        """


class TableSink:
    """Appends the rows to a Delta table, with the batch as Delta's own transaction identifier."""

    def __init__(self, url: str, columns: pa.Schema = LIVE.arrow_schema()) -> None:
        self._url = url
        self._columns = columns

    def write(self, rows: "DataFrame", commit: Commit) -> None:
        """Append the rows in one commit, which Delta leaves out where it has the batch."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - loads PySpark

        writer = unpacked_rows(rows.select("content"), from_arrow_schema(self._columns)).write.format("delta")
        writer = writer.option("txnAppId", f"kafka-quotas-stream-{commit.stream}").option("txnVersion", commit.batch_id)
        writer.mode("append").save(hadoop_url(self._url))


class ShowSink:
    """Hands the buckets nearest to their limits to a function, again for a batch that comes again."""

    def __init__(self, show: Callable[[pa.Table, int], None]) -> None:
        self._show = show

    def write(self, rows: "DataFrame", commit: Commit) -> None:
        """Show the rows of the nearest buckets, and how many there are in all."""
        found = in_tasks(rows, _nearest_of_parts, _CONTENT).collect()
        tables = [unpacked(pa.py_buffer(row["content"])) for row in found]
        if tables:
            self._show(nearest(pa.concat_tables(tables)), commit.buckets)


class TopicsSink:
    """Writes to a topic, each part by a `TopicSink` of its own in a task."""

    def __init__(self, topic: TopicSource) -> None:
        self._topic = topic

    def write(self, rows: "DataFrame", commit: Commit) -> None:
        """Write each part in a transaction."""
        name = f"kafka-quotas-stream-{commit.stream}"
        send = partial(_send_parts, topic=self._topic, name=name, batch_id=commit.batch_id)
        in_tasks(rows, send, "part int").collect()


def nearest(live: pa.Table) -> pa.Table:
    """Return the rows of the buckets nearest to their limits, those without a limit last."""
    shares = [used_share(*pair) for pair in zip(live["rate"].to_pylist(), live["quota"].to_pylist(), strict=True)]
    ranked = sorted(range(live.num_rows), key=shares.__getitem__, reverse=True)
    return live.take(pa.array(ranked[:NEAREST], pa.int64()))


def used_share(rate: float, quota: float | None) -> float:
    """Return the share of a limit that a rate takes: infinite above a limit of 0, and -1 without a limit."""
    if quota is None:
        return -1.0
    if quota == 0:
        return inf if rate > 0 else 0.0
    return rate / quota


def _nearest_of_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for part, content in rows_of(batches):
        yield content_row({"part": part}, packed(nearest(unpacked(content))))


def _send_parts(
    batches: Iterable[pa.RecordBatch], *, topic: TopicSource, name: str, batch_id: int
) -> Iterator[pa.RecordBatch]:
    for part, content in rows_of(batches):
        sink = TopicSink(topic, name=f"{name}-{part}")
        try:
            sink.write(unpacked(content), batch_id=batch_id)
        finally:
            sink.close()
        yield pa.record_batch([pa.array([part], pa.int32())], names=["part"])


class TopicSink:
    """Writes a part's rows of each batch to a topic in one transaction, as JSON keyed by the bucket.

    Kafka's transactions do not cover our own checkpoint: after a crash between the two the batch is written again, and
    so it is where Spark runs a task twice. Every transaction therefore commits, besides its records, the number of its
    batch, as the offset of a consumer group with the sink's name. A batch that the group has passed is in the topic
    already. A consumer with `isolation.level=read_committed` sees every batch once, whatever else is written there.

    **Source:** KIP-98, KIP-447.
    """

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
            key = json.dumps([row[name] for name in NAMES])
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
            self._next = max(passed.offset, 0)  # below 0 if there is none
            self._producer, self._group = producer, group
        return self._producer, self._group


def _failed(topic: TopicSource, error: Exception) -> KafkaQuotasError:
    return KafkaQuotasError(f"cannot write to {topic}: {error}", hint="do the brokers of that topic run?")
