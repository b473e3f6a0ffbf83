"""Logs as a PySpark data source: `spark.read.format("kafka_request_log").load("s3a://logs/*")`, batch and stream.

    spark.dataSource.register(KafkaRequestLog)
    events = spark.read.format("kafka_request_log").option("brokerId", 1).load("logs/{cluster}/kafka-request.log*")
    live = spark.readStream.format("kafka_request_log").load("logs/kafka-request.log*")

Files are found and read as `ingest` does it: patterns with places, plain or gzip, request logs and the daemon's event
log, cut anywhere. Workers read byte ranges themselves, so that no line passes through Java on its way in. A stream
reads on where a file ended, also if it was renamed or packed meanwhile: it knows a file by its first line.

| option | meaning |
|---|---|
| `cluster`, `brokerId` | of files whose path has no place for them; default the empty name and -1 |
| `timeZone` | of stamps that have none, e.g. `Europe/Berlin` |
| `splitBytes` | most bytes of a file for one task, default 64 MiB |
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.metric_names import MetricNames
from kafka_quotas.pipeline.formats.lines import open_file, read_head
from kafka_quotas.pipeline.formats.task import IngestTask, InputFormat
from kafka_quotas.pipeline.ingest.ingested_tables import PARSED_EVENTS
from kafka_quotas.pipeline.ingest.parse import parse_task
from kafka_quotas.pipeline.ingest.sources import HEAD_BYTES, InspectedFile, digest, find_files, inspect_files

SPLIT_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of a file that one task reads, by default."""
ODD_COLUMNS: Final = ("odd_line", "odd_reason")
"""Columns of a line that could not be read and why, null in rows of events."""
SCHEMA: Final = pa.schema(
    [(field.name, field.type) for field in PARSED_EVENTS] + [(name, pa.string()) for name in ODD_COLUMNS]
)
"""Columns of events as parsers give them, and those of odd lines."""
_COMPILED_FROM: Final = 1024 * 1024
"""Bytes from which machine code, which takes seconds to load, reads lines sooner than Python."""
_PACKED_END: Final = -1
"""In place of an offset: a packed file was read to its end, and no writer appends to it."""


class LogPart(InputPartition):
    """The lines of one file that one task of Spark reads."""

    def __init__(self, task: IngestTask, head: bytes) -> None:
        super().__init__(None)
        self.task = task
        self.head = head
        """First bytes of the log, by which another one that has taken its path is told from it."""


@dataclass(frozen=True, slots=True)
class _Settings:
    pattern: str
    cluster: str
    broker_id: int
    zone: str | None
    split_bytes: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "_Settings":
        """Return the settings that options name, which Spark gives in lower case."""
        if not (pattern := options.get("path")):
            raise UsageError("no path is given", hint='for example .load("logs/{broker_id}/kafka-request.log*")')
        return cls(
            pattern=pattern,
            cluster=options.get("cluster", ""),
            broker_id=_whole(options, "brokerId", -1, least=-1),
            zone=options.get("timeZone") or options.get("timezone"),
            split_bytes=_whole(options, "splitBytes", SPLIT_BYTES, least=1),
        )

    def logs(self) -> list[InspectedFile]:
        """Return the logs that there are, with what their beginnings say."""
        found = inspect_files(find_files(self.pattern), input_format=None)
        for each in found:
            if each.size and each.input_format not in (InputFormat.REQUEST_LOG, InputFormat.DAEMON_EVENTS):
                raise UsageError(
                    f"{each.found.path} is neither a request log nor the daemon's event log",
                    hint="kafka-quotas pipeline ingest reads the other formats",
                )
            if each.needs_zone and self.zone is None:
                raise UsageError(f"the stamps of {each.found.path} have no zone", hint='add .option("timeZone", "UTC")')
        return [each for each in found if each.size]

    def parts(self, log: InspectedFile, start: int, end: int | None) -> list[LogPart]:
        """Return the parts of a log from an offset on, whose lines begin before `end`, None for its end."""
        assert log.input_format is not None
        whole = IngestTask(
            number=0,
            file_number=0,
            path=log.found.place,
            input_format=log.input_format,
            cluster=log.found.cluster or self.cluster,
            broker_id=self.broker_id if log.found.broker_id is None else log.found.broker_id,
            zone=self.zone,
            names=MetricNames(rules=()),
            ts_ms=0,
            start=start,
            end=end,
        )
        if log.is_packed:
            return [LogPart(whole, log.head)]
        last = log.size if end is None else end
        bounds = [*range(start, last, self.split_bytes), last]
        return [LogPart(replace(whole, start=begin, end=stop), log.head) for begin, stop in pairwise(bounds)]


