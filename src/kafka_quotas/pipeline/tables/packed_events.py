"""The table `events`: a row per client, quota type, file and hour, with its events in arrays.

Arrays of one row have one element per event, by time and offset. Scalars beside them (how many events, sums, the
largest second, the first and last time) let readers leave rows out without decoding an array.

    PackedEvents(lake).table(["user", "ts_ms", "bytes"], where=field("quota_type") == "produce") -> packed rows
    unpack(rows, ["user", "ts_ms", "bytes"]) -> one loose row per event, with names as dictionaries

Invariants: a row has at most `ROW_EVENTS` events. Rows of one file are sorted by client, quota type and time. Rows of
one client and hour may overlap: two files, or two ingests, each have their own.

The number of a client is the same on every machine and in every engine, with no table to ask. It has 63 bits: 12 of the
cluster and broker and 9 of the user, each the beginning of a digest, and 42 of a digest of all names. Clients of one
broker are neighbours therefore, and those of one user among them: what may share a quota is a range of numbers, and a
range is a few row groups of a sorted file. Two clients have the same number once in some 900 data folders where one
user has 100,000 client-ids at one broker, and once in some 4,000 where a million clients of a broker have users of
their own. An ingest that meets such two refuses its files; elsewhere the names in each row distinguish clients.
"""

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import NDArray

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.kernels.order import starts_of
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.lake import PARTITION, Lake, lake_errors
from kafka_quotas.pipeline.tables.schemas import ARRAYS, EVENTS, PACKED_EVENTS, ROW_NAMES, ColumnType

if TYPE_CHECKING:
    from deltalake import DeltaTable

Int64s = NDArray[np.int64]

ROW_EVENTS: Final = 1 << 16
"""Most events of a row."""
_SUMMED: Final = ("bytes", "thread_ms", "mutations")
"""Arrays that a row has the sum and the largest second of."""
_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000
_BATCH_ROWS: Final = 1 << 12
NAMES: Final = ("cluster", "broker_id", "user", "client_id")
"""Columns by which clients differ."""
_USER_BITS: Final = 9
_CLIENT_BITS: Final = 42
BROKER_SHIFT: Final = _USER_BITS + _CLIENT_BITS
"""Bits to the right of a broker's part of the number."""
USER_SHIFT: Final = _CLIENT_BITS
"""Bits to the right of a user's part of the number."""
_BROKER_BITS: Final = 63 - BROKER_SHIFT
PARSED_EVENTS: Final = EVENTS.arrow_schema().remove(EVENTS.column_names.index("client"))
"""The columns of events as parsers give them, in the order of `formats.task.EventRow`."""
_KEPT_BYTES: Final = 1 << 30
_OPTIONS: Final = (
    (-1, _KEPT_BYTES),  # M_TRIM_THRESHOLD: more free memory than this goes back to the system
    (-3, _KEPT_BYTES),  # M_MMAP_THRESHOLD: larger arrays come from the system, one by one
    (-8, 1),  # M_ARENA_MAX: heaps that threads have of their own are given back, whatever the thresholds
)


