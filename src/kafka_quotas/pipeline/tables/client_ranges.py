"""Events by ranges of clients: how they are divided into tasks, and the slices of one task.

Invariants: a slice has whole seconds of every client in it. Slices of one range follow each other in time, unless the
range is one slice. Events of one client come in order of time over all slices. Clients that may share a bucket are in
one range. Memory does not grow with the table: a range of more events than a slice holds is read in pieces of time.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import NDArray

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.event_files import sorted_by_client
from kafka_quotas.pipeline.tables.lake import lake_errors
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS, CLIENTS, EVENTS
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLICE_EVENTS: Final = 1 << 20
"""About how many events are in memory per task."""
_FEWEST_EVENTS: Final = 1 << 16
"""Fewer events are not worth a task of their own."""
_TASKS_PER_WORKER: Final = 4
_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60_000
_GAP_MS: Final = 30 * _MINUTE_MS
"""Time without any event from which on nothing was recorded: a cluster in use is never silent for as long."""
NAMES: Final = ("cluster", "broker_id", "user", "client_id")
"""Columns of events that follow from the client's number."""
MOST_CLIENTS: Final = 1 << 17
"""Most rows of `clients` that come to Spark's driver, of 220 bytes at most."""
_MERGED: Final = (("events", "sum"), ("first_ms", "min"), ("last_ms", "max"))
"""Columns of `clients`, and how those of several ingests are merged."""
_SUMMED: Final = [f"{kind}({name}) as {name}_{kind}" for name, kind in _MERGED]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRange:
    """Clients by number, and how many events they have."""

    first: int
    last: int
    """Last number, inclusive."""
    events: int


