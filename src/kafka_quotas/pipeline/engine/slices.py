"""Packed rows of events as the slices of tasks, on this machine and in Spark's workers.

Invariants: a slice has whole seconds of every client in it. Slices of one task follow each other in time. Clients that
may share a bucket are in one task. Memory does not grow with the table: a task has about a slice's events, or one
bucket's, which come in slices.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import NDArray

from kafka_quotas.pipeline.tables.packed_events import PackedEvents, event_counts, unpack

Int64s = NDArray[np.int64]

SLICE_EVENTS: Final = 1 << 20
"""About how many events are in memory per task."""
_FEWEST_EVENTS: Final = 1 << 16
"""Fewer events are not worth a task of their own."""
_TASKS_PER_WORKER: Final = 4
_SECOND_US: Final = 1_000_000
_MINUTE_MS: Final = 60_000
_GAP_MS: Final = 30 * _MINUTE_MS
"""Time without any event from which on nothing was recorded: a cluster in use is never silent for as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRange:
    """Clients by number, and how many events they have."""

    first: int
    last: int
    """Last number, inclusive."""
    events: int


def packed_columns(columns: Iterable[str]) -> list[str]:
    """Return the columns of packed rows from which slices have the wanted ones."""
    return list(dict.fromkeys(("client", "first_at", "ts_ms", *columns)))


class EventRanges:
    """The events of a data folder by ranges of clients, read on this machine."""

    def __init__(self, packed: PackedEvents, *, slice_events: int = SLICE_EVENTS) -> None:
        self._packed = packed
        self._slice_events = slice_events

    @cached_property
    def _index(self) -> pa.Table:
        """Client, first time and number of events of each packed row."""
        return self._packed.table(["client", "first_at", "events"])

    def ranges(self, *, shift: int, workers: int) -> list[ClientRange]:
        """Divide the clients into ranges of about equal numbers of events, several for each worker.

        Numbers that differ in the lowest `shift` bits only are in one range.
        """
        groups, places = np.unique(self._index["client"].to_numpy() >> shift, return_inverse=True)
        counts = np.bincount(places, self._index["events"].to_numpy(), groups.size).astype(np.int64)
        target = max(int(counts.sum()) // (workers * _TASKS_PER_WORKER) + 1, _FEWEST_EVENTS)
        return [
            ClientRange(
                first=int(groups[begin]) << shift,
                last=((int(groups[end - 1]) + 1) << shift) - 1,
                events=int(counts[begin:end].sum()),
            )
            for begin, end in _joined(counts, min(target, self._slice_events))
        ]

    def slices(self, clients: ClientRange, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the events of a range of clients in slices.

        Raises:
            KafkaQuotasError: A file can't be read.
        """
        own = (ds.field("client") >= clients.first) & (ds.field("client") <= clients.last)
        if clients.events <= 2 * self._slice_events:
            rows = self._read(columns, own)
            yield unpack(rows, ["client", *columns])
        else:
            yield from in_time(self._windows(clients, columns, own), columns, most=self._slice_events)

    def _windows(self, clients: ClientRange, columns: Sequence[str], own: ds.Expression) -> Iterator[pa.RecordBatch]:
        """Yield the packed rows of a range by their first times, of about a slice's events at a time."""
        numbers = self._index["client"].to_numpy()
        index = self._index.filter(pa.array((numbers >= clients.first) & (numbers <= clients.last))).sort_by("first_at")
        times_us, ends = index["first_at"].cast(pa.int64()).to_numpy(), np.cumsum(index["events"].to_numpy())
        borders = times_us[np.searchsorted(ends, np.arange(self._slice_events, ends[-1], self._slice_events))]
        for begin, end in pairwise(np.unique([times_us[0], *borders, times_us[-1] + 1]).tolist()):
            first = ds.field("first_at")
            yield self._read(columns, own & (first >= _instant(begin)) & (first < _instant(end)))

    def _read(self, columns: Sequence[str], where: ds.Expression) -> pa.RecordBatch:
        rows = self._packed.table(packed_columns(columns), where)
        batches = rows.sort_by([("client", "ascending"), ("first_at", "ascending")]).combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)


def _instant(at_us: int) -> pa.Scalar:
    return pa.scalar(at_us, pa.timestamp("us", tz="UTC"))


def tasks(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], *, shift: int, most: int = SLICE_EVENTS
) -> Iterator[Iterator[pa.Table]]:
    """Yield the slices of each task, which must be taken before the next task.

    Args:
        batches: Packed rows by `client >> shift`, then by their first times.
        columns: The columns of a slice.
        shift: Bits of a number in which clients of one bucket may differ.
        most: Events of a task, unless a single bucket has more.
    """
    whole: list[pa.RecordBatch] = []
    events = 0
    for _, own in groupby(_by_group(batches, shift), key=itemgetter(0)):
        pieces = map(itemgetter(1), own)
        rows, count = [], 0
        for piece in pieces:
            rows.append(piece)
            count += _events(piece)
            if count > most:
                break
        if events + count > most and whole:
            yield iter([_slice(whole, columns)])
            whole, events = [], 0
        if count > most:
            yield in_time(chain(rows, pieces), columns, most=most)
        else:
            whole += rows
            events += count
    if whole:
        yield iter([_slice(whole, columns)])


