"""Where the rows of a batch go: a folder of Parquet, a topic, or a viewer.

Contract: after a crash a batch may be written again, with equal rows. The target then holds them once.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.buckets.entities import NAMES
from kafka_quotas.pipeline.stream.source import TopicSource

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

_TIMEOUT_S: Final = 30.0


class Sink(Protocol):
    """A target for the rows of `live`, batch by batch."""

    def write(self, rows: pa.Table, *, batch_id: int) -> None:
        """Write the rows of a batch, once even if the batch comes again.

        Raises:
            OSError: A file can't be written.
            KafkaQuotasError: The target does not take the rows.
        """

    def close(self) -> None:
        """Release the target after the last batch."""


class FolderSink:
    """Writes `FOLDER/batch=<id>/part-0.parquet` and replaces the rows of a batch that comes again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, rows: pa.Table, *, batch_id: int) -> None:
        """Write the rows as the only content of the batch's folder."""
        replace_batch(self._folder, rows, batch_id=batch_id)

    def close(self) -> None:
        """Do nothing, since every batch is complete on its own."""


class ShowSink:
    """Hands the rows to a function that shows them, again for a batch that comes again."""

    def __init__(self, show: Callable[[pa.Table], None]) -> None:
        self._show = show

    def write(self, rows: pa.Table, *, batch_id: int) -> None:
        """Show the rows."""
        del batch_id
        self._show(rows)

    def close(self) -> None:
        """Do nothing, since there is nothing to release."""


def replace_batch(folder: Path, rows: pa.Table, *, batch_id: int) -> None:
    """Write the rows as the only content of `batch=<id>` in the folder, by renaming a finished folder.

    Raises:
        OSError: A file can't be written.
    """
    new = folder / f".new-batch={batch_id}"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    pq.write_table(rows, new / "part-0.parquet", compression="zstd")
    _replace_folder(new, folder / f"batch={batch_id}")


def _replace_folder(new: Path, target: Path) -> None:
    old = target.with_name(f".old-{target.name}")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    try:
        new.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


class TopicSink:
    """Writes each batch to a topic in one transaction: a row is a JSON record, keyed by its bucket.

    Kafka's transactions do not cover our own checkpoint: after a crash between the two, the batch is run again. Every
    transaction therefore commits, besides its records, the number of its batch, as the offset of a consumer group with
    the stream's name. A batch that the group has passed is in the topic already. A consumer with
    `isolation.level=read_committed` sees every batch once, whatever else is written to the topic.

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
            self._next = max(passed.offset, 0)  # below 0 where there is none
            self._producer, self._group = producer, group
        return self._producer, self._group


def _failed(topic: TopicSource, error: Exception) -> KafkaQuotasError:
    return KafkaQuotasError(f"cannot write to {topic}: {error}", hint="do the brokers of that topic run?")