def pack(events: pa.Table) -> pa.RecordBatch:
    """Return loose events, in any order, as packed rows sorted by client, quota type and time.

    Events of equal times stay in their order.

    Raises:
        KafkaQuotasError: Two clients have the same number.
    """
    schema = PACKED_EVENTS.arrow_schema()
    if not events.num_rows:
        return pa.RecordBatch.from_pylist([], schema)
    events = events.combine_chunks()
    _require_one_name_each(events)
    group = _groups(events)
    order = _order(group, events["ts_ms"].to_numpy())
    arrays = {name: events[name].combine_chunks() for name in ARRAYS}
    if order is not None:
        group, arrays = group[order], {name: each.take(pa.array(order)) for name, each in arrays.items()}
    times_ms = arrays["ts_ms"].to_numpy()
    starts = _row_starts(group, times_ms)
    ends = np.append(starts[1:], times_ms.size)
    places = pa.array(starts if order is None else order[starts])
    own: dict[str, Any] = {name: events[name].take(places).combine_chunks() for name in (*NAMES, "client", *ROW_NAMES)}
    own |= _figures(arrays, group, times_ms, starts)
    own |= {
        PARTITION: (times_ms[starts] // _DAY_MS).astype(np.int32),
        "hour": times_ms[starts] // _HOUR_MS * _HOUR_MS * 1000,
        "first_at": times_ms[starts] * 1000,
        "last_at": times_ms[ends - 1] * 1000,
        "events": (ends - starts).astype(np.int32),
        "sources": pa.nulls(starts.size, pa.string()),
    }
    offsets = pa.array(np.append(starts, times_ms.size).astype(np.int32))
    for name, values in arrays.items():
        kind = schema.field(name).type
        own[name] = pa.ListArray.from_arrays(offsets, values.cast(kind.value_type), type=kind)
    return pa.RecordBatch.from_pydict(own, schema=schema)


def unpack(rows: pa.RecordBatch | pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return one loose row per event, in the order of the packed rows.

    Arrays are not copied. A text that all events of a row have is a dictionary with an entry per row.

    The packed rows have the columns that are asked for, scalars and arrays, and one array at least.
    """
    if isinstance(rows, pa.Table):
        rows = pa.RecordBatch.from_struct_array(rows.to_struct_array().combine_chunks())
    places = pc.list_parent_indices(next(rows.column(name) for name in rows.schema.names if name in ARRAYS))
    found = {}
    for name in columns:
        column = rows.column(name)
        if name in ARRAYS:
            found[name] = column.flatten()
        else:
            found[name] = (column.dictionary_encode() if pa.types.is_string(column.type) else column).take(places)
    return pa.table(found)


def event_counts(batch: pa.RecordBatch) -> Int64s:
    """Return how many events each packed row of a batch has, by its first array."""
    array = next(batch.column(name) for name in batch.schema.names if name in ARRAYS)
    counts: Int64s = np.diff(array.offsets.to_numpy())
    return counts


def record_rows(text: str, *, at_ms: int) -> pa.Table:
    """Return a row that says in `sources` what an ingest read, without a day or events."""
    at_us = at_ms // _HOUR_MS * _HOUR_MS * 1000
    usual: dict[ColumnType, Any] = {ColumnType.TIMESTAMP: at_us, ColumnType.STRING: ""}
    row = {each.name: [] if each.is_array else usual.get(each.type, 0) for each in PACKED_EVENTS.columns}
    row |= {PARTITION: None, "broker_id": -1, "is_exempt": True, "quota_type": "sources", "sources": text}
    return pa.Table.from_pylist([row], PACKED_EVENTS.arrow_schema())


def client_number(*, cluster: str, broker_id: int, user: str, client_id: str) -> int:
    """Return the number of a client at a broker, from 0 to 2^63 - 1."""
    broker = _bits(f"{cluster}\0{broker_id}", _BROKER_BITS)
    # the length says where one name ends and the next begins, for names may hold any character
    client = _bits(f"{cluster}\0{broker_id}\0{len(user)}\0{user}{client_id}", _CLIENT_BITS)
    return (broker << BROKER_SHIFT) | (_bits(user, _USER_BITS) << USER_SHIFT) | client


def client_numbers(events: pa.RecordBatch) -> pa.Array:
    """Return the number of each event's client, each computed once."""
    places, clients = distinct(events, NAMES)
    numbers = [client_number(**dict(zip(NAMES, client, strict=True))) for client in clients]
    return pa.array(numbers, pa.int64()).take(pa.array(places))


def shared_shift(columns: Iterable[str]) -> int:
    """Return in how many bits the numbers of clients may differ that share a bucket.

    The columns distinguish buckets: those of `buckets.proposal.partition_columns`.
    """
    known = set(columns)
    if "user" not in known:
        return BROKER_SHIFT
    return 0 if "client_id" in known else USER_SHIFT


@lru_cache(maxsize=1 << 16)
def _bits(text: str, count: int) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> (64 - count)


@lru_cache(maxsize=1)
def keep_memory() -> None:
    """Have NumPy and Arrow keep the memory that they free, from threads that begin later as well.

    Slices need arrays of some MB for a fraction of a second each. By default the C library takes these from the system
    and gives them back, and the system clears every page anew: a third of the processor time of `usage`.

    **Source:** mallopt(3) of glibc. C libraries without it go on as before.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None and all(set_option(*each) for each in _OPTIONS):
        pa.set_memory_pool(pa.system_memory_pool())


class PackedEvents:
    """The packed rows of a data folder, at the latest version of its table or at an earlier one."""

    def __init__(self, lake: Lake, version: int | None = None) -> None:
        self.lake = lake
        self.delta: DeltaTable = lake.table(PACKED_EVENTS, version)

    @property
    def version(self) -> int:
        """Delta's version of the table."""
        return self.delta.version()

    def dataset(self) -> ds.Dataset:
        """Return all rows, each file with the bounds by which filters leave it out."""
        with lake_errors(f"reading {self.lake.shown(PACKED_EVENTS)}"):
            return self.delta.to_pyarrow_dataset(
                filesystem=self.lake.filesystem(PACKED_EVENTS), schema=PACKED_EVENTS.arrow_schema()
            )

    def table(self, columns: Sequence[str], where: ds.Expression | None = None) -> pa.Table:
        """Return columns of packed rows of events, by file, in the order of their files.

        `where` is a filter on scalars, by which files and row groups are left out, None for all rows.
        """
        own = ds.field("events") > 0
        within = own if where is None else own & where
        with lake_errors(f"reading {self.lake.shown(PACKED_EVENTS)}"):
            return self.dataset().to_table(columns=list(columns), filter=within, batch_size=_BATCH_ROWS)


def _groups(events: pa.Table) -> Int64s:
    """Return the number of each event's group, by client and `ROW_NAMES`."""
    group = np.zeros(events.num_rows, dtype=np.int64)
    for name in ("client", *ROW_NAMES):
        values = events[name].combine_chunks()
        encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        ranks = np.argsort(np.argsort(np.array(encoded.dictionary.to_pylist())))  # sorting all would take longer
        group = group * max(ranks.size, 1) + ranks[encoded.indices.to_numpy()]
    return group


def distinct(events: pa.RecordBatch, columns: Sequence[str]) -> tuple[Int64s, list[tuple[Any, ...]]]:
    """Return the place of each row's values among the distinct ones, and these, in order of appearance."""
    codes = np.zeros(events.num_rows, dtype=np.int64)
    for column in columns:
        encoded = events.column(column).dictionary_encode()
        codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
    places = pa.array(codes).dictionary_encode().indices.to_numpy()  # hashed: sorting takes five times as long
    firsts = np.zeros(places.max(initial=-1) + 1, dtype=np.int64)
    firsts[places[::-1]] = np.arange(places.size)[::-1]
    found = events.select(list(columns)).take(pa.array(firsts)).columns
    plain = (each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in found)
    return places, list(zip(*(each.to_pylist() for each in plain), strict=True))  # by rows it takes 20 times as long


def _order(group: Int64s, times_ms: Int64s) -> Int64s | None:
    """Return the order by group and time, None if events have it."""
    steps = np.diff(group)
    if not ((steps < 0) | ((steps == 0) & (np.diff(times_ms) < 0))).any():
        return None
    return np.lexsort((times_ms, group))


def _require_one_name_each(events: pa.Table) -> None:
    """Check that no two clients have the same number."""
    names = ["client", *NAMES]
    clients = events.select(names).group_by(names).aggregate([]).sort_by("client")
    numbers = clients["client"].to_numpy()
    for place in np.flatnonzero(numbers[1:] == numbers[:-1])[:1].tolist():
        first, second = clients.slice(place, 2).select(NAMES).to_pylist()
        raise KafkaQuotasError(
            f"two clients have one number, so their events can't be told apart: {first} and {second}",
            hint="ingest the files of one of their brokers into another folder, or with another --cluster",
        )


def _row_starts(group: Int64s, times_ms: Int64s) -> Int64s:
    """Return where rows begin: at a new group or hour, at minutes of busy hours, and after the most."""
    starts = starts_of(group, times_ms // _HOUR_MS)
    ends = np.append(starts[1:], group.size)
    is_busy = ends - starts > ROW_EVENTS
    for begin, end in zip(starts[is_busy].tolist(), ends[is_busy].tolist(), strict=True):
        borders = np.append(begin + starts_of(times_ms[begin:end] // _MINUTE_MS), end)
        cut = [np.arange(one, other, ROW_EVENTS) for one, other in pairwise(borders)]
        starts = np.union1d(starts, np.concatenate(cut))
    return starts


def _figures(arrays: Mapping[str, pa.Array], group: Int64s, times_ms: Int64s, starts: Int64s) -> dict[str, Any]:
    """Return the sums of each row and its largest second, by column."""
    row = np.zeros(group.size, dtype=np.int64)
    row[starts[1:]] = 1
    seconds = starts_of(np.cumsum(row), times_ms // _SECOND_MS)
    of_rows = np.searchsorted(seconds, starts)
    found: dict[str, Any] = {}
    for name in _SUMMED:
        values = pc.fill_null(arrays[name], 0).to_numpy()
        if values.dtype != np.float64:
            values = values.astype(np.int64)
        in_second = np.add.reduceat(values, seconds)
        found[f"total_{name}"] = np.add.reduceat(in_second, of_rows)
        found[f"peak_{name}"] = np.maximum.reduceat(in_second, of_rows)
    throttle_ms = arrays["throttle_ms"].to_numpy()
    found["total_throttle_ms"] = np.add.reduceat(throttle_ms, starts)
    found["throttled"] = np.add.reduceat((throttle_ms > 0).astype(np.int32), starts)
    return found
