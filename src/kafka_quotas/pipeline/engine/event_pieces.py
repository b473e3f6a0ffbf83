"""Events of files cut into pieces for tasks on Spark, and the pieces of a task joined to slices.

A piece has the events that one file has of one part (a range of clients) in one window of time, as an Arrow stream in
bytes. Rows that Spark handles one by one cost it five times what the kernels cost: a million events are one row here.

Contract: no Spark. Pieces come sorted by part and window. Names of clients are a piece of the window `NAMES_WINDOW`, so
that they come before the events. A slice begins at or after the end of the one before, and has whole seconds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.client_ranges import NAMES, SLICE_EVENTS, ClientRange, TimeSpread, with_names
from kafka_quotas.pipeline.tables.event_files import sorted_by_client
from kafka_quotas.pipeline.tables.schemas import CLIENTS, EVENTS
from kafka_quotas.pipeline.tables.table import TableSchema

Int64s = NDArray[np.int64]

NAMES_WINDOW: Final = -1
"""The window of pieces with names of clients."""
_CLIENT_COLUMNS: Final = ("client", *NAMES)
_TEXTS: Final = ("quota_type", "connection")
"""Columns of text that tasks read, kept as dictionaries."""
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)


class Piece(NamedTuple):
    """Events of a part and window, or the names of its clients."""

    part: int
    window: int
    content: pa.Buffer
    """The rows as an Arrow stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The ranges of clients that tasks take, and where those of many events are cut in time."""

    firsts: Int64s
    """First client of each part, ascending."""
    lasts: Int64s
    """Last client of each part, inclusive."""
    bounds_ms: Mapping[int, Int64s]
    """Beginnings of all windows but the first, in whole seconds, of parts that have several."""

    @classmethod
    def of(cls, ranges: Sequence[ClientRange], spread: TimeSpread) -> "Parts":
        """Return a part for each range, in windows of about as many events as a slice."""
        windows = {part: -(-own.events // SLICE_EVENTS) for part, own in enumerate(ranges)}
        return cls(
            firsts=np.array([own.first for own in ranges], dtype=np.int64),
            lasts=np.array([own.last for own in ranges], dtype=np.int64),
            bounds_ms={part: spread.bounds_ms(count) for part, count in windows.items() if count > 2},
        )


def event_pieces(
    content: pa.Buffer, parts: Parts, *, columns: Sequence[str], ingests: Sequence[int] | None
) -> Iterator[Piece]:
    """Yield the pieces of a Parquet file of events.

    Args:
        content: The bytes of the file.
        parts: The parts; events of other clients are left out.
        columns: The columns that tasks read.
        ingests: The ingests whose rows count, None for all.
    """
    for stored in _stored(content, _schema(EVENTS, columns), ingests):
        yield from row_pieces(stored, parts, columns=columns, ingests=ingests)


def row_pieces(
    rows: pa.Table, parts: Parts, *, columns: Sequence[str], ingests: Sequence[int] | None
) -> Iterator[Piece]:
    """Yield the pieces of some events, with the arguments of `event_pieces`."""
    for part, own in _by_part(sorted_by_client(_counting(rows, _schema(EVENTS, columns), ingests)), parts):
        for window, events in _by_window(own, parts.bounds_ms.get(part)):
            yield Piece(part, window, packed(events))


def name_pieces(content: pa.Buffer, parts: Parts, *, ingests: Sequence[int]) -> Iterator[Piece]:
    """Yield the pieces of a Parquet file of clients, with the names of each.

    Args:
        content: The bytes of the file.
        parts: The parts; other clients are left out.
        ingests: The ingests whose rows count.
    """
    schema = _schema(CLIENTS, _CLIENT_COLUMNS)
    for stored in _stored(content, schema, ingests):
        for part, own in _by_part(_counting(stored, schema, ingests).sort_by("client"), parts):
            yield Piece(part, NAMES_WINDOW, packed(own))


def slices_of_parts(pieces: Iterable[Piece]) -> Iterator[tuple[int, Iterator[pa.Table]]]:
    """Yield each part and its slices, which must be taken before the next part.

    Parts without events are left out.
    """
    for part, own in groupby(pieces, key=lambda piece: piece.part):
        windows = groupby(own, key=lambda piece: piece.window)
        _, named = next(windows)
        names = _joined(named).group_by(list(_CLIENT_COLUMNS)).aggregate([]).sort_by("client")
        first = next(windows, None)
        if first is not None:
            slices = chain([_joined(first[1])], (_joined(each) for _, each in windows))
            yield part, (with_names(sorted_by_client(events), names) for events in slices)


def packed(table: pa.Table) -> pa.Buffer:
    """Return a table as an Arrow stream in bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as stream:
        stream.write_table(table)
    return sink.getvalue()


def unpacked(content: pa.Buffer) -> pa.Table:
    """Return the table of an Arrow stream in bytes."""
    with pa.ipc.open_stream(content) as stream:
        return stream.read_all()


def _schema(table: TableSchema, columns: Sequence[str]) -> pa.Schema:
    """Return the columns as pieces have them, whichever engine wrote the file."""
    declared = table.arrow_schema()
    texts = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(name, texts if name in _TEXTS else declared.field(name).type) for name in columns])


def _stored(content: pa.Buffer, schema: pa.Schema, ingests: Sequence[int] | None) -> Iterator[pa.Table]:
    """Yield the rows of a file, some row groups at a time."""
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=[name for name in _TEXTS if name in schema.names])
    read = schema.names if ingests is None else [*schema.names, "ingest"]
    for groups in _grouped([file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]):
        yield file.read_row_groups(groups, columns=read, use_threads=False)


def _counting(rows: pa.Table, schema: pa.Schema, ingests: Sequence[int] | None) -> pa.Table:
    """Return the rows that count, in the columns of a schema."""
    if ingests is not None:
        rows = rows.filter(pc.is_in(rows["ingest"], value_set=pa.array(ingests, pa.int64())))
    return rows.select(schema.names).cast(schema)


def _grouped(counts: Sequence[int]) -> Iterator[list[int]]:
    """Yield neighbouring row groups that have about a slice's events together."""
    own: list[int] = []
    total = 0
    for group, count in enumerate(counts):
        if own and total + count > SLICE_EVENTS:
            yield own
            own, total = [], 0
        own.append(group)
        total += count
    if own:
        yield own


def _by_part(rows: pa.Table, parts: Parts) -> Iterator[tuple[int, pa.Table]]:
    clients = rows["client"].to_numpy()
    begins, ends = np.searchsorted(clients, parts.firsts), np.searchsorted(clients, parts.lasts, side="right")
    for part in np.flatnonzero(begins < ends).tolist():
        yield part, rows.slice(begins[part], ends[part] - begins[part])


def _by_window(events: pa.Table, bounds_ms: Int64s | None) -> Iterator[tuple[int, pa.Table]]:
    if bounds_ms is None:
        yield 0, events
        return
    windows = np.searchsorted(bounds_ms, events["ts_ms"].to_numpy(), side="right")
    order = np.argsort(windows, kind="stable")
    found, starts = np.unique(windows[order], return_index=True)
    for window, own in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
        yield window, events.take(pa.array(own))


def _joined(pieces: Iterable[Piece]) -> pa.Table:
    """Join pieces, by their first clients: of files that share no client this leaves no order to make."""
    tables = [unpacked(piece.content) for piece in pieces]
    return pa.concat_tables(sorted(tables, key=lambda table: int(table["client"][0].as_py())))
