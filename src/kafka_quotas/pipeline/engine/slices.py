"""Packed rows of events as the slices of tasks, on this machine and in Spark's workers.

Invariants: a slice has whole seconds of every client in it. Slices of one task follow each other in time. Clients that
may share a bucket are in one task. Memory does not grow with the table: a task has about a slice's events, or one
bucket's, which come in slices. On this machine threads suffice, since the kernels and Arrow release the interpreter
lock; the largest ranges begin first, which keeps one giant client from delaying the end.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import chain, groupby, pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import NDArray

from kafka_quotas.pipeline.engine.job import Job, JobProgress, Watch
from kafka_quotas.pipeline.kernels.order import is_ordered, starts_of
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.packed_events import PackedEvents, event_counts, unpack

Int64s = NDArray[np.int64]

SLICE_EVENTS: Final = 1 << 20
"""About how many events are in memory per task."""
_FEWEST_EVENTS: Final = 1 << 16
"""Fewer events are not worth a task of their own."""
_TASKS_PER_WORKER: Final = 4


class ClientRange(NamedTuple):
    """Clients by number, and how many events they have."""

    first: int
    last: int
    """Last number, inclusive."""
    events: int


def run_here(job: Job, packed: PackedEvents, *, watch: Watch, slice_events: int = SLICE_EVENTS) -> pa.Table:
    """Run a job over the events of a data folder in threads, and return its rows by client."""
    workers = os.cpu_count() or 1
    ranges = client_ranges(packed, shift=job.shift, workers=workers, most=slice_events)

    def run(own: ClientRange) -> list[pa.Table]:
        batches = ordered_rows(packed, own, job.columns, most=slice_events)
        return [job.task(slices) for slices in tasks(batches, job.columns, shift=job.shift, most=slice_events)]

    found: dict[ClientRange, list[pa.Table]] = {}
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="pipeline") as pool:
        running = {pool.submit(run, own): own for own in sorted(ranges, key=lambda own: -own.events)}
        try:
            for future in as_completed(running):
                found[running[future]] = future.result()
                watch(JobProgress(stage=job.name, done=len(found), total=len(ranges)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return pa.concat_tables([job.schema.empty_table(), *(rows for own in ranges for rows in found[own])])


def client_ranges(packed: PackedEvents, *, shift: int, workers: int, most: int = SLICE_EVENTS) -> list[ClientRange]:
    """Divide the clients into ranges of about equal numbers of events, several for each worker.

    Numbers that differ in the lowest `shift` bits only are in one range. A range of more than `most` is of one of them.
    """
    index = packed.table(["client", "events"])
    groups, places = np.unique(index["client"].to_numpy() >> shift, return_inverse=True)
    counts = np.bincount(places, index["events"].to_numpy(), groups.size).astype(np.int64)
    target = min(max(int(counts.sum()) // (workers * _TASKS_PER_WORKER) + 1, _FEWEST_EVENTS), most)
    starts, total = [0][: groups.size], 0
    for place, count in enumerate(counts.tolist()):
        if place > starts[-1] and total + count > target:
            starts.append(place)
            total = 0
        total += count
    return [
        ClientRange(
            first=int(groups[begin]) << shift,
            last=((int(groups[end - 1]) + 1) << shift) - 1,
            events=int(counts[begin:end].sum()),
        )
        for begin, end in pairwise([*starts, groups.size])
    ]


def ordered_rows(
    packed: PackedEvents, clients: ClientRange, columns: Sequence[str], *, most: int = SLICE_EVENTS
) -> Iterator[pa.RecordBatch]:
    """Yield the packed rows of a range by client and time, those of a giant by time, in parts."""
    own = (ds.field("client") >= clients.first) & (ds.field("client") <= clients.last)
    parts = [own]
    if clients.events > 2 * most:
        index = packed.table(["first_at", "events"], own).sort_by("first_at")
        times, ends = index["first_at"], np.cumsum(index["events"].to_numpy())
        borders = [times[place] for place in np.searchsorted(ends, np.arange(most, ends[-1], most)).tolist()]
        first = ds.field("first_at")
        within = [(first >= begin) & (first < end) for begin, end in pairwise(borders) if begin != end]
        parts = [own & each for each in (first < borders[0], *within, first >= borders[-1])]
    for part in parts:
        rows = packed.table(packed_columns(columns), part)
        order = pc.sort_indices(rows, [("client", "ascending"), ("first_at", "ascending")])
        if not is_ordered(order.to_numpy()):  # those of one file are
            rows = rows.take(order)
        yield from rows.combine_chunks().to_batches()


def packed_columns(columns: Iterable[str]) -> list[str]:
    """Return the columns of packed rows from which slices have the wanted ones."""
    return list(dict.fromkeys(("client", "first_at", "ts_ms", *columns)))


class _Piece(NamedTuple):
    """Neighbouring rows of a batch whose clients may share a bucket."""

    group: int
    batch: pa.RecordBatch
    begin: int
    end: int
    events: int


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
    whole: list[_Piece] = []
    events = 0
    for _, pieces in groupby(_pieces(batches, shift), key=lambda each: each.group):
        own, count = [], 0
        for piece in pieces:
            own.append(piece)
            count += piece.events
            if count > most:
                break
        if events + count > most and whole:
            yield iter([_slice(whole, columns)])
            whole, events = [], 0
        if count > most:
            rest = (each.batch.slice(each.begin, each.end - each.begin) for each in chain(own, pieces))
            yield in_time(rest, columns, most=most)
        else:
            whole += own
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
            is_before = events["ts_ms"].to_numpy() < first_us // 1_000_000 * 1000
            if is_before.any():
                yield events.filter(pa.array(is_before)).combine_chunks()
            held = [events.filter(pa.array(~is_before))]
        held.append(unpack(batch, list(dict.fromkeys(["client", "ts_ms", *columns]))))
    if held:
        yield pa.concat_tables(held).unify_dictionaries().combine_chunks()


def _pieces(batches: Iterable[pa.RecordBatch], shift: int) -> Iterator[_Piece]:
    for batch in batches:
        groups = batch.column("client").to_numpy() >> shift
        starts = starts_of(groups)
        counts = np.add.reduceat(event_counts(batch), starts) if starts.size else starts
        for (begin, end), events in zip(pairwise([*starts.tolist(), groups.size]), counts.tolist(), strict=True):
            yield _Piece(int(groups[begin]), batch, begin, end, events)


def _slice(pieces: Sequence[_Piece], columns: Sequence[str]) -> pa.Table:
    rows = []
    for _, several in groupby(pieces, key=lambda each: id(each.batch)):
        own = list(several)
        rows.append(own[0].batch.slice(own[0].begin, own[-1].end - own[0].begin))
    return unpack(pa.Table.from_batches(rows), list(dict.fromkeys(["client", *columns])))
