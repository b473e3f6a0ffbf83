"""Events of a stream as charges: lines of the daemon's event log, or packed rows.

Lines are scanned in machine code. A line is taken only if `formats.event_log` gives the same event for it: lines that
the daemon does not write (`json_scan`), those with a field twice or without one that is needed, and figures out of
range go to that parser.

Invariant: a line that can't be read, and an event from the future, becomes a row with its text and the reason, to be
counted and kept. A broker's clock follows its latest event: believed, one from the future would make all after it late.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.formats.event_log import API_LIMIT, INT_LIMIT, VERSION, parse_daemon_line
from kafka_quotas.pipeline.formats.task import LAST_MS, BadLineError, ParsedBatch, TaskCounts, shown_text
from kafka_quotas.pipeline.ingest.ingested_tables import arrow_batches, packed_tables
from kafka_quotas.pipeline.ingest.json_scan import (
    DECIMAL,
    DEEPEST,
    FLAG,
    FREE,
    KEY,
    NAME,
    ODD,
    STRING,
    WHOLE,
    Member,
    Object,
    Scan,
    reader_of,
    scan_of,
    take_row,
)
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.packed_events import unpack
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS, EVENTS

AHEAD_MS: Final = 60_000
"""How far the clocks of brokers may be ahead of this machine's."""
UNREADABLE: Final = pa.schema([("raw", pa.string()), ("reason", pa.string())])
"""Columns of what is set aside."""
_END: Final = np.uint8(ord("\n"))
"""What no step of the scan passes over."""
_CODED: Final = pa.dictionary(pa.int32(), pa.string())
_PLAIN: Final = pa.schema([field for field in EVENTS.arrow_schema() if field.name in CHARGE_COLUMNS])
CHARGES: Final = pa.schema([(each.name, _CODED if each.type == pa.string() else each.type) for each in _PLAIN])
"""Columns of events that charges follow from, with texts as dictionaries."""

TEXTS: Final = 4
CLUSTER, USER, CLIENT_ID, QUOTA_TYPE = range(TEXTS)
"""Texts of a line, each by its number among the different ones of its kind."""
BROKER_ID, TS_MS, BYTES, MUTATIONS, THROTTLE_MS, IS_EXEMPT = range(TEXTS, TEXTS + 6)
FIGURES: Final = TEXTS + 6
"""Figures of a line: its texts, the broker, -1 if unknown, and its charge."""
_QUOTA_TYPES: Final = frozenset(each.value.encode() for each in QuotaType)
_read_event = reader_of(
    Object(
        (
            Member("v", WHOLE, KEY, below=VERSION + 1),
            Member("ts_ms", WHOLE, FREE + TS_MS, below=LAST_MS),
            Member("cluster", STRING, CLUSTER),
            Member("broker_id", WHOLE, FREE + BROKER_ID, below=INT_LIMIT, is_nullable=True),
            Member("connection", NAME),
            Member("user", STRING, USER),
            Member("client_id", STRING, CLIENT_ID),
            Member("ip", STRING, TEXTS),
            Member("quota_type", STRING, QUOTA_TYPE),
            Member("api_key", WHOLE, FREE, below=API_LIMIT),
            Member("bytes", WHOLE, FREE + BYTES),
            Member("thread_ms", DECIMAL),
            Member("mutations", WHOLE, FREE + MUTATIONS, below=INT_LIMIT),
            Member("throttle_ms", WHOLE, FREE + THROTTLE_MS),
            Member("is_exempt", FLAG, FREE + IS_EXEMPT),
        )
    )
)


@compiled
def scan_events(  # noqa: PLR0917 - as `scan_of` calls it
    buf: Any, ends: Any, kinds: Any, figures: Any, threads: Any, spans: Any, slots: Any, counts: Any
) -> int:
    """Scan lines that follow one another without a gap.

    Thread time is that of each line, charged or not.
    """
    taken = 0
    row = np.zeros(FIGURES, np.int64)
    numbers, reals = np.zeros(FREE + FIGURES, np.int64), np.zeros(1)
    places = np.zeros((TEXTS + 1, 2), np.int64)
    outer = np.empty((DEEPEST, 4), np.int64)
    for line in range(ends.size - 1):
        at = _read_event(buf, ends[line], numbers, reals, places, outer)
        if at != ends[line + 1] or numbers[KEY] != VERSION:  # or beyond it, where a cut line went on in the next
            kinds[line] = ODD
            continue
        for place in range(TEXTS, FIGURES):
            row[place] = numbers[FREE + place]
        take_row(buf, row, places, figures, spans, slots, counts, taken)
        threads[taken] = reals[0]
        taken += 1
    return taken


