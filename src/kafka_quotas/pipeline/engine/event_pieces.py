"""Events of files cut into pieces for tasks on Spark, and the pieces of a task joined to slices.

A piece has the events that one file has of one part (a range of clients) in one window of time, as an Arrow stream in
bytes. Rows that Spark handles one by one cost it five times what the kernels cost: a million events are one row here.
Where files are sorted by client, as ours are, few parts need the same file: such parts get their files whole, as they
are stored, and nobody decodes, sorts and packs an event on its way. Files that are too large to move come to the same
parts in pieces.

Contract: no Spark. Pieces come sorted by part and window. Names of clients are a piece of the window `NAMES_WINDOW`, so
that they come before the events. A slice begins at or after the end of the one before, and has whole seconds.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.client_ranges import (
    NAMES,
    SLICE_EVENTS,
    ClientRange,
    TimeSpread,
    require_one_name_each,
    with_names,
)
from kafka_quotas.pipeline.tables.event_files import sorted_by_client
from kafka_quotas.pipeline.tables.schemas import CLIENTS, EVENTS, TableSchema

Int64s = NDArray[np.int64]

NAMES_WINDOW: Final = -1
"""The window of pieces with names of clients."""
_CLIENT_COLUMNS: Final = ("client", *NAMES)
_TEXTS: Final = ("quota_type", "connection")
"""Columns of text that tasks read, kept as dictionaries."""
_CLIENT_BOUNDS: Final = ("min.client", "max.client")
_MOST_COPIES: Final = 4
"""Parts that may need a file on average: Spark moves the file to each, which costs less than cutting it up to here."""
_PARQUET: Final = b"PAR1"
"""The first bytes of a whole file, which those of an Arrow stream are not."""
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)


class Piece(NamedTuple):
    """Events of a part and window, or the names of its clients."""

    part: int
    window: int
    content: pa.Buffer
    """The rows as an Arrow stream, or a whole Parquet file, which other parts may need as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The ranges of clients that tasks take, and where those of many events are cut in time."""

    firsts: Int64s
    """First client of each part, ascending."""
    lasts: Int64s
    """Last client of each part, inclusive."""
    bounds_ms: Mapping[int, Int64s]
    """Beginnings of all windows but the first, in whole seconds, of parts that have several."""
    files: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Places of the movable files with events of each part in the table's list, empty if all are to be cut."""

    chosen: Int64s | None = None
    """Clients whose events count, ascending, None for all, or for those that have a name among the pieces."""
    has_names_of_chosen: bool = False
    """Whether only clients with a name among the pieces count: they are too many for a list."""

    @classmethod
    def of(
        cls,
        ranges: Sequence[ClientRange],
        spread: TimeSpread,
        files: pa.Table,
        *,
        movable: Collection[int],
        chosen: Int64s | None = None,
        has_names_of_chosen: bool = False,
    ) -> "Parts":
        """Return a part for each range, in windows of about as many events as a slice.

        Args:
            ranges: The clients of each part.
            spread: How the events spread over time.
            files: Files of the table with what Delta knows of them.
            movable: Places of those that tasks may get whole; all others are to be cut.
            chosen: Clients whose events count, ascending, None for all.
            has_names_of_chosen: Whether only clients with a name among the pieces count.
        """
        windows = {part: -(-own.events // SLICE_EVENTS) for part, own in enumerate(ranges)}
        firsts = np.array([own.first for own in ranges], dtype=np.int64)
        lasts = np.array([own.last for own in ranges], dtype=np.int64)
        bounds_ms = {part: spread.bounds_ms(count) for part, count in windows.items() if count > 2}
        found = cls(
            firsts=firsts,
            lasts=lasts,
            bounds_ms=bounds_ms,
            chosen=chosen,
            has_names_of_chosen=has_names_of_chosen,
        )
        return replace(found, files=_files_of_parts(found, files, movable))

    def may_have(self, part: int, lowest: int, highest: int) -> bool:
        """Check whether clients from a lowest number to a highest one have events that a part takes."""
        low, high = max(lowest, int(self.firsts[part])), min(highest, int(self.lasts[part]))
        if self.chosen is None:
            return low <= high
        return bool(np.searchsorted(self.chosen, low) < np.searchsorted(self.chosen, high, side="right"))

    def counting(self, events: pa.Table, part: int | None = None) -> pa.Table:
        """Return the events of clients that count, of one part or of all."""
        clients = events["client"].to_numpy()
        is_own = np.ones(clients.size, dtype=bool)
        if part is not None:
            is_own = (clients >= self.firsts[part]) & (clients <= self.lasts[part])
        if self.chosen is not None:
            is_own &= _are_in(clients, self.chosen)
        return events if is_own.all() else events.filter(pa.array(is_own))

    def gets_whole_files(self, part: int) -> bool:
        """Check whether a part gets the movable files whole."""
        return part in self.files and part not in self.bounds_ms

    def places(self, count: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Return the parts with the files that they get whole, and the files, of `count`, that are cut.

        Of those that are not movable none is named unless all files are cut.
        """
        whole = [(part, place) for part, own in self.files.items() if self.gets_whole_files(part) for place in own]
        if not self.files:
            return [], list(range(count))
        return whole, sorted({place for part in self.bounds_ms for place in self.files[part]})


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
        yield from row_pieces(stored, parts, columns=columns, ingests=ingests, is_movable=True)


def row_pieces(
    rows: pa.Table, parts: Parts, *, columns: Sequence[str], ingests: Sequence[int] | None, is_movable: bool = False
) -> Iterator[Piece]:
    """Yield the pieces of some events, with the arguments of `event_pieces`.

    `is_movable` says whether they are of a file that some parts get whole, for which there are none then.
    """
    counting = parts.counting(_counting(rows, _schema(EVENTS, columns), ingests))
    for part, own in by_part(sorted_by_client(counting), parts):
        if is_movable and parts.gets_whole_files(part):
            continue
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
        for part, own in by_part(_counting(stored, schema, ingests).sort_by("client"), parts):
            yield Piece(part, NAMES_WINDOW, packed(own))


def slices_of_parts(
    pieces: Iterable[Piece], parts: Parts, *, columns: Sequence[str], ingests: Sequence[int] | None
) -> Iterator[tuple[int, Iterator[pa.Table]]]:
    """Yield each part and its slices, which must be taken before the next part.

    Parts without events are left out. The arguments are those of `event_pieces`.
    """

    def rows(piece: Piece) -> pa.Table:
        if piece.content[: len(_PARQUET)].to_pybytes() != _PARQUET:
            return unpacked(piece.content)
        schema, own = _schema(EVENTS, columns), (parts, piece.part)
        stored = [_counting(each, schema, ingests) for each in _stored(piece.content, schema, ingests, own=own)]
        return pa.concat_tables([schema.empty_table(), *stored])

    for part, own in groupby(pieces, key=lambda piece: piece.part):
        windows = groupby(own, key=lambda piece: piece.window)
        _, named = next(windows)
        names = _joined(map(rows, named)).group_by(list(_CLIENT_COLUMNS)).aggregate([]).sort_by("client")
        require_one_name_each(names)
        first = next(windows, None)
        if first is not None:
            slices = (_joined(map(rows, each)) for _, each in chain([first], windows))
            if parts.has_names_of_chosen:
                known = names["client"].to_numpy()
                slices = (own.filter(pa.array(_are_in(own["client"].to_numpy(), known))) for own in slices)
            yield part, (with_names(sorted_by_client(events), names) for events in slices)


def packed(table: pa.Table) -> pa.Buffer:
    """Return a table as an Arrow stream in bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as stream:
        stream.write_table(table)
    return sink.getvalue()


def unpacked(content: pa.Buffer, *, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the table of an Arrow stream in bytes.

    `columns` are those to uncompress, None for all.
    """
    with pa.ipc.open_stream(content) as stream:
        if columns is None:
            return stream.read_all()
        fields = [stream.schema.get_field_index(name) for name in columns]
    with pa.ipc.open_stream(content, options=pa.ipc.IpcReadOptions(included_fields=fields)) as stream:
        return stream.read_all().select(columns)


def _schema(table: TableSchema, columns: Sequence[str]) -> pa.Schema:
    """Return the columns as pieces have them, whichever engine wrote the file."""
    declared = table.arrow_schema()
    texts = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(name, texts if name in _TEXTS else declared.field(name).type) for name in columns])


def _stored(
    content: pa.Buffer, schema: pa.Schema, ingests: Sequence[int] | None, *, own: tuple[Parts, int] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a file, some row groups at a time.

    `own` is the part whose clients are wanted, None for all.
    """
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=[name for name in _TEXTS if name in schema.names])
    read = schema.names if ingests is None else [*schema.names, "ingest"]
    needed: Iterable[int] = range(file.num_row_groups)
    if own is not None:
        needed = [group for group in needed if _overlaps(file.metadata.row_group(group), *own)]
    for groups in _grouped({group: file.metadata.row_group(group).num_rows for group in needed}):
        found = file.read_row_groups(groups, columns=read, use_threads=False)
        yield found if own is None else own[0].counting(found, own[1])


def _overlaps(group: pq.RowGroupMetaData, parts: Parts, part: int) -> bool:
    """Check whether a row group may have events of a part."""
    columns = (group.column(place) for place in range(group.num_columns))
    bounds = next((column.statistics for column in columns if column.path_in_schema == "client"), None)
    if bounds is None or not bounds.has_min_max:
        return True
    return parts.may_have(part, bounds.min, bounds.max)


def _files_of_parts(parts: Parts, files: pa.Table, movable: Collection[int]) -> dict[int, list[int]]:
    """Return the movable files of each part, none where cutting files costs less than moving them."""
    found: dict[int, list[int]] = {part: [] for part in range(parts.firsts.size)}
    sizes, copied = files["size_bytes"].to_numpy(), 0
    bounds = [files[name] for name in _CLIENT_BOUNDS] if {*_CLIENT_BOUNDS} <= set(files.column_names) else []
    if not bounds or any(each.null_count for each in bounds):
        return {}
    clients = list(zip(*(each.to_pylist() for each in bounds), strict=True))
    for place in sorted(movable):
        lowest, highest = clients[place]
        begin, end = np.searchsorted(parts.lasts, lowest), np.searchsorted(parts.firsts, highest, side="right")
        own = [part for part in range(int(begin), int(end)) if parts.may_have(part, lowest, highest)]
        for part in own:
            found[part].append(place)
        copied += int(sizes[place]) * sum(part not in parts.bounds_ms for part in own)
    return found if copied <= _MOST_COPIES * sum(int(sizes[place]) for place in movable) else {}


def _counting(rows: pa.Table, schema: pa.Schema, ingests: Sequence[int] | None) -> pa.Table:
    """Return the rows that count, in the columns of a schema."""
    if ingests is not None:
        rows = rows.filter(pc.is_in(rows["ingest"], value_set=pa.array(ingests, pa.int64())))
    return rows.select(schema.names).cast(schema)


def _grouped(counts: Mapping[int, int]) -> Iterator[list[int]]:
    """Yield neighbouring row groups that have about a slice's events together."""
    own: list[int] = []
    total = 0
    for group, count in counts.items():
        if own and total + count > SLICE_EVENTS:
            yield own
            own, total = [], 0
        own.append(group)
        total += count
    if own:
        yield own


def _are_in(clients: Int64s, chosen: Int64s) -> NDArray[np.bool_]:
    """Check which clients are among the chosen ones, of which there is one at least, ascending."""
    places = np.minimum(np.searchsorted(chosen, clients), chosen.size - 1)
    found: NDArray[np.bool_] = chosen[places] == clients
    return found


def by_part(rows: pa.Table, parts: Parts) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each part that has some, from rows by client."""
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


def _joined(tables: Iterable[pa.Table]) -> pa.Table:
    """Join tables, by their first clients: of files that share no client this leaves no order to make."""
    found = list(tables)
    rows = sorted((table for table in found if table.num_rows), key=lambda table: int(table["client"][0].as_py()))
    return pa.concat_tables(rows or found[:1])
