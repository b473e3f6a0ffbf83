"""Events with exact bytes: a line of the daemon's event log, and the load tester's `samples.parquet`.

A line is one charge of one quota, in version 1 of `docs/reference/event-log.md`. Its thread time comes from the
daemon's cost model. `docs/reference/load-test.md` lists the columns of the samples, whose seconds are clients' view of
throttling too. Charges of connections are skipped, since the jobs have no quota of them. Events from acknowledgements
are flagged as estimated, since several of them may be one request.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.formats.lines import SourceFile, file_size, open_file, read_head
from kafka_quotas.pipeline.formats.task import (
    AMOUNT_LIMIT,
    LAST_MS,
    BadLineError,
    EventRow,
    IngestTask,
    ParsedBatch,
    Row,
)

VERSION: Final = 1
_TYPES: Final = frozenset(each.value for each in QuotaType)
_TEXTS: Final = ("cluster", "user", "client_id", "ip")
_FIGURES: Final = ("bytes", "mutations", "throttle_ms")
_LARGEST_INT: Final = 2**31 - 1
_NO_API: Final = -1
"""The API of what another program asked the daemon to charge."""


def parse_daemon_line(line: bytes, *, offset: int, src_file: str) -> EventRow:
    """Parse the event of a line.

    Raises:
        BadLineError: The line is no charge of version 1.
    """
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadLineError(f"broken JSON: {error.msg}") from error
    if not isinstance(entry, dict) or entry.get("v") != VERSION:
        raise BadLineError(f"not an event of version {VERSION}")
    try:
        _check(entry)
        return _event(entry, offset=offset, src_file=src_file)
    except KeyError as error:
        raise BadLineError(f"the event lacks {error.args[0]}") from error


def _event(entry: Mapping[str, Any], *, offset: int, src_file: str) -> EventRow:
    is_request = entry["quota_type"] == QuotaType.REQUEST.value
    broker_id = entry["broker_id"]
    return EventRow(
        cluster=entry["cluster"],
        broker_id=-1 if broker_id is None else broker_id,
        ts_ms=entry["ts_ms"],
        user=entry["user"],
        client_id=entry["client_id"],
        ip=entry["ip"],
        quota_type=entry["quota_type"],
        bytes=entry["bytes"],
        thread_ms=float(entry["thread_ms"]) if is_request else None,
        mutations=entry["mutations"],
        throttle_ms=entry["throttle_ms"],
        api_key=entry["api_key"],
        is_exempt=entry["is_exempt"],
        is_estimated=False,
        is_thread_estimated=is_request,
        connection=str(entry["connection"]),
        src_file=src_file,
        src_offset=offset,
    )


def _check(entry: Mapping[str, Any]) -> None:
    """Check that every field has its type and fits its column."""
    good = (
        entry["quota_type"] in _TYPES
        and all(isinstance(entry[name], str) for name in _TEXTS)
        and all(_is_whole(entry[name], below=AMOUNT_LIMIT) for name in _FIGURES)
        and _is_whole(entry["ts_ms"], below=LAST_MS)
        and _is_whole(entry["mutations"], below=_LARGEST_INT)
        and _is_whole(entry["api_key"], least=_NO_API, below=2**15)
        and (entry["broker_id"] is None or _is_whole(entry["broker_id"], below=_LARGEST_INT))
        and isinstance(entry["connection"], int | str)
        and isinstance(entry["thread_ms"], int | float)
        and isinstance(entry["is_exempt"], bool)
    )
    if not good:
        raise BadLineError("the event has a field of another kind, or out of range")


def _is_whole(value: object, *, below: int, least: int = 0) -> bool:
    return type(value) is int and least <= value < below


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
        parsed.events.append(_sampled_event(row, parsed.counts.lines, task))


def _sampled_event(row: Mapping[str, Any], place: int, task: IngestTask) -> EventRow:
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


def _second(row: Mapping[str, Any], task: IngestTask) -> Row:
    requests = row["requests"]
    return {
        "ts_ms": row["ts_ms"] + _SECOND_MS,
        "cluster": task.cluster,
        "client_id": row["client_id"],
        "broker": "",
        "throttle_ms": row["throttle_sum_ms"] / requests if requests else float(row["throttle_ms"]),
        "max_throttle_ms": float(row["throttle_ms"]),
        "samples": requests or None,
        "source": "load-test",
        "src_file": str(task.path),
    }
