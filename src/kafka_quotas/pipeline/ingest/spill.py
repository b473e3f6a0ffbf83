"""Parsed rows on disk between the tasks of an ingest and its tables, in memory bounded by ranges of clients.

Each task leaves one Arrow file per table, events by client and time. A range of clients is gathered by memory-mapping
its rows out of each file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from kafka_quotas.pipeline.tables.event_files import sorted_by_client
from kafka_quotas.pipeline.tables.schemas import EVENTS, TableSchema

_RANGE_EVENTS: Final = 1 << 20
"""About how many events are in memory per worker, and in a file of the table events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillRange:
    """Clients by number, or a part of the time of one."""

    first: int
    last: int
    """Last number, inclusive."""
    from_ms: int | None = None
    """First time, None for no bound."""
    before_ms: int | None = None
    """Time after the last, None for no bound."""

    def of(self, events: pa.Table) -> pa.Table:
        """Return the range's rows of events that are sorted by client and time."""
        numbers = events["client"].to_numpy()
        begin, end = np.searchsorted(numbers, self.first), np.searchsorted(numbers, self.last, side="right")
        times_ms = events["ts_ms"].to_numpy()[begin:end]
        if self.before_ms is not None:
            end = begin + np.searchsorted(times_ms, self.before_ms)
        if self.from_ms is not None:
            begin += np.searchsorted(times_ms, self.from_ms)
        return events.slice(int(begin), max(int(end - begin), 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """A folder of parsed rows."""

    folder: Path

    def write(self, table: TableSchema, number: int, rows: pa.Table) -> None:
        """Write the rows of one task, numbered in the order of files and offsets.

        Raises:
            OSError: The file can't be written.
        """
        ordered = sorted_by_client(rows) if table is EVENTS else rows
        with (
            pa.OSFile(str(self.folder / f"{table.name}-{number:08}.arrow"), "wb") as sink,
            pa.ipc.new_file(sink, table.arrow_schema()) as writer,
        ):
            writer.write_table(ordered.combine_chunks())

    def rows(self, table: TableSchema) -> pa.Table:
        """Return all rows of a table that needs no order."""
        parts = [_mapped(path) for path in self._files(table)]
        return pa.concat_tables([table.arrow_schema().empty_table(), *parts])

    def ranges(self) -> list["SpillRange"]:
        """Return ranges with about equal numbers of events, by client, a giant client in several."""
        counts: dict[int, int] = {}
        for path in self._files(EVENTS):
            found, events = np.unique(_mapped(path)["client"].to_numpy(), return_counts=True)
            for client, count in zip(found.tolist(), events.tolist(), strict=True):
                counts[client] = counts.get(client, 0) + count
        found_ranges: list[SpillRange] = []
        own: list[int] = []
        for client in sorted(counts):
            if own and sum(map(counts.__getitem__, own)) + counts[client] > _RANGE_EVENTS:
                found_ranges.append(SpillRange(first=own[0], last=own[-1]))
                own = []
            if counts[client] > 2 * _RANGE_EVENTS:
                found_ranges += self._parts(client, -(-counts[client] // _RANGE_EVENTS))
            else:
                own.append(client)
        return [*found_ranges, SpillRange(first=own[0], last=own[-1])] if own else found_ranges

    def events(self, wanted: "SpillRange") -> pa.Table:
        """Return the events of a range, by client, time, file and offset."""
        parts = [EVENTS.arrow_schema().empty_table(), *map(wanted.of, map(_mapped, self._files(EVENTS)))]
        return sorted_by_client(pa.concat_tables(parts).combine_chunks())

    def _parts(self, client: int, count: int) -> "list[SpillRange]":
        """Divide the events of one client at whole seconds."""
        own = SpillRange(first=client, last=client)
        times_ms = np.concatenate([own.of(_mapped(path))["ts_ms"].to_numpy() for path in self._files(EVENTS)])
        shares = np.arange(1, count) / count
        cuts = np.unique(np.quantile(times_ms, shares, method="lower") // 1000 * 1000).tolist()
        bounds = [None, *map(int, cuts), None]
        return [SpillRange(first=client, last=client, from_ms=begin, before_ms=end) for begin, end in pairwise(bounds)]

    def _files(self, table: TableSchema) -> Sequence[Path]:
        return sorted(self.folder.glob(f"{table.name}-*.arrow"))


def _mapped(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()