def _whole(options: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = options.get(name, options.get(name.lower(), str(default)))
    if not text.lstrip("-").isdecimal() or int(text) < least:
        raise UsageError(f"option {name} is {text!r}", hint=f"a whole number from {least} on")
    return int(text)


class KafkaRequestLog(DataSource):
    """The lines of request logs, and of the daemon's event log, as rows of events.

    A line that can't be read is a row with `odd_line` and `odd_reason`, its other columns but `src_file` null.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafka_request_log"

    def schema(self) -> StructType:
        """Return the columns: those of events without day and numbers, and those of odd lines."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - Spark looks for pandas when it loads

        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> "_BatchReader":  # noqa: ARG002 - Spark's own signature
        """Return what reads all logs once."""
        return _BatchReader(_Settings.of(self.options))

    def streamReader(self, schema: StructType) -> "_StreamReader":  # noqa: ARG002, N802 - as above
        """Return what reads the logs as they grow."""
        return _StreamReader(_Settings.of(self.options))


class _BatchReader(DataSourceReader):
    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def partitions(self) -> Sequence[LogPart]:
        """Return the parts of all logs."""
        return [part for log in self._settings.logs() for part in self._settings.parts(log, 0, None)]

    def read(self, partition: LogPart) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Yield the rows of a part."""
        return _rows(partition)


class _StreamReader(DataSourceStreamReader):
    """Reads logs as they grow.

    An offset is a JSON object: for each file, by the digest of its broker and its first line, how far it has been read.
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        self._reached: dict[str, int] = {}
        """The last offset: no log falls back, also if it is missing or replaced while its folder is listed."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's own name
        """Return the offset before all lines."""
        return {}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - as above
        """Return the offset after the last whole line of each log."""
        for key, log in self._by_key().items():
            before = self._reached.get(key, 0)
            is_whole = log.is_packed or before == _PACKED_END
            self._reached[key] = _PACKED_END if is_whole else max(_whole_lines(log), before)
        return dict(self._reached)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[LogPart]:
        """Return the parts of the logs between two offsets."""
        logs, parts = self._by_key(), []
        for key, until in end.items():
            since = start.get(key, 0)
            if since in (until, _PACKED_END):
                continue
            if (log := logs.get(key)) is None:
                raise UsageError("a log that a batch has to read is gone", hint=f"put it back: {json.dumps(end)}")
            parts += self._settings.parts(log, since, None if until == _PACKED_END else until)
        return parts

    def read(self, partition: LogPart) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Yield the rows of a part."""
        return _rows(partition)

    def _by_key(self) -> dict[str, InspectedFile]:
        """Return the logs that have a whole line, of two that have the same the one that is not packed.

        While both are there, the packed one may still be written.
        """
        found: dict[str, InspectedFile] = {}
        for log in sorted(self._settings.logs(), key=lambda each: (not each.is_packed, each.size)):
            line, feed, _ = log.head.partition(b"\n")
            if feed or len(line) == HEAD_BYTES:
                found[digest(f"{log.found.cluster}\0{log.found.broker_id}\0".encode() + line)] = log
        return found


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


def _rows(part: LogPart) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part by the columns of `SCHEMA`."""
    task = part.task
    if isinstance(task.path, Path) and read_head(task.path, len(part.head)) != part.head:
        raise KafkaQuotasError(f"another log is at {task.path} meanwhile", hint="start the query again")
    task = replace(task, is_compiled=task.size >= _COMPILED_FROM and find_spec("numba") is not None)
    for batch in parse_task(task, lines_before=0):  # no row has the number of its line
        events: Any = list(zip(*batch.events, strict=True))
        if events:
            yield _batch(dict(zip(PARSED_EVENTS.names, events, strict=True)), len(batch.events))
        for each in batch.event_batches:
            yield _batch(dict(zip(PARSED_EVENTS.names, each.columns, strict=True)), each.num_rows)
        if odd := batch.quarantine:
            raw, reasons, files, _ = zip(*odd, strict=True)
            yield _batch({"odd_line": raw, "odd_reason": reasons, "src_file": files}, len(odd))


def _batch(columns: Mapping[str, Any], rows: int) -> pa.RecordBatch:
    arrays = []
    for field in SCHEMA:
        column = columns.get(field.name)
        if column is None:
            arrays.append(pa.nulls(rows, field.type))
        else:
            arrays.append(column if isinstance(column, pa.Array) else pa.array(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
