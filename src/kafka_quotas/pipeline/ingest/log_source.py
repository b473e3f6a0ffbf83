"""Logs and scrapes as PySpark data sources: `spark.read.format("kafka_request_log").load("s3a://logs/*")`.

    for source in SOURCES:
        spark.dataSource.register(source)
    events = spark.read.format("kafka_request_log").option("brokerId", 1).load("logs/{cluster}/kafka-request.log*")
    live = spark.readStream.format("kafka_quotas_event_log").load("daemon/events.jsonl*")
    series = spark.read.format("kafka_jmx_metrics").load("scrapes/{broker_id}/{time}.json")

Files are found and read as `ingest` does it: patterns with places, plain or gzip, logs cut anywhere. Workers read byte
ranges themselves, so that no line passes through Java on its way in. A stream of a log reads on where a file ended,
also if it was renamed or packed meanwhile: it knows a file by its first line. Scrapes are whole documents, read in
batches alone.

| option | meaning |
|---|---|
| `cluster`, `brokerId` | of files whose path has no place for them; default the empty name and -1 |
| `timeZone` | of stamps that have none, e.g. `Europe/Berlin` |
| `splitBytes` | most bytes of a file for one task, default 64 MiB |
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.formats.lines import open_file, read_head
from kafka_quotas.pipeline.formats.task import IngestTask, InputFormat
from kafka_quotas.pipeline.ingest.ingested_tables import arrow_batches, parse_task
from kafka_quotas.pipeline.ingest.plan import IngestSettings, whole_task
from kafka_quotas.pipeline.ingest.sources import HEAD_BYTES, InspectedFile, digest, find_files, inspect_files
from kafka_quotas.pipeline.tables.packed_events import PARSED_EVENTS
from kafka_quotas.pipeline.tables.schemas import CLIENT_THROTTLE, METRICS, QUARANTINE

SPLIT_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of a file that one task reads, by default."""
_NO_BROKER: Final = -1
ODD_COLUMNS: Final = ("odd_line", "odd_reason")
"""Columns of a line that could not be read and why, null in rows of events."""
_COMPILED_FROM: Final = 1024 * 1024
"""Bytes from which machine code, which takes seconds to load, reads lines sooner than Python."""
_FORGOTTEN_S: Final = 3600.0
"""How long a log may be missing, as while it is renamed, before the offset drops it."""
_PACKED_END: Final = -1
"""In place of an offset: a packed file was read to its end, and no writer appends to it."""


class LogPart(InputPartition):
    """The lines of one file that one task of Spark reads."""

    def __init__(self, task: IngestTask, head: bytes) -> None:
        super().__init__(None)
        self.task = task
        self.head = head
        """First bytes of the log, which another log that has taken its path does not have."""


