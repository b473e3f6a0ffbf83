"""The source of a stream of events: a topic, or a folder of the daemon's event log or of tables.

Spark reads topics with jars whose coordinates follow from the installed PySpark.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.tables.lake import Lake, hadoop_url, lake_url
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS, PACKED_EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINE_COLUMNS: Final = ("value", "src_file", "src_offset")
"""Columns of lines: each with its file or partition, and its place there."""
_POLLING: Final = {"max.poll.records": "20000", "max.partition.fetch.bytes": "8388608"}
"""Consumer settings for a topic that is read as fast as can be; Kafka's own suit one that is polled for news."""


SCHEME: Final = "kafka://"
_HINT: Final = "kafka://HOST:PORT/TOPIC, a folder of .jsonl files, or one that ingest writes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """A topic with an event of the daemon's log per record."""

    bootstrap: str
    topic: str
    from_beginning: bool = True
    may_lose: bool = False
    """Whether to continue where records were deleted before they were read."""
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Kafka client properties, for logins."""

    def __str__(self) -> str:
        return f"{SCHEME}{self.bootstrap}/{self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSource:
    """A folder that grows: of the daemon's `*.jsonl`, or of the Delta table `events`."""

    folder: Path
    is_delta: bool

    def __str__(self) -> str:
        return str(self.folder)


Source = TopicSource | FolderSource


def parse_topic(text: str) -> TopicSource:
    """Return the topic that `kafka://HOST:PORT/TOPIC` names.

    Raises:
        UsageError: The text has another form.
    """
    bootstrap, _, topic = text.removeprefix(SCHEME).partition("/")
    if not text.startswith(SCHEME) or not bootstrap or not topic or "/" in topic:
        raise UsageError(f"not a topic: {text!r}", hint="for example kafka://127.0.0.1:9092/quota-events")
    return TopicSource(bootstrap=bootstrap, topic=topic)


def parse_source(text: str) -> Source:
    """Return the source that a text names.

    Raises:
        UsageError: The folder does not exist, or the topic can't be parsed.
    """
    if text.startswith(SCHEME):
        return parse_topic(text)
    folder = Path(text)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {text}", hint=_HINT)
    if (ingested := Lake(url=lake_url(text))).exists():
        return FolderSource(folder=Path(ingested.place(PACKED_EVENTS)), is_delta=True)
    return FolderSource(folder=folder.absolute(), is_delta=False)


def read_stream(session: "SparkSession", source: Source, *, batch_size: int, has_places: bool) -> "DataFrame":
    """Open the stream: a column `value` of lines or all of `LINE_COLUMNS`, or columns of packed events.

    `batch_size` is the largest batch, in records of a topic or files of a folder. Spark computes the places of lines
    whether or not anything reads them.
    """
    reader = session.readStream
    if isinstance(source, TopicSource):
        reader = reader.format("kafka").option("kafka.bootstrap.servers", source.bootstrap)
        reader = reader.option("subscribe", source.topic)
        for name, value in {**_POLLING, **source.properties}.items():
            reader = reader.option(f"kafka.{name}", value)
        reader = reader.option("failOnDataLoss", str(not source.may_lose).lower())
        reader = reader.option("startingOffsets", "earliest" if source.from_beginning else "latest")
        places = ("concat(topic, '-', partition) AS src_file", "offset AS src_offset") if has_places else ()
        return reader.option("maxOffsetsPerTrigger", batch_size).load().selectExpr("value", *places)
    reader, place = reader.option("maxFilesPerTrigger", batch_size), hadoop_url(str(source.folder))
    if source.is_delta:
        rows = reader.format("delta").option("skipChangeCommits", "true").load(place)
        return rows.where("dt is not null").select(*CHARGE_COLUMNS)  # the others say what was read
    places = ("_metadata.file_path src_file", "_metadata.file_block_start src_offset") if has_places else ()
    reader = reader.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.jsonl")
    return reader.text(place).selectExpr("cast(value as binary) as value", *places)
