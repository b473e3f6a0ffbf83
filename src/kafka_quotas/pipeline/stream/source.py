"""The source of a stream of events: a topic, or a folder of the daemon's event log or of tables.

Spark reads topics with jars whose coordinates follow from the installed PySpark.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.tables.lake import Lake, hadoop_url, lake_url
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS, EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINE_COLUMNS: Final = ("value", "src_file", "src_offset")
"""Columns of lines: each with its file or partition, and its place there."""
_POLLING: Final = {"max.poll.records": "20000", "max.partition.fetch.bytes": "8388608"}
"""Consumer settings for a topic that is read as fast as can be; Kafka's own suit one that is polled for news."""
_ARTIFACT = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def connector_packages(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the given Maven coordinates and those of Spark's Kafka source, unless it is among them."""
    return (
        given
        if any(each.startswith(f"{_ARTIFACT}:") for each in given)
        else (*given, f"{_ARTIFACT}:{version('pyspark')}")
    )


SCHEME: Final = "kafka://"
_HINT: Final = "kafka://HOST:PORT/TOPIC, or a folder of .jsonl or .parquet files"


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
    """A folder of event files that grows: the daemon's `*.jsonl`, or Parquet with the columns of events."""

    folder: Path
    is_parquet: bool
    is_delta: bool = False
    """Whether the files are those of the Delta table `events`."""

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
        UsageError: The folder does not exist or has events in both kinds of files, or the topic can't be parsed.
    """
    if text.startswith(SCHEME):
        return parse_topic(text)
    folder = Path(text)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {text}", hint=_HINT)
    if (ingested := Lake(url=lake_url(text))).has_logs:
        return FolderSource(folder=Path(ingested.place(EVENTS)), is_parquet=True, is_delta=True)
    return FolderSource(folder=folder.absolute(), is_parquet=_is_parquet(folder))


def _is_parquet(folder: Path) -> bool:
    """Check whether a folder has its events in Parquet files, which other files do not decide."""
    is_parquet = any(_has_events(file) for file in _visible_files(folder, "*.parquet"))
    if is_parquet and any(_visible_files(folder, "*.jsonl")):
        raise UsageError(
            f"{folder} has events in .parquet files and also .jsonl files", hint=f"move either away; {_HINT}"
        )
    return is_parquet


def _visible_files(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the files that Spark finds, which skips names that begin with a dot or an underscore."""
    for file in folder.rglob(pattern):
        if not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts):
            yield file


def _has_events(file: Path) -> bool:
    import pyarrow as pa  # noqa: PLC0415 - the command's help must not load it
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        return set(CHARGE_COLUMNS) <= set(pq.read_schema(file).names)
    except (OSError, pa.ArrowException):
        return False  # a stray file of another kind, or one that is still being written


def read_stream(session: "SparkSession", source: Source, *, batch_size: int, has_places: bool = False) -> "DataFrame":
    """Open the stream: one column `value` of lines, or columns of events where the files are Parquet.

    Args:
        session: The session that reads it.
        source: What to read.
        batch_size: The largest batch, in records of a topic or files of a folder.
        has_places: Whether lines come with all of `LINE_COLUMNS`.
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
    reader = reader.option("recursiveFileLookup", "true")
    if source.is_parquet:
        rows = reader.schema(EVENTS.spark_schema()).option("pathGlobFilter", "*.parquet").parquet(place)
        return rows.select(*CHARGE_COLUMNS)
    places = ("_metadata.file_path src_file", "_metadata.file_block_start src_offset") if has_places else ()
    return reader.option("pathGlobFilter", "*.jsonl").text(place).selectExpr("cast(value as binary) as value", *places)