class _Logs:
    """The files that options name, which Spark gives in lower case, and their rows."""

    def __init__(self, options: Mapping[str, str], source: "type[_FilesSource]") -> None:
        if not (pattern := options.get("path")):
            raise UsageError("no path is given", hint='for example .load("logs/{broker_id}/kafka-request.log*")')
        broker_id = _whole(options, "brokerId", _NO_BROKER, least=_NO_BROKER)
        self._pattern = pattern
        self._settings = IngestSettings(
            cluster=options.get("cluster", ""),
            broker_id=None if broker_id == _NO_BROKER else broker_id,
            zone=options.get("timeZone") or options.get("timezone"),
        )
        self._split_bytes = _whole(options, "splitBytes", SPLIT_BYTES, least=1)
        self._source = source

    def logs(self) -> list[InspectedFile]:
        """Return the logs that there are, packed ones first, and of each kind the smallest."""
        found = inspect_files(find_files(self._pattern), input_format=None)
        for each in found:
            if each.size and each.input_format not in self._source.INPUT_FORMATS:
                others = [source.name() for source in SOURCES if each.input_format in source.INPUT_FORMATS]
                hint = f"{others[0]} reads it" if others else "kafka-quotas pipeline ingest reads more formats"
                raise UsageError(f"{each.found.path} is nothing that {self._source.name()} reads", hint=hint)
            if each.needs_zone and self._settings.zone is None:
                raise UsageError(f"the stamps of {each.found.path} have no zone", hint='add .option("timeZone", "UTC")')
        return sorted((each for each in found if each.size), key=lambda each: (not each.is_packed, each.size))

    def parts(self, log: InspectedFile, start: int, end: int | None) -> list[LogPart]:
        """Return the parts of a log from an offset on, whose lines begin before `end`, None for its end."""
        whole = replace(whole_task(log, self._settings), start=start, end=end)
        if log.is_packed or not whole.input_format.grows:
            return [LogPart(whole, log.head)]
        last = log.size if end is None else end
        bounds = [*range(start, last, self._split_bytes), last]
        return [LogPart(replace(whole, start=begin, end=stop), log.head) for begin, stop in pairwise(bounds)]

    def read(self, partition: LogPart) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        task, schema = partition.task, self._source.columns()
        if isinstance(task.path, Path) and read_head(task.path, len(partition.head)) != partition.head:
            raise KafkaQuotasError(f"another log is at {task.path} meanwhile", hint="start the query again")
        task = replace(task, is_compiled=task.size >= _COMPILED_FROM)
        for parsed in parse_task(task, lines_before=0):  # no row has the number of its line
            for table, rows in arrow_batches(parsed):
                known = dict(zip(rows.schema.names, rows.columns, strict=True))
                if table is QUARANTINE:
                    known = {**dict(zip(ODD_COLUMNS, rows.columns[:2], strict=True)), "src_file": known["src_file"]}
                if table is not CLIENT_THROTTLE:  # which Java's clients have in such scrapes
                    columns = [known.get(field.name, pa.nulls(rows.num_rows, field.type)) for field in schema]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _key(log: InspectedFile) -> str:
    """Return the digest of a log's broker and its first line, by which it is known however long it grows."""
    return digest(f"{log.found.cluster}\0{log.found.broker_id}\0".encode() + log.head.partition(b"\n")[0])


