"""The state of one part of a stream between batches, its form as bytes, and the charges that move it on.

The charges of a batch come in pieces: those of one quota type that one task found for one part, as an Arrow stream of
a number of the bucket, time, amount and throttle time. The names of the buckets are in the stream's metadata.

Contract: no Spark. The part of a bucket follows from its names and the number of parts alone.

Invariant: the state after a batch follows from the state before it and the batch's charges alone. Lateness is judged by
each broker's own clock, the latest time among its events of earlier batches, in whatever part they are.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import UNLIMITED, QuotaType
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.charges import Charges, ClientNumbers, charges_of, numbers
from kafka_quotas.pipeline.buckets.proposal import BucketName, BucketRows, Proposal, ProposedQuotas
from kafka_quotas.pipeline.kernels import loop
from kafka_quotas.pipeline.kernels.admission import measure_rates
from kafka_quotas.pipeline.kernels.limiters import LimiterRule, Limiters
from kafka_quotas.pipeline.kernels.order import order_within_rows
from kafka_quotas.pipeline.tables.arrow import packed, unpacked
from kafka_quotas.pipeline.tables.schemas import LIVE

Int64s = NDArray[np.int64]

_LARGEST: Final = 1 << 21
"""Charges that a task gathers before it cuts them: names are written once per piece."""
_TYPE, _BUCKETS = b"quota_type", b"buckets"


class BucketCharges(NamedTuple):
    """Charges of one quota type and the buckets that they belong to."""

    quota_type: QuotaType
    buckets: list[BucketName]
    rows: Int64s
    """The place in `buckets` of each charge."""
    times_ms: Int64s
    """Times in ms since 1970."""
    amounts: NDArray[np.float64]
    """Amounts in the unit of the quota, times seconds for percent."""
    throttle_ms: Int64s
    """Recorded throttle times in ms."""


class Partitioner:
    """Finds the bucket of each charge, and the part of each bucket."""

    def __init__(self, quotas: Proposal, *, parts: int) -> None:
        self._parts = parts
        self._clients = ClientNumbers()
        self._buckets = {each: BucketRows([ProposedQuotas(quotas, each)]) for each in QuotaType}
        self._part_of: dict[QuotaType, list[int]] = {each: [] for each in QuotaType}
        self._gathered: dict[QuotaType, list[BucketCharges]] = {each: [] for each in QuotaType}
        self._count = 0

    def pieces(self, batches: Iterable[pa.Table]) -> Iterator[tuple[int, pa.Buffer]]:
        """Yield the part and content of each piece of some tables of events."""
        for events in batches:
            of_event = self._clients.of(events)
            throttle_ms = numbers(events["throttle_ms"])
            for charges in charges_of(events, of_event, lambda _: True):
                self._gather(charges, throttle_ms[charges.events])
            if self._count >= _LARGEST:
                yield from self._cut()
        yield from self._cut()

    def _gather(self, charges: Charges, throttle_ms: Int64s) -> None:
        buckets = self._buckets[charges.quota_type]
        rows = buckets.grow(self._clients.clients)[charges.clients].astype(np.int64)
        found = BucketCharges(charges.quota_type, buckets.names, rows, charges.times_ms, charges.amounts, throttle_ms)
        self._gathered[charges.quota_type].append(found)
        self._count += rows.size

    def _cut(self) -> Iterator[tuple[int, pa.Buffer]]:
        for gathered in self._gathered.values():
            if gathered:
                yield from self._by_part(joined(gathered))
                gathered.clear()
        self._count = 0

    def _by_part(self, charges: BucketCharges) -> Iterator[tuple[int, pa.Buffer]]:
        known = self._part_of[charges.quota_type]
        known += [part_of(charges.quota_type, name, self._parts) for name in charges.buckets[len(known) :]]
        of_charge = np.array(known, dtype=np.uint16)[charges.rows]
        order = np.argsort(of_charge, kind="stable")
        ends = np.cumsum(np.bincount(of_charge, minlength=self._parts))
        for part, own in enumerate(np.split(order, ends[:-1])):
            if own.size:
                yield part, _packed(charges, own)


def part_of(quota_type: QuotaType, bucket: BucketName, parts: int) -> int:
    """Return the part of a bucket, from 0."""
    text = "\0".join((quota_type.value, *map(str, bucket)))
    return crc32(text.encode("utf-8", "surrogatepass")) % parts


def joined(several: list[BucketCharges]) -> BucketCharges:
    """Return charges that share their buckets as one."""
    if len(several) == 1:
        return several[0]
    columns = [np.concatenate(each) for each in zip(*(charges[2:] for charges in several), strict=True)]
    return BucketCharges(*several[0][:2], *columns)


def unpacked_charges(content: pa.Buffer) -> BucketCharges:
    """Return the charges of a piece."""
    table = unpacked(content)
    about = table.schema.metadata
    return BucketCharges(
        QuotaType(about[_TYPE].decode()),
        [BucketName(*each) for each in json.loads(about[_BUCKETS])],
        *(column.to_numpy() for column in table.columns),
    )


def _packed(charges: BucketCharges, chosen: Int64s) -> pa.Buffer:
    """Return some charges as a piece, with the buckets that they have."""
    rows = charges.rows[chosen]
    is_used = np.zeros(len(charges.buckets), dtype=bool)
    is_used[rows] = True
    used = np.flatnonzero(is_used)
    places = np.cumsum(is_used) - 1
    columns = [places[rows], *(column[chosen] for column in charges[3:])]
    names = json.dumps([charges.buckets[row] for row in used.tolist()]).encode()
    schema = pa.schema(
        [("row", pa.int64()), ("ts_ms", pa.int64()), ("amount", pa.float64()), ("throttle_ms", pa.int64())],
        metadata={_TYPE: charges.quota_type.value.encode(), _BUCKETS: names},
    )
    return packed(pa.table([pa.array(each) for each in columns], schema=schema))


LONG_AGO_MS: Final = -(2**62)
"""A time before any other."""
_SAVED: Final = ("_clocks", "_sums", "_free_ms", "_counts", "_amounts", "_slots", "_pool", "_pool_used")
_OWN_SAVED: Final = ("_latest_ms", "_total_events", "_total_amount")
"""Arrays of the limiters, and of their buckets, that are kept between batches."""

Broker = tuple[str, int]
"""A cluster and the id of a broker."""


class LiveType(Limiters):
    """Buckets of one quota type by cluster, broker, user and client-id, numbered in order of appearance."""

    def __init__(self, quota_type: QuotaType, quotas: ProposedQuotas, window: QuotaWindow = DEFAULT_WINDOW) -> None:
        rule = LimiterRule(
            tokens=quota_type is QuotaType.CONTROLLER_MUTATION, bounded=quota_type is QuotaType.REQUEST, window=window
        )
        super().__init__(rule, np.empty((0, 1)))
        self._type = quota_type
        self._quotas = quotas
        self._rows: dict[BucketName, int] = {}
        self._limits: list[float | None] = []
        self._latest_ms: Int64s = np.empty(0, dtype=np.int64)
        self._brokers: dict[Broker, int] = {}
        self._broker_of_row: list[int] = []
        self._total_events: Int64s = np.empty(0, dtype=np.int64)
        self._total_amount = np.empty(0)

    @property
    def buckets(self) -> list[BucketName]:
        """The buckets by row."""
        return list(self._rows)

    def take(self, found: Iterable[BucketCharges], horizons_ms: Mapping[Broker, int]) -> dict[str, list[Any]]:
        """Apply charges to their buckets and return these buckets' rows of `live`, without the batch's number.

        Charges older than the horizon of their broker are late: counted but not applied. Others that are older than
        the bucket's latest are applied at that time, as a broker's clock would have it.
        """
        charges = self._in_order(found)
        rows, size = charges.rows, len(self._limits)
        of_broker = np.array([horizons_ms.get(each, LONG_AGO_MS) for each in self._brokers], dtype=np.int64)
        late = charges.times_ms < of_broker[np.array(self._broker_of_row, dtype=np.int64)][rows]
        prompt = rows[~late]
        times_ms = np.maximum(charges.times_ms[~late], self._latest_ms[prompt])
        before = self.counts[:, 0, :].copy()
        self.run(prompt.astype(np.int32), times_ms, charges.amounts[~late])
        np.maximum.at(self._latest_ms, prompt, times_ms)
        events, late_events = (np.bincount(rows[picked], minlength=size) for picked in (~late, late))
        amount, late_amount = (
            np.bincount(rows[picked], weights=charges.amounts[picked], minlength=size).astype(np.float64)
            for picked in (~late, late)
        )
        self._total_events += events + late_events
        self._total_amount += amount + late_amount
        own = np.flatnonzero(events + late_events)
        observed_ms = np.bincount(rows, weights=charges.throttle_ms, minlength=size).astype(np.int64)
        sums = {
            "events": events,
            "amount": amount,
            "observed_throttle_ms": observed_ms,
            "late_events": late_events,
            "late_amount": late_amount,
            "total_events": self._total_events,
            "total_amount": self._total_amount,
        }
        return self._report(own, before) | {name: each[own].tolist() for name, each in sums.items()}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays, to be saved with `buckets`."""
        return {name: getattr(self, name) for name in (*_SAVED, *_OWN_SAVED)}

    def restore(self, buckets: Iterable[BucketName], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore saved buckets and arrays under today's quotas."""
        for bucket in buckets:
            self._add(bucket)
        self._rebound()
        for name in (*_SAVED, *_OWN_SAVED):
            setattr(self, name, arrays[name])
        self._require_fit(np.empty(0, dtype=np.int64))

    def clocks_ms(self) -> dict[Broker, int]:
        """Return the latest time that was applied of each broker."""
        latest_ms = np.full(len(self._brokers), LONG_AGO_MS)
        np.maximum.at(latest_ms, np.array(self._broker_of_row, dtype=np.int64), self._latest_ms)
        return dict(zip(self._brokers, latest_ms.tolist(), strict=True))

    def _in_order(self, found: Iterable[BucketCharges]) -> BucketCharges:
        """Return all charges with rows of this state, each row's by time."""
        own = [each._replace(rows=self._rows_of(each.buckets)[each.rows]) for each in found]
        charges = joined(own)
        order = order_within_rows(charges.rows.astype(np.int32), charges.times_ms, row_count=len(self._limits))
        if order is None:
            return charges
        names = ("rows", "times_ms", "amounts", "throttle_ms")
        return charges._replace(**{name: getattr(charges, name)[order] for name in names})

    def _rows_of(self, buckets: Iterable[BucketName]) -> Int64s:
        """Return the row of each bucket, and add rows for new ones."""
        known = len(self._limits)
        rows = np.array([self._add(each) for each in buckets], dtype=np.int64)
        if added := len(self._limits) - known:
            self._rebound()
            self._latest_ms = np.concatenate([self._latest_ms, np.full(added, LONG_AGO_MS)])
            self._total_events = np.concatenate([self._total_events, np.zeros(added, dtype=np.int64)])
            self._total_amount = np.concatenate([self._total_amount, np.zeros(added)])
        return rows

    def _add(self, name: BucketName) -> int:
        if name not in self._rows:
            match = self._quotas.match((name.user, name.client_id))
            self._rows[name] = len(self._limits)
            self._limits.append(None if match is None else match.limit)
            self._broker_of_row.append(self._brokers.setdefault(name[:2], len(self._brokers)))
        return self._rows[name]

    def _rebound(self) -> None:
        limits = [UNLIMITED if each is None else each for each in self._limits]
        self.rebound(np.array(limits, dtype=np.float64).reshape(-1, 1))

    def _rates(self, rows: Int64s, times_ms: Int64s) -> NDArray[np.float64]:
        """Return Kafka's rate of each bucket at its own time, or for mutations the tokens left."""
        self._require_fit(rows, times_ms)
        window = self.rule.window
        if self.rule.tokens:
            return self._sums[rows]
        rates = np.zeros(rows.size)
        measure_rates(rows, times_ms, self._clocks, self._sums, window.samples, window.window_ms, rates)
        return rates

    def _report(self, rows: Int64s, before: Int64s) -> dict[str, list[Any]]:
        """Return the names of some rows and what their limiters say after a batch, given the counts before it."""
        counts = self.counts[rows, 0, :]
        gained = counts - before[rows]
        latest_ms, end_ms = self._latest_ms[rows], counts[:, loop.END_MS]
        is_known = latest_ms > LONG_AGO_MS
        rates = np.zeros(rows.size)
        rates[is_known] = self._rates(rows[is_known], latest_ms[is_known])
        is_held = (counts[:, loop.THROTTLED] > 0) & (end_ms > latest_ms)
        buckets = self.buckets
        names = list(zip(*(buckets[row] for row in rows.tolist()), strict=True)) or [()] * len(BucketName._fields)
        return dict(zip(BucketName._fields, map(list, names), strict=True)) | {
            "ts_ms": np.where(is_known, latest_ms, 0).tolist(),
            "quota_type": [self._type.value] * rows.size,
            "rate": rates.tolist(),
            "quota": [self._limits[row] for row in rows.tolist()],
            "throttled_events": gained[:, loop.THROTTLED].tolist(),
            "throttle_ms": gained[:, loop.THROTTLE_MS].tolist(),
            "throttled_until_ms": [end if held else None for end, held in zip(end_ms.tolist(), is_held, strict=True)],
        }


class PartState:
    """The live state of the buckets in one part, of all quota types."""

    def __init__(self, quotas: Proposal, *, window: QuotaWindow = DEFAULT_WINDOW) -> None:
        self._types = {each: LiveType(each, ProposedQuotas(quotas, each), window) for each in QuotaType}

    def take(self, charges: Iterable[BucketCharges], horizons_ms: Mapping[Broker, int], *, batch_id: int) -> pa.Table:
        """Apply the charges of a batch to the state and return its rows of `live`.

        `horizons_ms` is the time by broker before which a charge is late.
        """
        columns: dict[str, list[Any]] = {name: [] for name in LIVE.column_names}
        of_type: dict[QuotaType, list[BucketCharges]] = {each: [] for each in QuotaType}
        for each in charges:
            of_type[each.quota_type].append(each)
        for quota_type, found in of_type.items():
            if found:
                for name, values in self._types[quota_type].take(found, horizons_ms).items():
                    columns[name] += values
        columns["batch_id"] = [batch_id] * len(columns["ts_ms"])
        return pa.table(columns, schema=LIVE.arrow_schema())

    def clocks_ms(self) -> dict[Broker, int]:
        """Return the latest time of each broker in this part."""
        latest: dict[Broker, int] = {}
        for live in self._types.values():
            for broker, at_ms in live.clocks_ms().items():
                latest[broker] = max(at_ms, latest.get(broker, LONG_AGO_MS))
        return latest

    def dump(self) -> bytes:
        """Return the state as bytes."""
        about = {each.value: live.buckets for each, live in self._types.items()}
        arrays = {
            f"{each.value}{name}": array for each, live in self._types.items() for name, array in live.arrays().items()
        }
        file = BytesIO()
        np.savez(file, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)
        return file.getvalue()

    def load(self, content: bytes) -> None:
        """Restore a state of the same quota window from its bytes, under today's quotas."""
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            about = json.loads(str(arrays["about"]))
            for each, live in self._types.items():
                own = {
                    name.removeprefix(each.value): arrays[name] for name in arrays if name.startswith(f"{each.value}_")
                }
                live.restore((BucketName(*bucket) for bucket in about[each.value]), own)
