"""Where what a batch found goes: a Delta table, a topic, a viewer, or the events of a data folder.

Contract: executors write. After a crash a batch may be written again, with equal rows. The target then holds them once.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.engine.spark_tasks import even_places, in_tasks
from kafka_quotas.pipeline.ingest.commits import merge_small_files
from kafka_quotas.pipeline.stream.batch import Batch
from kafka_quotas.pipeline.stream.lines import pack_lines
from kafka_quotas.pipeline.stream.source import LINE_COLUMNS, TopicSource
from kafka_quotas.pipeline.tables.lake import Lake, hadoop_url
from kafka_quotas.pipeline.tables.schemas import LIVE, NAMES, PACKED_EVENTS

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from pyspark.sql import DataFrame

NEAREST: Final = 20
"""Buckets of a batch that are shown."""
USED_SHARE: Final = """CASE WHEN quota IS NULL THEN -1 WHEN quota > 0 THEN rate / quota
    WHEN rate > 0 THEN CAST('infinity' AS DOUBLE) ELSE 0 END"""
"""The share of a limit that a rate takes: infinite above a limit of 0, and -1 without a limit."""
_MERGED_EVERY: Final = 16
"""Batches between merges of the small files that they leave."""
_TIMEOUT_S: Final = 30.0


def write_table(rows: "DataFrame", url: str, batch: Batch) -> None:
    """Append rows to a Delta table in one commit, which Delta leaves out where it has the batch."""
    writer = rows.write.format("delta").option("txnAppId", _name(batch)).option("txnVersion", batch.batch_id)
    writer.mode("append").save(hadoop_url(url))


def add_events(lake: Lake, lines: "DataFrame", batch: Batch) -> None:
    """Add the events of a batch's lines to a data folder, and merge small files there now and then."""
    pack = partial(pack_lines, now_ms=batch.now_ms)
    rows = in_tasks(lines.select(*LINE_COLUMNS), pack, PACKED_EVENTS.spark_schema())
    write_table(rows, lake.place(PACKED_EVENTS), batch)
    if batch.batch_id % _MERGED_EVERY == _MERGED_EVERY - 1:
        merge_small_files(lake)


def nearest(rows: "DataFrame") -> pa.Table:
    """Return the rows of the buckets nearest to their limits, those without a limit last."""
    shown = rows.orderBy(functions.expr(USED_SHARE).desc()).limit(NEAREST)
    return shown.select(*LIVE.column_names).toArrow()


def send_rows(rows: "DataFrame", topic: TopicSource, batch: Batch) -> None:
    """Write the rows of a batch to a topic, each part in a transaction of its own."""
    send = partial(_send_parts, topic=topic, name=_name(batch), batch_id=batch.batch_id)
    own = rows.select("part", *LIVE.column_names).repartition(batch.parts, even_places("part", batch.parts))
    in_tasks(own.sortWithinPartitions("part"), send, "part int").collect()


def _name(batch: Batch) -> str:
    return f"kafka-quotas-stream-{batch.stream}"


def _send_parts(
    batches: Iterable[pa.RecordBatch], *, topic: TopicSource, name: str, batch_id: int
) -> Iterator[pa.RecordBatch]:
    rows = (row for each in batches for row in each.to_pylist())
    for part, own in groupby(rows, key=lambda row: row.pop("part")):
        write_once(topic, own, name=f"{name}-{part}", batch_id=batch_id)
        yield pa.record_batch([pa.array([part], pa.int32())], names=["part"])


def write_once(topic: TopicSource, rows: Iterable[Mapping[str, Any]], *, name: str, batch_id: int) -> None:
    """Write a part's rows of a batch to a topic in one transaction, as JSON keyed by the bucket.

    Kafka's transactions do not cover our own checkpoint: after a crash between the two the batch is written again, and
    so it is where Spark runs a task twice. Every transaction therefore commits, besides its records, the number of its
    batch, as the offset of a consumer group with the part's name. A batch that the group has passed is in the topic
    already. A consumer with `isolation.level=read_committed` sees every batch once, whatever else is written there.

    **Source:** KIP-98, KIP-447.
    """
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition  # noqa: PLC0415 - loads librdkafka

    settings = {**topic.properties, "bootstrap.servers": topic.bootstrap, "log_level": 0}
    try:
        producer = Producer({**settings, "transactional.id": name, "linger.ms": 20})
        producer.init_transactions(_TIMEOUT_S)  # from here on no other commits, which makes the group's offset final
        group = Consumer({**settings, "group.id": name, "isolation.level": "read_committed"})
        try:
            (passed,) = group.committed([TopicPartition(topic.topic, 0)], timeout=_TIMEOUT_S)
            if batch_id < passed.offset:  # which is below 0 if there is none
                return
            producer.begin_transaction()
            _produce(producer, topic.topic, rows)
            passed.offset = batch_id + 1
            producer.send_offsets_to_transaction([passed], group.consumer_group_metadata(), _TIMEOUT_S)
            producer.commit_transaction(_TIMEOUT_S)
        finally:
            group.close()
    except KafkaException as error:
        raise KafkaQuotasError(f"cannot write to {topic}: {error}", hint="do the brokers of that topic run?") from error


def _produce(producer: "Producer", topic: str, rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        key = json.dumps([row[name] for name in NAMES])
        while True:
            try:
                producer.produce(topic, json.dumps(row), key=key)
            except BufferError:
                producer.poll(1.0)
            else:
                break
