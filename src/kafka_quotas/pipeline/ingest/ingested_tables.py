"""The tables of an ingest: parsed rows as Arrow batches, the clients of events, and counts of quarantine."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.pipeline.buckets.charges import charges_of, whole_amounts
from kafka_quotas.pipeline.formats.task import EventRow, ParsedBatch
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.client_ranges import NAMES, same_number_error
from kafka_quotas.pipeline.tables.clients import client_number
from kafka_quotas.pipeline.tables.schemas import (
    CHARGED_TYPES,
    CLIENT_THROTTLE,
    CLIENTS,
    EVENTS,
    METRICS,
    QUARANTINE,
    TableSchema,
)

PARSED_EVENTS: Final = pa.schema([EVENTS.arrow_schema().field(name) for name in EventRow._fields])
"""The columns of events as parsers give them."""
FAULT_COLUMNS: Final = ("src_file", "reason", "line_no")
"""Columns of quarantine by which faults are counted."""
_MOST_FAULTS: Final = 10_000
_MS_PER_DAY: Final = 86_400_000


def arrow_batches(parsed: ParsedBatch, *, ingest: int) -> Iterator[tuple[TableSchema, pa.RecordBatch]]:
    """Yield a batch for each table that has rows, which belong to an ingest."""
    parsed_events = [_batch(PARSED_EVENTS, list(zip(*parsed.events, strict=True)))] if parsed.events else []
    for batch in [*parsed_events, *parsed.event_batches]:
        yield EVENTS, _event_batch(batch, ingest)
    for table, rows in (
        (QUARANTINE, parsed.quarantine),
        (METRICS, parsed.metrics),
        (CLIENT_THROTTLE, parsed.client_throttle),
    ):
        if rows:
            columns = [*zip(*rows, strict=True), pa.repeat(pa.scalar(ingest, pa.int64()), len(rows))]
            yield table, _batch(table.arrow_schema(), columns)


def _event_batch(parsed: pa.RecordBatch, ingest: int) -> pa.RecordBatch:
    """Add to parsed events their day, the number of their client, and the ingest."""
    ingests = pa.repeat(pa.scalar(ingest, pa.int64()), parsed.num_rows)
    return _batch(
        EVENTS.arrow_schema(), [days(parsed.column("ts_ms")), *parsed.columns, client_numbers(parsed), ingests]
    )


def client_numbers(events: pa.RecordBatch) -> pa.Array:
    """Return the number of each event's client, each computed once."""
    codes = np.zeros(events.num_rows, dtype=np.int64)
    for column in NAMES:
        encoded = events.column(column).dictionary_encode()
        codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
    places = pa.array(codes).dictionary_encode().indices.to_numpy()  # hashed: sorting takes five times as long
    firsts = np.zeros(places.max(initial=-1) + 1, dtype=np.int64)
    firsts[places[::-1]] = np.arange(places.size)[::-1]
    clients = events.select(list(NAMES)).take(pa.array(firsts)).to_pylist()
    return pa.array([client_number(**client) for client in clients], pa.int64()).take(pa.array(places))


def days(ts_ms: pa.Array) -> pa.Array:
    """Return the days in UTC of times in ms since 1970."""
    return pc.floor(pc.divide(pc.cast(ts_ms, pa.float64()), _MS_PER_DAY)).cast(pa.int32()).cast(pa.date32())


def _batch(schema: pa.Schema, columns: Sequence[Sequence[object] | pa.Array]) -> pa.RecordBatch:
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def clients_of(events: pa.Table) -> pa.Table:
    """Return the rows of `clients` for events of one ingest, sorted by client and time."""
    numbers, times_ms = events["client"].to_numpy(), events["ts_ms"].to_numpy()
    starts = np.flatnonzero(np.concatenate([np.ones(min(numbers.size, 1), dtype=bool), numbers[1:] != numbers[:-1]]))
    if not starts.size:
        return CLIENTS.arrow_schema().empty_table()
    seconds = times_ms // 1000
    is_next = (numbers[1:] != numbers[:-1]) | (seconds[1:] != seconds[:-1])
    second_starts = np.flatnonzero(np.concatenate([[True], is_next]))
    sums = np.add.reduceat(events["bytes"].to_numpy(), second_starts)
    ends = np.append(starts[1:], numbers.size) - 1
    firsts = events.select(["client", *NAMES]).take(pa.array(starts))
    _require_one_name_each(events, numbers)
    figures = [
        np.diff(np.append(starts, numbers.size)),
        times_ms[starts],
        times_ms[ends],
        np.maximum.reduceat(sums, np.searchsorted(second_starts, starts)),
    ]
    ingest = pa.repeat(events["ingest"][0], starts.size)
    columns = [*firsts.columns, *map(pa.array, figures), ingest, *_charge_columns(events, numbers, starts)]
    return pa.table(
        [pa.chunked_array(each) if isinstance(each, list) else each for each in columns], CLIENTS.column_names
    ).cast(CLIENTS.arrow_schema())


