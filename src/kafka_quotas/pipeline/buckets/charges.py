"""A slice of events as the charges of each quota type, in arrays (client, time and amount), and their buckets.

An event is charged to request time where it has thread time, and to the quota of its own type, unless it is exempt.
Clients are numbered in order of appearance, over all slices of a task.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import UNLIMITED, QuotaType
from kafka_quotas.core.resolution.quota_resolver import AppliedQuota, Bucket
from kafka_quotas.pipeline.buckets.proposal import BucketName, ProposedQuotas
from kafka_quotas.pipeline.kernels.order import order_within_rows, starts_of
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.packed_events import distinct
from kafka_quotas.pipeline.tables.results import USED
from kafka_quotas.pipeline.tables.schemas import NAMES

Int64s = NDArray[np.int64]

_BUCKET: Final = [USED.field(name) for name in NAMES]
_ALWAYS_READ: Final = ("cluster", "broker_id", "ts_ms", "user", "client_id", "quota_type", "is_exempt")
AMOUNTS: Final = {
    QuotaType.PRODUCE: ("bytes", 1.0),
    QuotaType.FETCH: ("bytes", 1.0),
    QuotaType.REQUEST: ("thread_ms", 0.1),  # a busy thread uses 100 %, as in Kafka
    QuotaType.CONTROLLER_MUTATION: ("mutations", 1.0),
    QuotaType.REQUEST_RATE: ("requests", 1.0),
}
"""The column with what counts for a quota type, and its factor to the unit of the quota key times seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charges:
    """The charges of one quota type in a slice, in the order of its events."""

    quota_type: QuotaType
    events: Int64s
    """Positions of the events in the slice."""
    clients: Int64s
    """Numbers of the clients."""
    times_ms: Int64s
    """Times in ms since 1970."""
    amounts: NDArray[np.float64]
    """Amounts in the unit of the quota, times seconds for percent."""

    def in_order(self, rows: NDArray[np.int32], *, row_count: int) -> "tuple[NDArray[np.int32], Charges]":
        """Return the rows and their charges, by time where those of any row are not in order already.

        `rows` has the row of each charge: clients that share one are to be mixed by time.
        """
        order = order_within_rows(rows, self.times_ms, row_count=row_count)
        return (rows, self) if order is None else (rows[order], self.picked(order))

    def picked(self, places: NDArray[Any]) -> "Charges":
        """Return the charges at these places, or those that a mask picks."""
        columns = {name: getattr(self, name)[places] for name in ("events", "clients", "times_ms", "amounts")}
        return Charges(quota_type=self.quota_type, **columns)


class RowNumbers:
    """Numbers of the distinct values of some columns, in order of appearance."""

    def __init__(self, *columns: str) -> None:
        self._columns = columns
        self._known: dict[tuple[Any, ...], int] = {}

    def of(self, events: pa.Table) -> Int64s:
        """Return the number of each event's values."""
        numbers = [np.empty(0, dtype=np.int64)]
        for batch in events.to_batches():
            places, found = distinct(batch, self._columns)
            own = [self._known.setdefault(each, len(self._known)) for each in found]
            numbers.append(np.array(own, dtype=np.int64)[places])
        return np.concatenate(numbers)


class ClientNumbers(RowNumbers):
    """Numbers of clients, in order of appearance."""

    def __init__(self) -> None:
        super().__init__(*BucketName._fields)
        self.clients: list[BucketName] = []

    def of(self, events: pa.Table) -> Int64s:
        """Return the number of each event's client, and number new clients.

        Where events have the column `client`, names are compared only where it changes.
        """
        if "client" in events.column_names:
            clients: Int64s = events["client"].to_numpy()
            starts = starts_of(clients)
            firsts = super().of(events.select(list(BucketName._fields)).take(pa.array(starts)))
            found = np.repeat(firsts, np.diff(np.append(starts, clients.size)))
        else:
            found = super().of(events)
        self.clients += (BucketName(*each) for each in islice(self._known, len(self.clients), None))
        return found


def columns_read(quota_types: Iterable[QuotaType]) -> tuple[str, ...]:
    """Return the columns of events that the charges of these quota types need."""
    counted = (AMOUNTS[each][0] for each in quota_types if each is not QuotaType.REQUEST_RATE)
    return (*_ALWAYS_READ, *dict.fromkeys(counted))


