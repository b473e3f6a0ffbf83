"""Events with exact bytes: a line of the daemon's event log, and the load tester's `samples.parquet`.

A line is one charge of one quota, in version 1 of `docs/reference/event-log.md`. Its thread time comes from the
daemon's cost model. `docs/reference/load-test.md` lists the columns of the samples, whose seconds are clients' view of
throttling too. Charges of connections are skipped, since the jobs have no quota of them. Events from acknowledgements
are flagged as estimated, since several of them may be one request.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
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
INT_LIMIT: Final = 2**31 - 1
API_LIMIT: Final = 2**15
_Amount = Annotated[int, msgspec.Meta(ge=0, lt=AMOUNT_LIMIT)]
_Int = Annotated[int, msgspec.Meta(ge=0, lt=INT_LIMIT)]


class _Charge(msgspec.Struct, frozen=True):
    """A line of the daemon's event log."""

    v: Literal[1]
    ts_ms: Annotated[int, msgspec.Meta(ge=0, lt=LAST_MS)]
    cluster: str
    broker_id: _Int | None
    connection: int | str
    user: str
    client_id: str
    ip: str
    quota_type: QuotaType
    api_key: Annotated[int, msgspec.Meta(ge=-1, lt=API_LIMIT)]
    """-1 for what another program asked the daemon to charge."""
    bytes: Annotated[int, msgspec.Meta(gt=-AMOUNT_LIMIT, lt=AMOUNT_LIMIT)]
    """Below 0 for what is given back: of a fetch that was answered empty, or by another program."""
    thread_ms: float
    mutations: Annotated[int, msgspec.Meta(gt=-INT_LIMIT, lt=INT_LIMIT)]
    throttle_ms: _Amount
    is_exempt: bool


_CHARGE: Final = msgspec.json.Decoder(_Charge)


def parse_daemon_line(line: bytes, *, offset: int, src_file: str) -> EventRow:
    """Parse the event of a line, or raise a `BadLineError` if it is not a charge of version 1."""
    try:
        charge = _CHARGE.decode(line)
    except msgspec.ValidationError as error:
        raise BadLineError(f"not an event of version {VERSION}: {error}") from error
    except UnicodeDecodeError as error:
        raise BadLineError("not UTF-8") from error
    except (ValueError, RecursionError) as error:  # counted by reason, so without the place, which differs by line
        raise BadLineError(f"broken JSON: {str(error).partition(' (byte ')[0]}") from error
    may_give_back = charge.quota_type is QuotaType.FETCH or charge.api_key < 0  # by another program
    if min(charge.bytes, charge.mutations) < 0 and not may_give_back:
        raise BadLineError(f"not an event of version {VERSION}: less than 0 of a charge that no broker gives back")
    is_request = charge.quota_type is QuotaType.REQUEST
    return EventRow(
        cluster=charge.cluster,
        broker_id=-1 if charge.broker_id is None else charge.broker_id,
        ts_ms=charge.ts_ms,
        user=charge.user,
        client_id=charge.client_id,
        ip=charge.ip,
        quota_type=charge.quota_type.value,
        bytes=charge.bytes,
        thread_ms=charge.thread_ms if is_request else None,
        mutations=charge.mutations,
        throttle_ms=charge.throttle_ms,
        api_key=charge.api_key,
        is_exempt=charge.is_exempt,
        is_estimated=False,
        is_thread_estimated=is_request,
        connection=str(charge.connection),
        src_file=src_file,
        src_offset=offset,
    )


_PARQUET_MAGIC: Final = b"PAR1"
_COLUMNS: Final = (
    *("kind", "ts_ms", "broker_id", "user", "client_id", "quota_type", "bytes", "mutations", "requests"),
    *("throttle_ms", "throttle_sum_ms", "source"),
)
_CHARGED: Final = frozenset({*(each.value for each in QuotaType), "request_rate"})
_SECOND_MS: Final = 1000
_BATCH_ROWS: Final = 20_000
_SHOWN_BYTES: Final = 4096


def read_load_test(task: IngestTask, parsed: ParsedBatch) -> Iterator[ParsedBatch]:
    """Yield the rows in batches, as `parse_task` does."""
    counts, src_file = parsed.counts, str(task.path)
    try:
        if read_head(task.path, len(_PARQUET_MAGIC)) != _PARQUET_MAGIC:
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
    elif not (abs(row["bytes"]) < AMOUNT_LIMIT and 0 <= row["throttle_ms"] < AMOUNT_LIMIT):
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