def _whole(options: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = options.get(name, options.get(name.lower(), str(default)))
    if not text.lstrip("-").isdecimal() or int(text) < least:
        raise UsageError(f"option {name} is {text!r}", hint=f"a whole number from {least} on")
    return int(text)


class _FilesSource(DataSource):
    """What files have as rows.

    A line that can't be read is a row with `odd_line` and `odd_reason`, its other columns but `src_file` null.
    """

    FORMAT: ClassVar[str]
    INPUT_FORMATS: ClassVar[frozenset[InputFormat]]
    ROWS: ClassVar[pa.Schema]
    """Columns of a line that could be read."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return cls.FORMAT

    @classmethod
    def columns(cls) -> pa.Schema:
        """Return the columns of all rows."""
        known = {each.name: each.type for each in cls.ROWS}
        return pa.schema(list((known | dict.fromkeys(ODD_COLUMNS, pa.string())).items()))

    def schema(self) -> StructType:
        """Return the columns as Spark has them."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - Spark looks for pandas when it loads

        return from_arrow_schema(self.columns())

    def reader(self, schema: StructType) -> "_BatchReader":  # noqa: ARG002 - Spark's own signature
        """Return what reads all files once."""
        return _BatchReader(self.options, type(self))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - as above
        """Refuse to follow whole documents."""
        raise UsageError(f"{self.name()} reads whole files, once", hint=f'spark.read.format("{self.name()}")')


class KafkaRequestLog(_FilesSource):
    """The lines of request logs as rows of events, without their day and numbers of clients."""

    FORMAT = "kafka_request_log"
    INPUT_FORMATS = frozenset({InputFormat.REQUEST_LOG})
    ROWS = PARSED_EVENTS

    def streamReader(self, schema: StructType) -> "_StreamReader":  # noqa: ARG002, N802 - Spark's own signature
        """Return what reads the logs as they grow."""
        return _StreamReader(self.options, type(self))


class DaemonEventLog(KafkaRequestLog):
    """The lines of the daemon's event log, likewise."""

    FORMAT = "kafka_quotas_event_log"
    INPUT_FORMATS = frozenset({InputFormat.DAEMON_EVENTS})


class KafkaJmxMetrics(_FilesSource):
    """Brokers' quota metrics in responses of Jolokia, or in lines of JSON."""

    FORMAT = "kafka_jmx_metrics"
    INPUT_FORMATS = frozenset({InputFormat.JSON_METRICS})
    ROWS = METRICS.arrow_schema()


class PrometheusMetrics(KafkaJmxMetrics):
    """Brokers' quota metrics in Prometheus' text, or in responses of its server."""

    FORMAT = "kafka_prometheus_metrics"
    INPUT_FORMATS = frozenset({InputFormat.PROMETHEUS, InputFormat.JSON_METRICS})


SOURCES: Final = (KafkaRequestLog, DaemonEventLog, KafkaJmxMetrics, PrometheusMetrics)


# Rows come in batches, which the types of Spark's own classes leave out.
class _BatchReader(_Logs, DataSourceReader):  # type: ignore[misc]
    def partitions(self) -> Sequence[LogPart]:
        """Return the parts of all logs, without a packed copy of a log that is there: it may still be written."""
        logs = self.logs()
        plain: dict[str, list[bytes]] = {}
        for log in logs:
            if not log.is_packed:
                plain.setdefault(_key(log), []).append(log.head)
        return [
            part
            for log in logs
            if not (log.is_packed and any(head.startswith(log.head) for head in plain.get(_key(log), ())))
            for part in self.parts(log, 0, None)
        ]


class _StreamReader(_Logs, DataSourceStreamReader):  # type: ignore[misc]
    """Reads logs as they grow.

    An offset is a JSON object: for each file, by the digest of its broker and its first line, how far it has been read.
    """

    def __init__(self, options: Mapping[str, str], source: type[_FilesSource]) -> None:
        super().__init__(options, source)
        self._reached: dict[str, int] = {}
        """The last offset: no log falls back, also if it is missing or replaced while its folder is listed."""
        self._seen_s: dict[str, float] = {}
        """When each log was there last."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's own name
        """Return the offset before all lines."""
        return {}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - as above
        """Return the offset after the last whole line of each log."""
        now_s = time.monotonic()
        for key, log in self._whole_logs().items():
            before = self._reached.get(key, 0)
            is_whole = log.is_packed or before == _PACKED_END
            self._reached[key] = _PACKED_END if is_whole else max(_whole_lines(log), before)
            self._seen_s[key] = now_s
        self._seen_s = {key: at_s for key, at_s in self._seen_s.items() if now_s - at_s < _FORGOTTEN_S}
        self._reached = {key: until for key, until in self._reached.items() if key in self._seen_s}
        return dict(self._reached)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[LogPart]:
        """Return the parts of the logs between two offsets."""
        logs, parts = self._whole_logs(), []
        for key, until in end.items():
            since = start.get(key, 0)
            if since in (until, _PACKED_END):
                continue
            if (log := logs.get(key)) is None:
                raise UsageError("a log that a batch has to read is gone", hint=f"put it back: {json.dumps(end)}")
            parts += self.parts(log, since, None if until == _PACKED_END else until)
        return parts

    def _whole_logs(self) -> dict[str, InspectedFile]:
        """Return the logs with a whole line by their keys, one of each.

        Of several with one key it is an unpacked one, or else the largest.
        """
        return {_key(log): log for log in self.logs() if b"\n" in log.head or len(log.head) == HEAD_BYTES}


def _whole_lines(log: InspectedFile) -> int:
    """Return the offset after the last line feed of a log that is being written."""
    with open_file(log.found.place) as file:
        end = log.size
        while end > 0:
            begin = max(end - HEAD_BYTES, 0)
            file.seek(begin)
            if (place := file.read(end - begin).rfind(b"\n")) >= 0:
                return begin + place + 1
            end = begin
    return 0