class EventTable:
    """The events of a data folder."""

    def __init__(self, snapshot: FolderSnapshot) -> None:
        self.snapshot = snapshot
        self._dataset: ds.Dataset | None = None
        self.chosen: NDArray[np.int64] | None = None
        """Numbers of the clients whose events count, ascending, None for all."""
        totals = self._totals()
        self.count: int = totals["events_sum"] or 0
        """The number of events."""
        self.first_ms: int | None = totals["first_ms_min"]
        self.last_ms: int | None = totals["last_ms_max"]

    @cached_property
    def has_many_clients(self) -> bool:
        """Whether there are too many clients to bring each of them here where Spark has the tasks."""
        return self.snapshot.rows_stored(CLIENTS) > MOST_CLIENTS

    def _totals(self) -> dict[str, Any]:
        if self.snapshot.session is not None and self.has_many_clients:
            rows = self.snapshot.rows_on_spark(self.snapshot.session, CLIENTS)
            summed = rows.selectExpr(*_SUMMED).toArrow()
            return {name: summed[name][0].as_py() for name in summed.column_names}
        clients = self._by_client
        return {f"{name}_{kind}": getattr(pc, kind)(clients[f"{name}_{kind}"]).as_py() for name, kind in _MERGED}

    @cached_property
    def _by_client(self) -> pa.Table:
        """Each client, by number, with its events and times over all ingests.

        They have names where this machine has the tasks. Spark's tasks get them otherwise.
        """
        return _clients(self.snapshot)

    def of(self, clients: NDArray[np.int64]) -> "EventTable":
        """Return the events of some clients alone, given by number and ascending."""
        is_own = np.isin(self._by_client["client"].to_numpy(), clients)
        if is_own.all():
            return self
        found, own = copy(self), self._by_client.filter(pa.array(is_own))
        found._by_client = own  # noqa: SLF001 - its own class
        found.count = pc.sum(own["events_sum"]).as_py() or 0
        found.chosen = clients
        return found

    def recorded_s(self) -> int:
        """Return the seconds from the first event to the last, less the gaps without any event.

        Raises:
            KafkaQuotasError: A file can't be read.
        """
        if self.snapshot.session is not None:
            return self._recorded_s_on_spark(self.snapshot.session)
        minutes, begins, ends = (np.empty(0, np.int64) for _ in range(3))
        with lake_errors(f"reading {self.snapshot.lake.shown(EVENTS)}"):
            for batch in self.dataset.to_batches(columns=["ts_ms"]):
                times_ms = batch.column("ts_ms").to_numpy()
                found = (np.append(known, times) for known, times in ((begins, times_ms), (ends, times_ms)))
                minutes, begins, ends = _by_minute(np.append(minutes, times_ms // _MINUTE_MS), *found)
        return _without_gaps_s(begins, ends)

    def _recorded_s_on_spark(self, session: "SparkSession") -> int:
        from pyspark.sql import functions  # noqa: PLC0415 - jobs on this machine need none of it

        by_minute = self.snapshot.rows_on_spark(session, EVENTS).groupBy(functions.expr(f"ts_ms div {_MINUTE_MS}"))
        found = by_minute.agg(functions.min("ts_ms").alias("begin"), functions.max("ts_ms").alias("end")).toArrow()
        ordered = found.sort_by("begin")
        return _without_gaps_s(ordered["begin"].to_numpy(), ordered["end"].to_numpy())

    def ranges(self, *, shift: int, workers: int) -> list[ClientRange]:
        """Divide the clients into ranges of about equal numbers of events, by number.

        Args:
            shift: Bits of a number in which clients of one bucket may differ.
            workers: Number of workers, each of which should get several.
        """
        clients, target = self._by_client, events_of_range(self.count, workers=workers)
        return ranges_of(clients["client"].to_numpy(), clients["events_sum"].to_numpy(), shift=shift, target=target)

    def slices(
        self, clients: ClientRange, *, columns: Sequence[str] = CHARGE_COLUMNS, slice_events: int = SLICE_EVENTS
    ) -> Iterator[pa.Table]:
        """Yield the events of a range of clients in slices, by client and time.

        Raises:
            KafkaQuotasError: A file can't be read.
        """
        if self.first_ms is None or self.last_ms is None:
            return
        stored = stored_columns(columns)
        own = (ds.field("client") >= clients.first) & (ds.field("client") <= clients.last)
        if self.chosen is not None:
            begin, end = np.searchsorted(self.chosen, [clients.first, clients.last + 1])
            own &= ds.field("client").isin(pa.array(self.chosen[begin:end]))
        with lake_errors(f"reading {self.snapshot.lake.shown(EVENTS)}"):
            for within in self._windows(own, clients.events, slice_events):
                rows = self.dataset.to_table(columns=stored, filter=within)
                if rows.num_rows:
                    # a column in pieces would be joined by everyone who takes it as an array
                    yield with_names(sorted_by_client(rows.combine_chunks()), self._by_client)

    def time_spread(self) -> "TimeSpread":
        """Return how the events spread over time."""
        files = self.snapshot.files(EVENTS)
        return TimeSpread(
            begins_ms=_figures(files, "min.ts_ms", self.first_ms or 0),
            ends_ms=_figures(files, "max.ts_ms", self.last_ms or 0),
            events=_figures(files, "num_records", 1),
        )

    @property
    def dataset(self) -> ds.Dataset:
        """The rows of the table that count."""
        if self._dataset is None:
            self._dataset = self.snapshot.dataset(EVENTS, dictionaries=["quota_type"])
        return self._dataset

    def _windows(self, own: Any, events: int, most: int) -> Iterator[Any]:
        """Yield filters for whole seconds, each with about some number of `events`, at most twice as many.

        A single second may have more. Counting costs a third of reading: windows are halved only if events come
        less evenly than their files say.
        """
        if events <= 2 * most or self.first_ms is None or self.last_ms is None:
            yield own
            return
        bounds_ms = self.time_spread().bounds_ms(events // most)
        begin_ms, end_ms = self.first_ms // _SECOND_MS * _SECOND_MS, self.last_ms + 1
        for window_ms in pairwise([begin_ms, *bounds_ms.tolist(), end_ms]):
            yield from self._halved(own, *window_ms, 2 * most)

    def _halved(self, own: Any, begin_ms: int, end_ms: int, most: int) -> Iterator[Any]:
        within = own & (ds.field("ts_ms") >= begin_ms) & (ds.field("ts_ms") < end_ms)
        seconds = -(-(end_ms - begin_ms) // _SECOND_MS)
        if seconds <= 1 or self.dataset.count_rows(filter=within) <= most:
            yield within
            return
        middle_ms = begin_ms + seconds // 2 * _SECOND_MS
        yield from self._halved(own, begin_ms, middle_ms, most)
        yield from self._halved(own, middle_ms, end_ms, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpread:
    """How events spread over time by their files, within each of which they count as spread evenly."""

    begins_ms: NDArray[np.int64]
    """First time in each file."""
    ends_ms: NDArray[np.int64]
    """Last time in each file."""
    events: NDArray[np.int64]
    """Events in each file."""

    def bounds_ms(self, windows: int) -> NDArray[np.int64]:
        """Return where windows of about as many events begin, in whole seconds, but for the first."""
        begins, ends = self.begins_ms, self.ends_ms + 1
        times = np.unique(np.concatenate([begins, ends]))
        before = np.zeros(times.size)
        for begin, end, count in zip(begins.tolist(), ends.tolist(), self.events.tolist(), strict=True):
            before += np.clip((times - begin) / (end - begin), 0, 1) * count
        found = np.interp(np.arange(1, windows) / windows * before[-1], before, times)
        return np.unique(found.astype(np.int64) // _SECOND_MS * _SECOND_MS)


def _clients(snapshot: FolderSnapshot) -> pa.Table:
    if snapshot.session is None:
        return merged_clients(snapshot.read(CLIENTS, columns=["client", *NAMES, *(name for name, _ in _MERGED)]))
    from pyspark.sql import functions  # noqa: PLC0415 - jobs on this machine need none of it

    by_client = snapshot.rows_on_spark(snapshot.session, CLIENTS).groupBy("client")
    return by_client.agg(*map(functions.expr, _SUMMED)).toArrow().sort_by("client")


def merged_clients(rows: pa.Table) -> pa.Table:
    """Return each client once, by number, from the rows of all its ingests."""
    found = rows.group_by(["client", *NAMES]).aggregate(list(_MERGED)).sort_by("client").combine_chunks()
    require_one_name_each(found)
    return found


def require_one_name_each(clients: pa.Table) -> None:
    """Check that no two clients, given by number, have the same one: each ingest can only know of its own.

    Raises:
        KafkaQuotasError: Two have.
    """
    numbers = clients["client"].to_numpy()
    same = np.flatnonzero(numbers[1:] == numbers[:-1])
    if same.size:
        raise same_number_error(clients.slice(int(same[0]), 2))


def same_number_error(clients: pa.Table) -> KafkaQuotasError:
    """Return the error about two clients with one number, given a row of each."""
    first, second = clients.select(NAMES).to_pylist()
    return KafkaQuotasError(
        f"two clients have one number, so their events can't be told apart: {first} and {second}",
        hint="ingest the files of one of their brokers into another folder, or with another --cluster",
    )


def events_of_range(count: int, *, workers: int) -> int:
    """Return about how many of a table's events a range should have, for several ranges per worker."""
    return min(max(count // (workers * _TASKS_PER_WORKER) + 1, _FEWEST_EVENTS), SLICE_EVENTS)


def ranges_of(clients: NDArray[np.int64], events: NDArray[np.int64], *, shift: int, target: int) -> list[ClientRange]:
    """Divide clients, given by number with their events, into ranges of about `target` events.

    Numbers that differ in the lowest `shift` bits only are in one range.
    """
    if not clients.size:
        return []
    groups, starts = np.unique(clients >> shift, return_index=True)
    counts = np.add.reduceat(events, starts)
    return [
        ClientRange(
            first=int(groups[begin]) << shift,
            last=((int(groups[end - 1]) + 1) << shift) - 1,
            events=int(counts[begin:end].sum()),
        )
        for begin, end in _packed(counts, target)
    ]


def stored_columns(columns: Iterable[str]) -> list[str]:
    """Return the columns of events to read, from which `with_names` makes the wanted ones."""
    return [name for name in dict.fromkeys((*columns, "client", "ts_ms")) if name not in NAMES]


def _figures(files: pa.Table, name: str, otherwise: int) -> NDArray[np.int64]:
    """Return a figure of each file, which Delta need not know."""
    if name not in files.column_names:
        return np.full(files.num_rows, otherwise)
    found: NDArray[np.int64] = pc.fill_null(files[name], otherwise).to_numpy()
    return found


def with_names(events: pa.Table, names: pa.Table) -> pa.Table:
    """Add the names of clients to events that are sorted by client and have their numbers alone.

    `names` has a row for each client, by number: a name is stored once and read once, however many events it has.
    """
    clients = events["client"].to_numpy()
    starts = np.flatnonzero(np.append(True, clients[1:] != clients[:-1])[: clients.size])
    found = np.searchsorted(names["client"].to_numpy(), clients[starts]).astype(np.int32)
    places = pa.array(np.repeat(found, np.diff(np.append(starts, clients.size))))
    for name in NAMES:
        column = names[name].combine_chunks()
        values = (
            pa.DictionaryArray.from_arrays(places, column) if pa.types.is_string(column.type) else column.take(places)
        )
        events = events.append_column(name, values)
    return events


def _without_gaps_s(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
    """Return the seconds from the first begin to the last end, less the gaps between them.

    Begins and ends are in ms and in order.
    """
    if not begins.size:
        return 0
    is_gap = begins[1:] - ends[:-1] > _GAP_MS
    firsts, lasts = np.append(begins[:1], begins[1:][is_gap]), np.append(ends[:-1][is_gap], ends[-1:])
    return int((lasts // _SECOND_MS - firsts // _SECOND_MS + 1).sum())


def _by_minute(
    minutes: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return each minute once, in order, with its first begin and last end."""
    runs = np.flatnonzero(np.append(True, np.diff(minutes) != 0)[: minutes.size])
    if not runs.size:
        return minutes, begins, ends
    minutes, begins, ends = minutes[runs], np.minimum.reduceat(begins, runs), np.maximum.reduceat(ends, runs)
    order = np.argsort(minutes, kind="stable")
    minutes, begins, ends = minutes[order], begins[order], ends[order]
    starts = np.flatnonzero(np.append(True, np.diff(minutes) != 0))
    return minutes[starts], np.minimum.reduceat(begins, starts), np.maximum.reduceat(ends, starts)


def _packed(events: NDArray[np.int64], target: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of neighbouring groups that have about the target together, one at least."""
    begin, total = 0, 0
    for place, count in enumerate(events.tolist()):
        if place > begin and total + count > target:
            yield begin, place
            begin, total = place, 0
        total += count
    yield begin, len(events)
