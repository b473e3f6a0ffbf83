"""Lines of a stream as charges, by the parser of the ingest in Spark's Python workers.

Invariant: a line that can't be read becomes a row with its text and a reason alone, to be counted and kept.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_quotas.pipeline.formats.event_log import parse_daemon_line
from kafka_quotas.pipeline.formats.rows import BadLineError, EventRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHARGE_COLUMNS: Final = (
    "cluster",
    "broker_id",
    "ts_ms",
    "user",
    "client_id",
    "quota_type",
    "bytes",
    "thread_ms",
    "mutations",
    "throttle_ms",
    "is_exempt",
)
"""Columns of events that the live state needs."""
RAW: Final = "raw"
REASON: Final = "reason"
_TYPES: Final = (
    pa.string(),
    pa.int32(),
    pa.int64(),
    pa.string(),
    pa.string(),
    pa.string(),
    pa.int64(),
    pa.float64(),
    pa.int32(),
    pa.int64(),
    pa.bool_(),
)
_CHARGES: Final = pa.schema(list(zip(CHARGE_COLUMNS, _TYPES, strict=True)))
_TEXTS: Final = [field.name for field in _CHARGES if field.type == pa.string()]
_CODED: Final = pa.dictionary(pa.int32(), pa.string())
_CHARGES_OF_FILES: Final = pa.schema([field.with_type(_CODED) if field.name in _TEXTS else field for field in _CHARGES])
_SPARK_SCHEMA: Final = (
    "cluster string, broker_id int, ts_ms long, user string, client_id string, quota_type string, bytes long, "
    "thread_ms double, mutations int, throttle_ms long, is_exempt boolean, raw string, reason string"
)
_SHOWN_LETTERS: Final = 4096
_PLACES: Final = tuple(EventRow._fields.index(name) for name in CHARGE_COLUMNS)


def charges_of_lines(lines: "DataFrame") -> "DataFrame":
    """Return the charges in a column `value` of lines.

    Lines that are no charges come as rows with the columns raw and reason.
    """
    return lines.mapInArrow(_parse_batches, _SPARK_SCHEMA)


def files_of_events(events: "DataFrame") -> "DataFrame":
    """Return the file of each event in a column `file`, for `read_charges`."""
    return events.selectExpr("input_file_name() as file")


def read_charges(names: Iterable[str]) -> pa.Table:
    """Read the charges from Parquet files of events, given the names that Spark uses.

    A row that Java hands to Python costs as much as all later work on it. Reading the file here costs a tenth of that.

    Raises:
        OSError: A file can't be read.
    """
    paths = sorted(unquote(urlsplit(name).path) for name in names)
    files = [path for path in paths if set(CHARGE_COLUMNS) <= set(pq.read_schema(path).names)]  # there are other tables
    tables = [
        pq.ParquetFile(path, read_dictionary=_TEXTS)
        .read(columns=list(CHARGE_COLUMNS))
        .select(CHARGE_COLUMNS)
        .cast(_CHARGES_OF_FILES)
        for path in files
    ]
    return pa.concat_tables(tables) if tables else _CHARGES.empty_table()


def _parse_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([*_CHARGES, (RAW, pa.string()), (REASON, pa.string())])
    for batch in batches:
        rows = [_parse(line) for line in batch.column(0).to_pylist()]
        columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _parse(line: bytes | None) -> tuple[Any, ...]:
    try:
        event = parse_daemon_line(line or b"", offset=0, src_file="")
    except BadLineError as error:
        raw = (line or b"")[: 4 * _SHOWN_LETTERS].decode("utf-8", "backslashreplace")[:_SHOWN_LETTERS]
        return (*(None,) * len(CHARGE_COLUMNS), raw, str(error))
    return (*(event[place] for place in _PLACES), None, None)
