"""Where a stream of events comes from: a topic, a folder of the daemon's event log, or a folder of tables.

The jars with which Spark reads topics: their coordinates follow from the PySpark that is installed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.tables.schemas import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ARTIFACT = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def connector_packages(given: tuple[str, ...]) -> tuple[str, ...]:
    """The Maven coordinates: those that were given, else Spark's Kafka source in PySpark's own version."""
    return given or (f"{_ARTIFACT}:{version('pyspark')}",)


def missing_connector(packages: tuple[str, ...], error: KafkaQuotasError) -> KafkaQuotasError:
    """What to say where Spark did not start with these packages: most often they could not be fetched."""
    return KafkaQuotasError(
        f"Spark did not start with {', '.join(packages)}: can these jars be fetched, with all they depend on?",
        hint=f"{error.hint}; --packages takes another version, --spark-conf spark.jars=FILES what is there already",
    )


SCHEME: Final = "kafka://"
_HINT: Final = "kafka://HOST:PORT/TOPIC, or a folder of .jsonl or .parquet files"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """A topic with an event of the daemon's log per record; `properties` are Kafka's own, for logins."""

    bootstrap: str
    topic: str
    from_beginning: bool = True
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __str__(self) -> str:
        return f"{SCHEME}{self.bootstrap}/{self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSource:
    """A folder that files of events are added to: the daemon's `*.jsonl`, or Parquet with the columns of events."""

    folder: Path
    is_parquet: bool

    def __str__(self) -> str:
        return str(self.folder)


Source = TopicSource | FolderSource


def parse_topic(text: str) -> TopicSource:
    """The topic that `kafka://HOST:PORT/TOPIC` names. Raises `UsageError` for anything else."""
    bootstrap, _, topic = text.removeprefix(SCHEME).partition("/")
    if not text.startswith(SCHEME) or not bootstrap or not topic or "/" in topic:
        raise UsageError(f"not a topic: {text!r}", hint="for example kafka://127.0.0.1:9092/quota-events")
    return TopicSource(bootstrap=bootstrap, topic=topic)


def parse_source(text: str) -> Source:
    """The source that a text names. Raises `UsageError` for a folder that is not there."""
    if text.startswith(SCHEME):
        return parse_topic(text)
    folder = Path(text)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {text}", hint=_HINT)
    return FolderSource(folder=folder.absolute(), is_parquet=any(folder.rglob("*.parquet")))


def read_stream(session: "SparkSession", source: Source, *, batch_size: int | None) -> "DataFrame":
    """The stream: one column `value` of lines, or the columns of events where these are Parquet.

    `batch_size` bounds a batch: records of a topic, files of a folder.
    """
    reader = session.readStream
    if isinstance(source, TopicSource):
        reader = reader.format("kafka").option("kafka.bootstrap.servers", source.bootstrap)
        reader = reader.option("subscribe", source.topic).option("failOnDataLoss", "false")
        reader = reader.option("startingOffsets", "earliest" if source.from_beginning else "latest")
        for name, value in source.properties.items():
            reader = reader.option(f"kafka.{name}", value)
        if batch_size is not None:
            reader = reader.option("maxOffsetsPerTrigger", batch_size)
        return reader.load().select("value")
    if batch_size is not None:
        reader = reader.option("maxFilesPerTrigger", batch_size)
    reader = reader.option("recursiveFileLookup", "true")
    if source.is_parquet:
        columns = [field for field in EVENTS.spark_schema() if field.name != "dt"]
        schema = EVENTS.spark_schema().__class__(columns)
        return reader.schema(schema).option("pathGlobFilter", "*.parquet").parquet(source.folder.as_uri())
    lines = reader.option("pathGlobFilter", "*.jsonl").text(source.folder.as_uri())
    return lines.selectExpr("cast(value as binary) as value")
