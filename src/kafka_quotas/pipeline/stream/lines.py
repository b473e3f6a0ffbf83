"""Events of a stream as charges: lines of the daemon's event log, or rows of Parquet files.

Invariant: a line that can't be read, and an event from the future, becomes a row with its text and the reason, to be
counted and kept. A broker's clock follows its latest event: believed, one from the future would make all after it late.
"""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kafka_quotas.pipeline.formats.event_log import parse_daemon_line
from kafka_quotas.pipeline.formats.rows import BadLineError, EventRow, shown_text
from kafka_quotas.pipeline.kernels.compiled import NUMBA
from kafka_quotas.pipeline.kernels.event_scan import (
    BROKER_ID,
    BYTES,
    CLIENT_ID,
    CLUSTER,
    FIGURES,
    IS_EXEMPT,
    MUTATIONS,
    QUOTA_TYPE,
    QUOTA_TYPES,
    TEXTS,
    THROTTLE_MS,
    TS_MS,
    USER,
    scan_events,
)
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS, EVENTS

AHEAD_MS: Final = 60_000
"""How far the clocks of brokers may be ahead of this machine's."""
UNREADABLE: Final = pa.schema([("raw", pa.string()), ("reason", pa.string())])
"""Columns of what is set aside."""
_CODED: Final = pa.dictionary(pa.int32(), pa.string())
CHARGES: Final = pa.schema(
    [
        (field.name, _CODED if field.type == pa.string() else field.type)
        for field in EVENTS.arrow_schema()
        if field.name in CHARGE_COLUMNS
    ]
)
"""Columns of events that charges follow from, with texts as dictionaries."""
_PLACES: Final = tuple(EventRow._fields.index(name) for name in CHARGES.names)


class ReadEvents(NamedTuple):
    """Events that were read, and what is set aside."""

    charges: pa.Table
    """Rows by the schema `CHARGES`."""
    unreadable: pa.Table
    """Rows by the schema `UNREADABLE`."""


def read_lines(lines: pa.Array) -> ReadEvents:
    """Read lines of the daemon's event log, given as bytes."""
    if not NUMBA:
        return _parse(lines.to_pylist())
    starts = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
    size = int(starts[-1] - starts[0])
    buf = np.empty(size + 1, np.uint8)
    buf[:size] = np.frombuffer(lines.buffers()[2] or b"", np.uint8, size, int(starts[0]))
    buf[size] = ord("\n")  # no step of the scan passes over it
    figures, threads = np.empty((FIGURES, len(lines)), np.int64), np.empty(len(lines))
    spans = np.empty((len(lines) * TEXTS, 2), np.int64)
    slots = np.full(1 << (2 * TEXTS * len(lines)).bit_length(), -1, np.int32)
    odd = np.empty(len(lines), np.int64)
    taken, odds, texts = scan_events(buf, starts - starts[0], figures, threads, spans, slots, odd)
    content = buf.tobytes()
    names = [str(content[start:stop], "ascii") for start, stop in spans[:texts].tolist()]
    scanned = _scanned(figures[:, :taken], threads[:taken], names)
    if not odds:
        return ReadEvents(scanned, UNREADABLE.empty_table())
    parsed = _parse(lines.take(pa.array(odd[:odds])).to_pylist())
    return ReadEvents(pa.concat_tables([scanned, parsed.charges]), parsed.unreadable)


def read_files(contents: pa.Array) -> ReadEvents:
    """Read Parquet files of events, given as bytes, where a file of another table has none."""
    tables = [_parquet(each.as_buffer()) for each in contents]
    return ReadEvents(pa.concat_tables([CHARGES.empty_table(), *tables]), UNREADABLE.empty_table())


def _parquet(content: pa.Buffer) -> pa.Table:
    if not set(CHARGES.names) <= set(pq.read_schema(pa.BufferReader(content)).names):
        return CHARGES.empty_table()
    texts = [field.name for field in CHARGES if field.type == _CODED]
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts)
    return file.read(columns=CHARGES.names, use_threads=False).select(CHARGES.names).cast(CHARGES)


def without_future(read: ReadEvents, now_ms: int) -> ReadEvents:
    """Return the events that can have been by now, with the others set aside."""
    latest_ms = pc.max(read.charges["ts_ms"]).as_py()
    if latest_ms is None or latest_ms <= now_ms + AHEAD_MS:
        return read
    is_future = pc.greater(read.charges["ts_ms"], now_ms + AHEAD_MS)
    refused = read.charges.filter(is_future).to_pylist()
    raw = [json.dumps(row, default=str) for row in refused]
    reasons = [f"its time is {(row['ts_ms'] - now_ms) / 1000:,.0f} s in the future" for row in refused]
    set_aside = pa.table([raw, reasons], schema=UNREADABLE)
    return ReadEvents(read.charges.filter(pc.invert(is_future)), pa.concat_tables([read.unreadable, set_aside]))


def _scanned(figures: NDArray[np.int64], threads: NDArray[np.float64], names: Sequence[str]) -> pa.Table:
    texts = pa.array(names, pa.string())
    columns = {
        "cluster": _coded(figures[CLUSTER], texts),
        "broker_id": figures[BROKER_ID].astype(np.int32),
        "ts_ms": figures[TS_MS],
        "user": _coded(figures[USER], texts),
        "client_id": _coded(figures[CLIENT_ID], texts),
        "quota_type": _coded(figures[QUOTA_TYPE], pa.array(QUOTA_TYPES)),
        "bytes": figures[BYTES],
        "thread_ms": pa.array(threads, from_pandas=True),
        "mutations": figures[MUTATIONS].astype(np.int32),
        "throttle_ms": figures[THROTTLE_MS],
        "is_exempt": figures[IS_EXEMPT].astype(np.bool_),
    }
    return pa.table([columns[name] for name in CHARGES.names], schema=CHARGES)


def _coded(numbers: NDArray[np.int64], texts: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), texts)


def _parse(lines: Sequence[bytes | None]) -> ReadEvents:
    rows, raw, reasons = [], [], []
    for line in lines:
        try:
            event = parse_daemon_line(line or b"", offset=0, src_file="")
        except BadLineError as error:
            raw.append(shown_text(line or b""))
            reasons.append(str(error))
        else:
            rows.append([event[place] for place in _PLACES])
    columns = zip(*rows, strict=True) if rows else ((),) * len(_PLACES)
    arrays = [pa.array(column, _plain(field)).cast(field.type) for column, field in zip(columns, CHARGES, strict=True)]
    return ReadEvents(pa.table(arrays, schema=CHARGES), pa.table([raw, reasons], schema=UNREADABLE))


def _plain(field: pa.Field) -> pa.DataType:
    return pa.string() if field.type == _CODED else field.type
