"""Events of an ingest on Spark between the tasks that parse them and those that write them, as Arrow streams.

Rows that Spark moves and sorts one by one cost it four times what parsing costs. So a task sorts the events that it
parses and packs them in chunks, each a row with an Arrow stream. By samples of the chunks the driver chooses where to
cut all events into ranges. Workers cut the chunks there, and merge the pieces of a range.

Contract: no Spark. A chunk has the events of one day and file, by client and time, in the order of the file where both
are equal. Pieces come to be merged by range, day, file and offset.

Invariants: the chunks of a task are the same whenever it runs. A task holds a chunk or a range, whatever the size of
the ingest.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.pipeline.engine.event_pieces import packed, unpacked
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.event_files import by_day, client_order, sorted_by_client
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS, EVENTS

Int64s = NDArray[np.int64]

CLIENT_COLUMNS: Final = (*CHARGE_COLUMNS, "client", "ingest")
"""Columns that the rows of `clients` follow from."""
_LARGEST_RANGE: Final = 1 << 20
"""About how many events a worker merges at once, and writes to a file."""
_SMALLEST_RANGE: Final = 1 << 17
_LEAST_RANGES: Final = 8
"""Ranges of an ingest of few events, for as many workers."""
_SAMPLED: Final = 1 << 10
"""Events for each sample of a chunk."""
_GOLDEN: Final = 0.6180339887498949
"""Its multiples modulo 1 are spread evenly, however many there are."""
_MS_PER_DAY: Final = 86_400_000
_ROWS_IN_BATCH: Final = 1 << 16
_SHARED: Final = 4
"""Rows for each text of a dictionary from which it may stay with a part of its rows."""
_ENCODED: Final = pa.schema(
    [
        (field.name, pa.dictionary(pa.int32(), pa.string()) if field.type == pa.string() else field.type)
        for field in EVENTS.arrow_schema()
    ]
)


def event_chunks(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield some events of a task as chunks, one per day."""
    events = pa.Table.from_batches(batches).combine_chunks().cast(_ENCODED)
    for _, own in by_day(sorted_by_client(events)):
        yield own