def charges_of(events: pa.Table, clients: Int64s, wanted: Callable[[QuotaType], bool]) -> Iterator[Charges]:
    """Yield the charges of each wanted quota type that has any.

    `clients` are the numbers of the events' clients.
    """
    charged = ~numbers(events["is_exempt"])
    times_ms = numbers(events["ts_ms"])
    for quota_type in filter(wanted, QuotaType):
        if quota_type is QuotaType.REQUEST:
            picked = charged & numbers(pc.is_valid(events["thread_ms"]))
        else:
            picked = charged & _is_of(quota_type, events["quota_type"])
        positions = np.flatnonzero(picked)
        if positions.size:
            chosen = slice(None) if positions.size == times_ms.size else positions  # a slice copies nothing
            yield Charges(
                quota_type=quota_type,
                events=positions,
                clients=clients[chosen],
                times_ms=times_ms[chosen],
                amounts=_amounts(events, quota_type)[chosen],
            )


def numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column without nulls as an array."""
    found: NDArray[Any] = column.to_numpy()
    return found


def _amounts(events: pa.Table, quota_type: QuotaType) -> NDArray[np.float64]:
    """Return the amount of each event for a quota type, in the unit of its key times seconds."""
    column, factor = AMOUNTS[quota_type]
    if quota_type is QuotaType.REQUEST_RATE:
        return np.ones(events.num_rows)
    return numbers(pc.fill_null(events[column], 0)).astype(np.float64) * factor


def _is_of(quota_type: QuotaType, column: pa.ChunkedArray) -> NDArray[np.bool_]:
    parts = []
    for chunk in (each.dictionary_encode() for each in column.chunks):
        wanted = np.array([name == quota_type.value for name in chunk.dictionary.to_pylist()], dtype=np.bool_)
        parts.append(wanted[chunk.indices.to_numpy()])
    return np.concatenate([np.empty(0, dtype=np.bool_), *parts])


def bucket_columns(names: Sequence[BucketName], quota_type: QuotaType) -> list[pa.Array]:
    """Return the columns `NAMES` of some buckets of one quota type."""
    columns = {field.name: [getattr(each, field.name, quota_type.value) for each in names] for field in _BUCKET}
    return [pa.array(columns[field.name], field.type) for field in _BUCKET]


class BucketRows:
    """The buckets of clients under proposals with equal sharing, numbered in order of appearance.

    A proposal whose quotas change with time must be the only one.
    """

    def __init__(self, quotas: Sequence[ProposedQuotas]) -> None:
        self._quotas = quotas
        self._later = list(quotas[0].later)
        self.names: list[BucketName] = []
        self.matches: list[tuple[AppliedQuota | None, ...]] = []
        """Limits of each row, one per proposal, as they were when it was last in use."""
        self.changes = 0
        """Differs after everything that changes `bounds`."""
        self._rows: dict[BucketName, int] = {}
        self._row_of_client: list[int] = []
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def placed(self, charges: Charges, clients: Sequence[BucketName]) -> Iterator[tuple[NDArray[np.int32], Charges]]:
        """Yield the charges of a slice with their rows, each row's by time, apart by state of the quotas.

        Slices come one after the other in time. `clients` are those of the last call, and new ones after them.
        """
        for part in self._by_quotas(charges):
            row_of_client = self.grow(clients)
            yield part.in_order(row_of_client[part.clients], row_count=len(self.names))

    def _by_quotas(self, charges: Charges) -> Iterator[Charges]:
        """Yield the charges under each quotas in force, and have these quotas in place meanwhile."""
        while self._later and charges.times_ms.size and charges.times_ms.max() >= self._later[0][0]:
            is_before = charges.times_ms < self._later[0][0]
            if is_before.any():
                yield charges.picked(is_before)
            charges = charges.picked(~is_before)
            self._quotas = [self._later.pop(0)[1]]
            self._buckets.clear()
            self._row_of_client.clear()
        if charges.times_ms.size:
            yield charges

    def grow(self, clients: Sequence[BucketName]) -> NDArray[np.int32]:
        """Return the row of each client: those of the last call, and new ones after them."""
        if len(clients) == len(self._row_of_client):
            return np.array(self._row_of_client, dtype=np.int32)
        self.changes += 1
        for client in clients[len(self._row_of_client) :]:
            pair = client.user, client.client_id
            bucket = self._buckets.get(pair)
            if bucket is None:
                bucket = self._buckets[pair] = self._quotas[0].bucket(*pair)
            name = BucketName(client.cluster, client.broker_id, *bucket)
            row = self._rows.setdefault(name, len(self.names))
            if row == len(self.names):
                self.names.append(name)
                self.matches.append(())
            self.matches[row] = tuple(each.match(bucket) for each in self._quotas)
            self._row_of_client.append(row)
        return np.array(self._row_of_client, dtype=np.int32)

    def bounds(self) -> NDArray[np.float64]:
        """Return the limits for kernels, rows by proposals."""
        limits = [[UNLIMITED if each is None else each.limit for each in row] for row in self.matches]
        return np.array(limits, dtype=np.float64).reshape(-1, len(self._quotas))
