"""The batches of a stream: their tasks on Spark, the table that keeps the last one, and where what they found goes.

Executors parse, find buckets and keep the state. A batch replaces the one before it in a Delta table beside the
checkpoint, whose rows have a part each and what was found:

    state        the part's buckets after the batch (`state.PartState`), in `content`
    live         a row of the table `live`
    unreadable   a line that was set aside, in `raw` and `reason`
    summary      the figures of the part, as JSON in `content`

Executors write the rows to their target as well: a Delta table, a topic, a viewer, or the events of a data folder.

Invariants: a batch counts once Delta has it, with the number of the batch as the transaction's. What a Connect server
completes for a command that was killed, while the next one runs already, therefore counts once. After a crash a batch
may be written to its target again, with equal rows, which this then holds once.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.pandas.types import from_arrow_schema

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.spark_tasks import even_places, in_tasks, is_connect
from kafka_quotas.pipeline.ingest.commits import merge_small_files
from kafka_quotas.pipeline.stream.lines import UNREADABLE, ReadEvents, pack_lines, without_future
from kafka_quotas.pipeline.stream.source import LINE_COLUMNS, TopicSource
from kafka_quotas.pipeline.stream.state import Broker, Partitioner, PartState
from kafka_quotas.pipeline.tables.arrow import packed, unpacked
from kafka_quotas.pipeline.tables.lake import Lake, hadoop_url, is_url
from kafka_quotas.pipeline.tables.schemas import LIVE, NAMES, PACKED_EVENTS

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from pyspark.sql import DataFrame, SparkSession

STATE, CHARGES, EVENTS, LIVE_ROWS, SET_ASIDE, SUMMARY = "state", "charges", "events", "live", "unreadable", "summary"
HINT: Final = "name another --checkpoint to begin anew"
_PIECE: Final = pa.schema([("part", pa.int32()), ("found", pa.string()), ("content", pa.binary())])
"""Columns of what a task found for a part."""
_FOUND: Final = pa.schema([*_PIECE, *UNREADABLE, *(each.with_nullable(nullable=True) for each in LIVE.arrow_schema())])
"""Columns of what a batch found, of which each kind of row has its own."""
_TYPES: Final = from_arrow_schema(_FOUND)
_PROPERTIES: Final = {
    "delta.deletedFileRetentionDuration": "interval 0 hours",
    "delta.logRetentionDuration": "interval 1 days",
}
_VACUUMED_EVERY: Final = 8
"""Batches between removals of the files of those before."""
_UNCHECKED: Final = "spark.databricks.delta.retentionDurationCheck.enabled"
_ROWS_IN_BATCH: Final = 1 << 14
NEAREST: Final = 20
"""Buckets of a batch that are shown."""
USED_SHARE: Final = """CASE WHEN quota IS NULL THEN -1 WHEN quota > 0 THEN rate / quota
    WHEN rate > 0 THEN CAST('infinity' AS DOUBLE) ELSE 0 END"""
"""The share of a limit that a rate takes: infinite above a limit of 0, and -1 without a limit."""
_MERGED_EVERY: Final = 16
"""Batches between merges of the small files that they leave."""
_TIMEOUT_S: Final = 30.0
ReadBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[ReadEvents]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch, with its figures once it is kept."""

    batch_id: int
    stream: str
    """Identity of the stream, which a new one with the same checkpoint does not share."""
    parts: int
    """Number of parts of the state, fixed at the stream's start."""
    window: tuple[int, int]
    """Samples and seconds of the quota window."""
    now_ms: int
    """Time at which the batch is reckoned, in ms since 1970."""
    clocks: Mapping[Broker, int]
    """The latest time of each broker's events in ms since 1970, those of the batch included once it is kept."""
    events: int = 0
    """Events that could be read, late ones included."""
    late: int = 0
    """Events that came too late for the state."""
    unreadable: int = 0
    """Lines that are no events, and events from the future."""
    buckets: int = 0
    """Buckets with events in the batch."""

    @classmethod
    def of(cls, summaries: Sequence[str]) -> "Batch | None":
        """Return the batch with these summaries of its parts, None without any."""
        found = [json.loads(each) for each in summaries]
        if not found:
            return None
        clocks: dict[Broker, int] = {}
        for cluster, broker, at_ms in (clock for each in found for clock in each["clocks"]):
            clocks[cluster, broker] = max(at_ms, clocks.get((cluster, broker), at_ms))
        figures = {name: sum(each[name] for each in found) for name in ("events", "late", "unreadable", "buckets")}
        return cls(**found[0] | figures | {"parts": len(found), "clocks": clocks, "window": tuple(found[0]["window"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What the tasks of a batch need to know."""

    batch: Batch
    """The batch, with the clocks of those before it."""
    quotas: Proposal
    """Quotas in force."""
    lateness_ms: int
    """How far behind its broker's clock an event may be."""


class BatchTable:
    """The Delta table with the last batch of a stream."""

    def __init__(self, session: "SparkSession", url: str) -> None:
        self._session = session
        self._url = url
        self._place = hadoop_url(url)
        none = session.createDataFrame([], _TYPES)
        none.write.format("delta").options(**_PROPERTIES).partitionBy("found").mode("ignore").save(self._place)

    def last(self) -> Batch | None:
        """Return the batch that the table has, None before any."""
        return Batch.of([bytes(row["content"]).decode() for row in self.rows(SUMMARY).select("content").collect()])

    def rows(self, kind: str) -> "DataFrame":
        """Return the rows of one kind that the last batch found."""
        return self._session.read.format("delta").load(self._place).where(functions.col("found") == kind)

    def take(self, values: "DataFrame", read: ReadBatches, plan: BatchPlan) -> Batch:
        """Compute a batch of lines or events, as `read` reads them, in place of the one before."""
        writer = self._moved_on(values, read, plan).write.format("delta").mode("overwrite")
        try:
            writer.option("txnAppId", plan.batch.stream).option("txnVersion", plan.batch.batch_id).save(self._place)
        except Exception:  # py4j's, gRPC's and Spark's own, of many classes
            if (kept := self.last()) is None or kept.batch_id != plan.batch.batch_id:
                raise  # else the server did for a command that was killed what this one was about to do
        if not (is_url(self._url) or is_connect(self._session) or any(Path(self._url).rglob("*.parquet"))):
            raise KafkaQuotasError(
                f"executors don't write to the {self._url} that this machine reads",
                hint="on a cluster --checkpoint and --out are URLs or on a file system that all machines share",
            )
        if (found := self.last()) is None or found.batch_id != plan.batch.batch_id:
            raise KafkaQuotasError(f"{self._url} lacks the state of batch {plan.batch.batch_id}", hint=HINT)
        if plan.batch.batch_id % _VACUUMED_EVERY == _VACUUMED_EVERY - 1:
            self._session.conf.set(_UNCHECKED, "false")  # nobody reads the batches before this one
            self._session.sql(f"VACUUM delta.`{self._place.replace('`', '``')}` RETAIN 0 HOURS")
        return found

    def _moved_on(self, values: "DataFrame", read: ReadBatches, plan: BatchPlan) -> "DataFrame":
        if plan.batch.batch_id:
            before = self.rows(STATE).select("part", "found", "content")
        else:
            parts = self._session.range(plan.batch.parts)
            before = parts.selectExpr("cast(id as int) part", f"'{STATE}' found", "cast('' as binary) content")
        pieces = in_tasks(values, partial(_pieces, read=read, plan=plan), from_arrow_schema(_PIECE))
        place = even_places("part", plan.batch.parts)
        placed = before.union(pieces).repartition(plan.batch.parts, place).sortWithinPartitions("part")
        return in_tasks(placed, partial(_found, plan=plan), _TYPES)


def _pieces(batches: Iterable[pa.RecordBatch], *, read: ReadBatches, plan: BatchPlan) -> Iterator[pa.RecordBatch]:
    """Yield the charges of values by part, and to the first part what was counted."""
    events, set_aside = 0, [UNREADABLE.empty_table()]

    def tables() -> Iterator[pa.Table]:
        nonlocal events
        for each in read(batches):
            found = without_future(each, plan.batch.now_ms)
            events += found.charges.num_rows
            set_aside.append(found.unreadable)
            yield found.charges

    for part, content in Partitioner(plan.quotas, parts=plan.batch.parts).pieces(tables()):
        yield _piece(part, CHARGES, content)
    yield _piece(0, EVENTS, str(events).encode())
    yield _piece(0, SET_ASIDE, packed(pa.concat_tables(set_aside)))


def _piece(part: int, kind: str, content: bytes) -> pa.RecordBatch:
    return pa.record_batch({"part": [part], "found": [kind], "content": [content]}, schema=_PIECE)


def _found(batches: Iterable[pa.RecordBatch], *, plan: BatchPlan) -> Iterator[pa.RecordBatch]:
    found = (row for batch in batches for row in batch.to_pylist())
    for part, own in groupby(found, key=itemgetter("part")):
        pieces: dict[str, list[bytes]] = {each: [] for each in (STATE, CHARGES, EVENTS, SET_ASIDE)}
        for row in own:
            pieces[row["found"]].append(row["content"])
        for kind, rows in _of_part(pieces, plan):
            known = {"part": pa.repeat(pa.scalar(part, pa.int32()), rows.num_rows)}
            known |= {"found": pa.repeat(kind, rows.num_rows)} | dict(zip(rows.column_names, rows.columns, strict=True))
            columns = [known.get(each.name, pa.nulls(rows.num_rows, each.type)) for each in _FOUND]
            yield from pa.table(columns, _FOUND).combine_chunks().to_batches(max_chunksize=_ROWS_IN_BATCH)


def _of_part(pieces: Mapping[str, list[bytes]], plan: BatchPlan) -> Iterator[tuple[str, pa.Table]]:
    batch = plan.batch
    samples, window_s = batch.window
    state = PartState(plan.quotas, window=QuotaWindow(samples=samples, window_s=window_s))
    for content in filter(None, pieces[STATE]):
        state.load(content)
    horizons = {broker: at_ms - plan.lateness_ms for broker, at_ms in batch.clocks.items()}
    live = state.take(pieces[CHARGES], horizons, batch_id=batch.batch_id)
    refused = pa.concat_tables([UNREADABLE.empty_table(), *map(unpacked, pieces[SET_ASIDE])])
    figures = {
        "clocks": [[*broker, at_ms] for broker, at_ms in state.clocks_ms().items()],
        "events": sum(map(int, pieces[EVENTS])),
        "late": sum(live["late_events"].to_pylist()),
        "unreadable": refused.num_rows,
        "buckets": live.num_rows,
    }
    summary = {each.name: getattr(batch, each.name) for each in fields(batch)} | figures
    yield LIVE_ROWS, live
    yield SET_ASIDE, refused
    yield from ((STATE, _content(state.dump())), (SUMMARY, _content(json.dumps(summary).encode())))


def _content(content: bytes) -> pa.Table:
    return pa.table({"content": pa.array([content], pa.binary())})


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