class ReadEvents(NamedTuple):
    """Events that were read, and what is set aside."""

    charges: pa.Table
    """Rows by the schema `CHARGES`."""
    unreadable: pa.Table
    """Rows by the schema `UNREADABLE`."""


def read_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[ReadEvents]:
    """Read lines of the daemon's event log, given as bytes in the first column."""
    for batch in batches:
        lines, count = batch.column(0), batch.num_rows
        starts = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + count + 1]
        content = np.frombuffer(lines.buffers()[2] or b"", np.uint8, int(starts[-1] - starts[0]), int(starts[0]))
        buf, ends = np.append(content, _END), starts.astype(np.int64) - int(starts[0])
        scan = scan_of(scan_events, buf, ends, texts=TEXTS, figures=FIGURES)
        known = np.array([each in _QUOTA_TYPES for each in scan.texts[QUOTA_TYPE]], np.bool_)
        is_known = known[scan.figures[QUOTA_TYPE]]
        if not is_known.all():  # the parser says what is wrong
            scan.kinds[np.flatnonzero(scan.kinds != ODD)[~is_known]] = ODD
            scan = scan._replace(figures=scan.figures[:, is_known], reals=scan.reals[is_known])
        yield ReadEvents(_scanned(scan), UNREADABLE.empty_table())
        if (odd := np.flatnonzero(scan.kinds == ODD)).size:
            yield parsed_lines(lines.take(pa.array(odd)).to_pylist())


def read_packed(batches: Iterable[pa.RecordBatch]) -> Iterator[ReadEvents]:
    """Read packed rows of events."""
    for batch in batches:
        yield ReadEvents(unpack(batch, CHARGES.names).cast(CHARGES), UNREADABLE.empty_table())


def pack_lines(batches: Iterable[pa.RecordBatch], *, now_ms: int) -> Iterator[pa.RecordBatch]:
    """Yield the events of lines as packed rows, without those from the future.

    Each line comes with its file and its place there.
    """

    def parsed() -> Iterator[ParsedBatch]:
        for batch in batches:
            rows = ParsedBatch(counts=TaskCounts(number=0))
            for line, src_file, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                with suppress(BadLineError):
                    event = parse_daemon_line(line or b"", offset=offset, src_file=src_file)
                    if event.ts_ms <= now_ms + AHEAD_MS:
                        rows.events.append(event)
            yield rows

    for _, rows in packed_tables(each for own in parsed() for each in arrow_batches(own)):
        yield from rows.to_batches()


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


def _scanned(scan: Scan) -> pa.Table:
    figures, is_of_thread = scan.figures, [each == QuotaType.REQUEST.value.encode() for each in scan.texts[QUOTA_TYPE]]
    is_thread = np.array(is_of_thread, np.bool_)[figures[QUOTA_TYPE]]
    texts = [pa.array(each, pa.binary()).cast(pa.string()) for each in scan.texts]
    columns = {
        "cluster": _coded(figures[CLUSTER], texts[CLUSTER]),
        "broker_id": figures[BROKER_ID].astype(np.int32),
        "ts_ms": figures[TS_MS],
        "user": _coded(figures[USER], texts[USER]),
        "client_id": _coded(figures[CLIENT_ID], texts[CLIENT_ID]),
        "quota_type": _coded(figures[QUOTA_TYPE], texts[QUOTA_TYPE]),
        "bytes": figures[BYTES],
        "thread_ms": pa.array(scan.reals, mask=~is_thread),
        "mutations": figures[MUTATIONS].astype(np.int32),
        "throttle_ms": figures[THROTTLE_MS],
        "is_exempt": figures[IS_EXEMPT].astype(np.bool_),
    }
    return pa.table([columns[name] for name in CHARGES.names], schema=CHARGES)


def _coded(numbers: NDArray[np.int64], texts: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), texts)


def parsed_lines(lines: Sequence[bytes | None]) -> ReadEvents:
    """Parse lines of the daemon's event log one by one, as is done with those that the scan leaves."""
    rows, raw, reasons = [], [], []
    for line in lines:
        try:
            event = parse_daemon_line(line or b"", offset=0, src_file="")
        except BadLineError as error:
            raw.append(shown_text(line or b""))
            reasons.append(str(error))
        else:
            rows.append(event._asdict())
    return ReadEvents(pa.Table.from_pylist(rows, _PLAIN).cast(CHARGES), pa.table([raw, reasons], schema=UNREADABLE))