def sample_of(chunk: pa.Table, *, seed: int) -> pa.Table:
    """Return the sample of a chunk.

    `seed` is a number by which samples of many small chunks differ in what they take.

    Returns:
        `client` and `ts_ms` of some events, and the number of `events` that each stands for.
    """
    count = max(chunk.num_rows // _SAMPLED, 1)
    places = (np.arange(count) + seed * _GOLDEN % 1) * (chunk.num_rows / count)
    found = chunk.select(["client", "ts_ms"]).take(pa.array(places.astype(np.int64)))
    return found.append_column("events", pa.array(np.full(count, chunk.num_rows / count)))


def thinned(samples: Sequence[pa.Table], most: int, *, seed: int) -> pa.Table:
    """Return samples of a task's chunks joined, at most some number of them.

    Where `most` are fewer than there are, each stands for more events. `seed` is a number by which tasks differ in what
    they take.
    """
    joined = pa.concat_tables(samples)
    if joined.num_rows <= most:
        return joined
    clients, times_ms = joined["client"].to_numpy(), joined["ts_ms"].to_numpy()
    order = np.lexsort((times_ms, clients, times_ms // _MS_PER_DAY))
    ends = np.cumsum(joined["events"].to_numpy()[order])
    each = ends[-1] / most
    places = np.searchsorted(ends, (np.arange(most) + seed * _GOLDEN % 1) * each, side="right")
    found = joined.select(["client", "ts_ms"]).take(pa.array(order[np.minimum(places, ends.size - 1)]))
    return found.append_column("events", pa.array(np.full(most, each)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRanges:
    """Where the events of an ingest are cut."""

    days: Int64s
    """Days at which ranges begin, but the first one, in days since 1970; 0 if days do not matter."""
    clients: Int64s
    """Clients at which they begin."""
    times_ms: Int64s
    """Times of these clients from which on they begin."""
    is_by_day: bool
    """Whether events are ranged by day, client and time, or by client and time alone."""

    @classmethod
    def for_files(cls, samples: pa.Table) -> "EventRanges":
        """Return ranges by day, client and time, of about equal size."""
        return cls._of(samples, is_by_day=True)

    @classmethod
    def for_clients(cls, samples: pa.Table) -> "EventRanges":
        """Return ranges by client, where only the events of a giant client are cut, at whole seconds."""
        return cls._of(samples, is_by_day=False)

    @classmethod
    def _of(cls, samples: pa.Table, *, is_by_day: bool) -> "EventRanges":
        clients, times_ms = samples["client"].to_numpy(), samples["ts_ms"].to_numpy()
        events = samples["events"].to_numpy()
        days = times_ms // _MS_PER_DAY if is_by_day else np.zeros_like(times_ms)
        size = min(max(events.sum() / _LEAST_RANGES, _SMALLEST_RANGE), _LARGEST_RANGE)
        if not is_by_day:
            numbers, codes = np.unique(clients, return_inverse=True)
            is_giant = np.bincount(codes, events, numbers.size) > 2 * size
            times_ms = np.where(is_giant[codes], times_ms // 1000 * 1000, np.iinfo(np.int64).min)
        order = np.lexsort((times_ms, clients, days))
        ranges = ((np.cumsum(events[order]) - events[order] / 2) / size).astype(np.int64)
        begins = order[1:][ranges[1:] != ranges[:-1]]
        keys = np.unique(np.stack([days[begins], clients[begins], times_ms[begins]]), axis=1)
        return cls(days=keys[0], clients=keys[1], times_ms=keys[2], is_by_day=is_by_day)

    @property
    def count(self) -> int:
        """The number of ranges."""
        return int(self.clients.size) + 1

    def pieces(self, content: pa.Buffer, columns: Sequence[str] | None = None) -> Iterator[tuple[int, int, pa.Buffer]]:
        """Yield the pieces of a chunk: range, day, and the rows as an Arrow stream.

        Args:
            content: The chunk as an Arrow stream.
            columns: The columns to keep, None for all.
        """
        keys = unpacked(content, columns=["client", "ts_ms"])
        clients, times_ms = keys["client"].to_numpy(), keys["ts_ms"].to_numpy()
        day = int(times_ms[0]) // _MS_PER_DAY if self.is_by_day else 0
        borders = np.concatenate([[0], self._places(day, clients, times_ms), [clients.size]])
        own = np.flatnonzero(np.diff(borders))
        if own.size == 1 and columns is None:
            yield int(own[0]), day, content
            return
        rows = unpacked(content, columns=columns)
        for number in own.tolist():
            piece = rows.slice(borders[number], borders[number + 1] - borders[number])
            yield number, day, packed(_with_own_texts(piece))

    def _places(self, day: int, clients: Int64s, times_ms: Int64s) -> Int64s:
        """Return where the ranges but the first begin in the keys of a chunk."""
        begin, end = np.searchsorted(self.days, [day, day + 1])
        places = np.zeros(self.clients.size, dtype=np.int64)
        places[end:] = clients.size
        places[begin:end] = np.searchsorted(clients, self.clients[begin:end])
        ends = np.searchsorted(clients, self.clients[begin:end], side="right")
        for number in (begin + np.flatnonzero(places[begin:end] < ends)).tolist():
            own = times_ms[places[number] : ends[number - begin]]
            places[number] += np.searchsorted(own, self.times_ms[number])
        return places


def merged(pieces: Iterable[tuple[pa.Buffer, int]]) -> Iterator[pa.Table]:
    """Yield the events of some pieces of a range, by client and time, some at a time.

    `pieces` are Arrow streams, each with the bytes of its file before the place from which its offsets count.
    """
    joined = pa.concat_tables([shifted(unpacked(content), "src_offset", before) for content, before in pieces])
    events = joined.unify_dictionaries().combine_chunks()
    order = client_order(events)
    plain = pa.schema([EVENTS.arrow_schema().field(name) for name in events.column_names])
    for start in range(0, events.num_rows, _ROWS_IN_BATCH):
        end = start + _ROWS_IN_BATCH
        own = events.slice(start, _ROWS_IN_BATCH) if order is None else events.take(pa.array(order[start:end]))
        yield own.cast(plain)


def shifted(rows: pa.Table, column: str, before: int) -> pa.Table:
    """Return rows whose places, if they have them, count from the beginning of their file.

    `before` is what comes before the split from whose beginning they count.
    """
    place = rows.schema.get_field_index(column)
    if not before or place < 0:
        return rows
    return rows.set_column(place, rows.schema.field(place), pc.add(rows[column], before))


def _with_own_texts(rows: pa.Table) -> pa.Table:
    """Return a part of a chunk's rows without the texts of all others, where these are many."""
    for place, field in enumerate(rows.schema):
        column = rows.column(place)
        if pa.types.is_dictionary(field.type) and any(
            len(each.dictionary) * _SHARED > rows.num_rows for each in column.chunks
        ):
            rows = rows.set_column(place, field, column.cast(pa.string()).dictionary_encode())
    return rows