def _charge_columns(events: pa.Table, numbers: NDArray[np.int64], starts: NDArray[np.int64]) -> Iterator[pa.Array]:
    """Yield the columns of charges of each type, of events whose clients begin at some places."""
    found = {
        each.quota_type.value: each
        for each in charges_of(events, numbers, lambda quota_type: quota_type.value in CHARGED_TYPES)
    }
    for kind in CHARGED_TYPES:
        if kind not in found:
            yield from [pa.array(np.zeros(starts.size, np.int64))] * 3 + [pa.nulls(starts.size, pa.int64())] * 2
            continue
        clients, times_ms, amounts = found[kind].clients, found[kind].times_ms, whole_amounts(found[kind])
        is_first = np.append(True, clients[1:] != clients[:-1])
        is_second = is_first | np.append(True, times_ms[1:] // 1000 != times_ms[:-1] // 1000)
        begins, seconds = np.flatnonzero(is_first), np.flatnonzero(is_second)
        ends = np.append(begins[1:], clients.size) - 1
        in_second = np.add.reduceat(np.maximum(whole_amounts(found[kind], is_at_least=True), 0), seconds)
        peaks = np.maximum.reduceat(in_second, np.searchsorted(seconds, begins))
        places = np.searchsorted(numbers[starts], clients[begins])
        is_without = np.ones(starts.size, dtype=bool)
        is_without[places] = False
        counts, sums = np.diff(np.append(begins, clients.size)), np.add.reduceat(amounts, begins)
        for place, figures in enumerate((counts, sums, peaks, times_ms[begins], times_ms[ends])):
            column = np.zeros(starts.size, dtype=np.int64)
            column[places] = figures
            yield pa.array(column, mask=is_without if place > 2 else None)


def _require_one_name_each(events: pa.Table, numbers: NDArray[np.int64]) -> None:
    is_same = numbers[1:] == numbers[:-1]
    for name in NAMES:
        codes = events[name].combine_chunks().dictionary_encode().indices.to_numpy()
        different = np.flatnonzero(is_same & (codes[1:] != codes[:-1]))
        if different.size:
            raise same_number_error(events.slice(int(different[0]), 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A reason for which lines of a file are in quarantine."""

    DOCUMENT: ClassVar = "file=src_file reason lines first_line=first_line_no"
    src_file: str
    reason: str
    lines: int
    first_line_no: int
    """Number of the first such line."""


def count_faults(batches: Iterable[pa.RecordBatch]) -> tuple[Fault, ...]:
    """Return the faults in rows of quarantine, the most frequent first.

    Where lines differ in their reasons, as where rubbish is quoted, some ten thousand of the most frequent are counted.
    """
    kinds: dict[tuple[str, str], tuple[int, int]] = {}
    for batch in batches:
        rows = pa.table(batch).group_by(["src_file", "reason"]).aggregate([("line_no", "count"), ("line_no", "min")])
        for row in rows.to_pylist():
            kind = row["src_file"], row["reason"]
            lines, first = kinds.get(kind, (0, row["line_no_min"]))
            kinds[kind] = lines + row["line_no_count"], min(first, row["line_no_min"])
        if len(kinds) > 2 * _MOST_FAULTS:
            kinds = dict(sorted(kinds.items(), key=lambda each: -each[1][0])[:_MOST_FAULTS])
    faults = (
        Fault(src_file=src_file, reason=reason, lines=lines, first_line_no=first)
        for (src_file, reason), (lines, first) in kinds.items()
    )
    return tuple(sorted(faults, key=lambda fault: (-fault.lines, fault.src_file, fault.first_line_no)))
