"""The load tester's `samples.parquet`: its events, and its seconds as clients' view of throttling.

`docs/load-test.md` lists the file's columns. Charges of connections are skipped, since the jobs have no quota of them.
Events from acknowledgements are flagged as estimated, since several of them may be one request.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.formats.lines import read_head
from kafka_quotas.pipeline.formats.parsed_batch import ParsedBatch
from kafka_quotas.pipeline.formats.rows import AMOUNT_LIMIT, BadLineError, ClientThrottleRow, EventRow
from kafka_quotas.pipeline.formats.task import IngestTask

PARQUET_MAGIC: Final = b"PAR1"
_COLUMNS: Final = (
    *("kind", "ts_ms", "broker_id", "user", "client_id", "quota_type", "bytes", "mutations", "requests"),
    *("throttle_ms", "throttle_sum_ms", "source"),
)
_CHARGED: Final = frozenset({*(each.value for each in QuotaType), "request_rate"})
_SECOND_MS: Final = 1000
_BATCH_ROWS: Final = 20_000


def sample_batches(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of the file in batches.

    Raises:
        BadLineError: The file is not a load test's samples.
        OSError: The file can't be read.
    """
    try:
        with pq.ParquetFile(path) as file:
            if missing := set(_COLUMNS) - set(file.schema_arrow.names):
                raise BadLineError(f"not a load test's samples: no column {min(missing)}")
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(_COLUMNS)):
                yield batch.to_pylist()
    except pa.ArrowException as error:
        raise BadLineError(f"broken Parquet: {error}") from error


def sample_row(row: Mapping[str, Any], place: int, task: IngestTask) -> EventRow | ClientThrottleRow | None:
    """Convert a row to an event or a second of throttling.

    `place` is the row's position in the file.

    Returns:
        None for a charge of none of our quotas.

    Raises:
        BadLineError: A figure is out of range.
    """
    if row["kind"] == "second":
        return _second(row, task)
    if row["quota_type"] not in _CHARGED:
        return None
    if not (0 <= row["bytes"] < AMOUNT_LIMIT and row["mutations"] >= 0 and 0 <= row["throttle_ms"] < AMOUNT_LIMIT):
        raise BadLineError("a figure out of range")
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


_SHOWN_BYTES: Final = 4096


def read_load_test(task: IngestTask, harvest: ParsedBatch) -> Iterator[ParsedBatch]:
    """Yield the rows in batches, as `parse_task` does.

    Raises:
        OSError: The file can't be read.
    """
    counts, src_file = harvest.counts, str(task.path)
    try:
        if read_head(task.path, len(PARQUET_MAGIC)) != PARQUET_MAGIC:
            raise BadLineError("this document has no events; samples.parquet beside it does")  # noqa: TRY301
        for rows in sample_batches(task.path):
            _take(rows, task, harvest)
            yield harvest.counted()
            harvest.clear()
    except BadLineError as error:
        counts.lines += 1
        harvest.refuse(read_head(task.path, _SHOWN_BYTES), error, src_file=src_file, line_no=counts.lines)
    counts.read_to = task.path.stat().st_size
    yield harvest.counted()


def _take(rows: list[dict[str, Any]], task: IngestTask, harvest: ParsedBatch) -> None:
    """Add the converted rows to the batch."""
    counts = harvest.counts
    for row in rows:
        try:
            found = sample_row(row, counts.lines, task)
        except BadLineError as error:
            harvest.refuse(str(row).encode(), error, src_file=str(task.path), line_no=counts.lines + 1)
        else:
            if found is None:
                counts.unused += 1
            elif isinstance(found, EventRow):
                harvest.events.append(found)
            else:
                harvest.client_throttle.append(found)
        counts.lines += 1
