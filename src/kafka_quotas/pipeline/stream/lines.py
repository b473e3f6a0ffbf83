"""Lines of a stream as charges, by the parser of the ingest in Spark's Python workers.

Invariant: a line that can't be read becomes a row with its text and a reason alone, to be counted and kept.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_quotas.pipeline.formats.event_log import parse_daemon_line
from kafka_quotas.pipeline.formats.rows import BadLineError, EventRow, shown_text
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS, EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RAW: Final = "raw"
REASON: Final = "reason"
_CHARGES: Final = pa.schema(
    [(field.name, field.type) for field in EVENTS.arrow_schema() if field.name in CHARGE_COLUMNS]
)
_PARSED: Final = pa.schema([*_CHARGES, (RAW, pa.string()), (REASON, pa.string())])
_TEXTS: Final = [field.name for field in _CHARGES if field.type == pa.string()]
_CODED: Final = pa.dictionary(pa.int32(), pa.string())
_CHARGES_OF_FILES: Final = pa.schema([field.with_type(_CODED) if field.name in _TEXTS else field for field in _CHARGES])
_PLACES: Final = tuple(EventRow._fields.index(name) for name in _CHARGES.names)


def charges_of_lines(lines: "DataFrame") -> "DataFrame":
    """Return the charges in a column `value` of lines.

    Lines that are no charges come as rows with the columns raw and reason.
    """
    from kafka_quotas.pipeline.engine.spark import spark_schema  # noqa: PLC0415 - loads PySpark

    return lines.mapInArrow(_parse_batches, spark_schema(_PARSED))


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
    files = [path for path in paths if set(_CHARGES.names) <= set(pq.read_schema(path).names)]  # there are other tables
    tables = [
        pq.ParquetFile(path, read_dictionary=_TEXTS)
        .read(columns=_CHARGES.names)
        .select(_CHARGES.names)
        .cast(_CHARGES_OF_FILES)
        for path in files
    ]
    return pa.concat_tables(tables) if tables else _CHARGES.empty_table()


def _parse_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [_parse(line or b"") for line in batch.column(0).to_pylist()]
        columns = zip(*rows, strict=True) if rows else ((),) * len(_PARSED)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _PARSED, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_PARSED)


def _parse(line: bytes) -> tuple[Any, ...]:
    try:
        event = parse_daemon_line(line, offset=0, src_file="")
    except BadLineError as error:
        return (*(None,) * len(_PLACES), shown_text(line), str(error))
    return (*(event[place] for place in _PLACES), None, None)