def in_time(rows: Iterable[pa.RecordBatch], columns: Sequence[str], *, most: int) -> Iterator[pa.Table]:
    """Yield slices of about some number of events, given packed rows in batches by their first times."""
    held: list[pa.Table] = []
    for batch in rows:
        if sum(each.num_rows for each in held) >= most:
            # what comes later begins no earlier than this batch
            first_us = int(batch.column("first_at").cast(pa.int64()).to_numpy().min())
            events = pa.concat_tables(held).unify_dictionaries()
            is_before = events["ts_ms"].to_numpy() < first_us // _SECOND_US * 1000
            if is_before.any():
                yield events.filter(pa.array(is_before)).combine_chunks()
            held = [events.filter(pa.array(~is_before))]
        held.append(unpack(batch, list(dict.fromkeys(["client", "ts_ms", *columns]))))
    if held:
        yield pa.concat_tables(held).unify_dictionaries().combine_chunks()


def _by_group(batches: Iterable[pa.RecordBatch], shift: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of batches bucket by bucket, with the bucket's part of the clients' numbers."""
    for batch in batches:
        groups = batch.column("client").to_numpy() >> shift
        starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1])[: groups.size])
        for begin, end in pairwise([*starts.tolist(), groups.size]):
            yield int(groups[begin]), batch.slice(begin, end - begin)


def _events(batch: pa.RecordBatch) -> int:
    return int(event_counts(batch).sum())


def _slice(rows: Sequence[pa.RecordBatch], columns: Sequence[str]) -> pa.Table:
    return unpack(pa.Table.from_batches(rows), list(dict.fromkeys(["client", *columns])))


def _joined(events: Int64s, target: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of neighbouring groups that have about the target together, one at least."""
    begin, total = 0, 0
    for place, count in enumerate(events.tolist()):
        if place > begin and total + count > target:
            yield begin, place
            begin, total = place, 0
        total += count
    if events.size:
        yield begin, len(events)


def minutes_of(rows: pa.RecordBatch) -> pa.Table:
    """Return each minute with events of some packed rows, with the times of its first and last one."""
    times_ms = rows.column("ts_ms").flatten().to_numpy()
    minutes = times_ms // _MINUTE_MS
    starts = np.flatnonzero(np.append(True, minutes[1:] != minutes[:-1])[: minutes.size])
    bounds = (each.reduceat(times_ms, starts) if starts.size else times_ms for each in (np.minimum, np.maximum))
    return joined_minutes(pa.table([minutes[starts], *bounds], ["minute", "begin", "end"]))


def joined_minutes(minutes: pa.Table) -> pa.Table:
    """Return each minute once, in order."""
    found = minutes.group_by("minute", use_threads=False).aggregate([("begin", "min"), ("end", "max")])
    return found.rename_columns(["minute", "begin", "end"]).sort_by("minute")


def recorded_s(minutes: pa.Table) -> int:
    """Return the recorded seconds without the gaps between events, given all minutes in order."""
    begins, ends = minutes["begin"].to_numpy(), minutes["end"].to_numpy()
    if not begins.size:
        return 0
    is_gap = begins[1:] - ends[:-1] > _GAP_MS
    firsts, lasts = np.append(begins[:1], begins[1:][is_gap]), np.append(ends[:-1][is_gap], ends[-1:])
    found: np.signedinteger[Any] = (lasts // 1000 - firsts // 1000 + 1).sum()
    return int(found)
