"""The load tester's `samples.parquet`: its events, and its seconds as clients' view of throttling.

`docs/reference/load-test.md` lists the file's columns. Charges of connections are skipped, since the jobs have no
quota of them. Events from acknowledgements are flagged as estimated, since several of them may be one request.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.formats.lines import read_head
from kafka_quotas.pipeline.formats.rows import AMOUNT_LIMIT, BadLineError, ClientThrottleRow, EventRow
from kafka_quotas.pipeline.formats.source_file import SourceFile, file_size, open_file
from kafka_quotas.pipeline.formats.task import IngestTask, ParsedBatch

PARQUET_MAGIC: Final = b"PAR1"
_COLUMNS: Final = (
    *("kind", "ts_ms", "broker_id", "user", "client_id", "quota_type", "bytes", "mutations", "requests"),
    *("throttle_ms", "throttle_sum_ms", "source"),
)
_CHARGED: Final = frozenset({*(each.value for each in QuotaType), "request_rate"})
_SECOND_MS: Final = 1000
_BATCH_ROWS: Final = 20_000
_SHOWN_BYTES: Final = 4096


def read_load_test(task: IngestTask, parsed: ParsedBatch) -> Iterator[ParsedBatch]:
    """Yield the rows in batches, as `parse_task` does.

    Raises:
        OSError: The file can't be read.
    """
    counts, src_file = parsed.counts, str(task.path)
    try:
        if read_head(task.path, len(PARQUET_MAGIC)) != PARQUET_MAGIC:
            raise BadLineError("this document has no events; samples.parquet beside it does")  # noqa: TRY301
        for rows in _batches(task.path):
            for row in rows:
                try:
                    _take(row, task, parsed)
                except BadLineError as error:
                    parsed.refuse(str(row).encode(), error, src_file=src_file, line_no=counts.lines + 1)
                counts.lines += 1
            yield parsed.counted()
            parsed.clear()
    except BadLineError as error:
        counts.lines += 1
        parsed.refuse(read_head(task.path, _SHOWN_BYTES), error, src_file=src_file, line_no=counts.lines)
    counts.read_to = file_size(task.path)
    yield parsed.counted()


def _batches(path: SourceFile) -> Iterator[list[dict[str, Any]]]:
    try:
        with open_file(path) as content, pq.ParquetFile(content) as file:
            if missing := set(_COLUMNS) - set(file.schema_arrow.names):
                raise BadLineError(f"not a load test's samples: no column {min(missing)}")
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(_COLUMNS)):
                yield batch.to_pylist()
    except pa.ArrowException as error:
        raise BadLineError(f"broken Parquet: {error}") from error


def _take(row: Mapping[str, Any], task: IngestTask, parsed: ParsedBatch) -> None:
    """Add a row as an event or a second of throttling, or count it where no job has its quota."""
    if row["kind"] == "second":
        parsed.client_throttle.append(_second(row, task))
    elif row["quota_type"] not in _CHARGED:
        parsed.counts.unused += 1
    elif not (0 <= row["bytes"] < AMOUNT_LIMIT and row["mutations"] >= 0 and 0 <= row["throttle_ms"] < AMOUNT_LIMIT):
        raise BadLineError("a figure out of range")
    else:
        parsed.events.append(_event(row, parsed.counts.lines, task))


def _event(row: Mapping[str, Any], place: int, task: IngestTask) -> EventRow:
    broker_id = row["broker_id"] if row["broker_id"] >= 0 or task.broker_id is None else task.broker_id
    return EventRow(
        cluster=task.cluster,
        broker_id=broker_id,
        ts_ms=row["ts_ms"],
        user=row["user"],
        client_id=row["client_id"],
        ip="",
        quota_type=row["quota_type"],
        bytes=row["bytes"],
        thread_ms=None,
        mutations=row["mutations"],
        throttle_ms=row["throttle_ms"],
        api_key=-1,
        is_exempt=False,
        is_estimated=row["source"] == "acknowledgements",
        is_thread_estimated=False,
        connection="",
        src_file=str(task.path),
        src_offset=place,
    )


def _second(row: Mapping[str, Any], task: IngestTask) -> ClientThrottleRow:
    requests = row["requests"]
    return ClientThrottleRow(
        ts_ms=row["ts_ms"] + _SECOND_MS,
        cluster=task.cluster,
        client_id=row["client_id"],
        broker="",
        throttle_ms=row["throttle_sum_ms"] / requests if requests else float(row["throttle_ms"]),
        max_throttle_ms=float(row["throttle_ms"]),
        samples=requests or None,
        source="load-test",
        src_file=str(task.path),
    )
