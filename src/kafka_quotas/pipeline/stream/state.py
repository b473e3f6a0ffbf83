"""The state of one part of a stream between batches, its form as bytes, and the charges that move it on.

The charges of a batch come in pieces: those of one quota type that one task found for one part, as an Arrow stream of
a number of the bucket, time, amount and throttle time. The names of the buckets are in the stream's metadata.

Contract: no Spark. The part of a bucket follows from its names and the number of parts alone.

Invariant: the state after a batch follows from the state before it and the batch's charges alone. Lateness is judged by
each broker's own clock, the latest time among its events of earlier batches, in whatever part they are.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import UNLIMITED, QuotaType
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.charges import BucketRows, ClientNumbers, bucket_columns, charges_of, numbers
from kafka_quotas.pipeline.buckets.proposal import BucketName, Proposal, ProposedQuotas
from kafka_quotas.pipeline.kernels import loop
from kafka_quotas.pipeline.kernels.admission import measure_rates
from kafka_quotas.pipeline.kernels.limiters import LimiterRule, Limiters
from kafka_quotas.pipeline.kernels.order import order_within_rows
from kafka_quotas.pipeline.tables.arrow import packed, unpacked
from kafka_quotas.pipeline.tables.schemas import LIVE, NAMES

Int64s = NDArray[np.int64]

_LARGEST: Final = 1 << 21
"""Charges that a task gathers before it cuts them: names are written once per piece."""
_TYPE, _BUCKETS = b"quota_type", b"buckets"
_PIECE: Final = ("row", "ts_ms", "amount", "throttle_ms")


class Partitioner:
    """Finds the bucket of each charge, and the part of each bucket."""

    def __init__(self, quotas: Proposal, *, parts: int) -> None:
        self._parts = parts
        self._clients = ClientNumbers()
        self._buckets = {each: BucketRows([ProposedQuotas(quotas, each)]) for each in QuotaType}
        self._part_of: dict[QuotaType, list[int]] = {each: [] for each in QuotaType}
        self._gathered: dict[QuotaType, list[Sequence[NDArray[Any]]]] = {each: [] for each in QuotaType}

    def pieces(self, batches: Iterable[pa.Table]) -> Iterator[tuple[int, bytes]]:
        """Yield the part and content of each piece of some tables of events."""
        count = 0
        for events in batches:
            of_event = self._clients.of(events)
            throttle_ms = numbers(events["throttle_ms"])
            for charges in charges_of(events, of_event, lambda _: True):
                rows = self._buckets[charges.quota_type].grow(self._clients.clients)[charges.clients].astype(np.int64)
                columns = (rows, charges.times_ms, charges.amounts, throttle_ms[charges.events])
                self._gathered[charges.quota_type].append(columns)
                count += rows.size
            if count >= _LARGEST:
                yield from self._cut()
                count = 0
        yield from self._cut()

    def _cut(self) -> Iterator[tuple[int, bytes]]:
        for quota_type, gathered in self._gathered.items():
            if gathered:
                columns = [np.concatenate(each) for each in zip(*gathered, strict=True)]
                gathered.clear()
                yield from self._by_part(quota_type, columns)

    def _by_part(self, quota_type: QuotaType, columns: Sequence[NDArray[Any]]) -> Iterator[tuple[int, bytes]]:
        names, known = self._buckets[quota_type].names, self._part_of[quota_type]
        known += [part_of(quota_type, name, self._parts) for name in names[len(known) :]]
        of_charge = np.array(known, dtype=np.uint16)[columns[0]]
        order = np.argsort(of_charge, kind="stable")
        ends = np.cumsum(np.bincount(of_charge, minlength=self._parts))
        for part, own in enumerate(np.split(order, ends[:-1])):
            if own.size:
                rows, *others = (column[own] for column in columns)
                is_used = np.zeros(len(names), dtype=bool)
                is_used[rows] = True
                used = json.dumps([names[row] for row in np.flatnonzero(is_used).tolist()])
                piece = [(np.cumsum(is_used) - 1)[rows], *others]
                yield part, packed(pa.table(piece, names=_PIECE, metadata={_TYPE: quota_type.value, _BUCKETS: used}))


def part_of(quota_type: QuotaType, bucket: BucketName, parts: int) -> int:
    """Return the part of a bucket, from 0."""
    text = "\0".join((quota_type.value, *map(str, bucket)))
    return crc32(text.encode("utf-8", "surrogatepass")) % parts


LONG_AGO_MS: Final = -(2**62)
"""A time before any other."""
_SAVED: Final = (
    *("_clocks", "_sums", "_free_ms", "_counts", "_amounts", "_slots", "_pool", "_pool_used"),
    *("_latest_ms", "_total_events", "_total_amount"),
)
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
        self.buckets: dict[BucketName, int] = {}
        """The row of each bucket."""
        self._limits: list[float | None] = []
        self._latest_ms: Int64s = np.empty(0, dtype=np.int64)
        self._total_events: Int64s = np.empty(0, dtype=np.int64)
        self._total_amount = np.empty(0)

    def take(self, pieces: Iterable[pa.Table], horizons_ms: Mapping[Broker, int], *, batch_id: int) -> pa.Table:
        """Apply charges to their buckets and return these buckets' rows of `live`.

        Charges older than the horizon of their broker are late: counted but not applied. Others that are older than
        the bucket's latest are applied at that time, as a broker's clock would have it.
        """
        rows, times_ms, amounts, throttle_ms = self._in_order(pieces)
        horizons = np.array([horizons_ms.get(each[:2], LONG_AGO_MS) for each in self.buckets], dtype=np.int64)
        late, size = times_ms < horizons[rows], len(self.buckets)
        prompt = rows[~late]
        applied_ms = np.maximum(times_ms[~late], self._latest_ms[prompt])
        before = self.counts[:, 0, :].copy()
        self.run(prompt.astype(np.int32), applied_ms, amounts[~late])
        np.maximum.at(self._latest_ms, prompt, applied_ms)
        events, late_events = (np.bincount(rows[picked], minlength=size) for picked in (~late, late))
        amount, late_amount = (
            np.bincount(rows[picked], amounts[picked], size).astype(np.float64) for picked in (~late, late)
        )
        self._total_events += events + late_events
        self._total_amount += amount + late_amount
        own = np.flatnonzero(events + late_events)
        sums = {
            "batch_id": np.full(size, batch_id),
            "events": events,
            "amount": amount,
            "observed_throttle_ms": np.bincount(rows, throttle_ms, size).astype(np.int64),
            "late_events": late_events,
            "late_amount": late_amount,
            "total_events": self._total_events,
            "total_amount": self._total_amount,
        }
        columns = self._report(own, before) | {name: each[own] for name, each in sums.items()}
        return pa.table(columns, schema=LIVE.arrow_schema())

    def restore(self, buckets: Iterable[BucketName], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore saved buckets and arrays under today's quotas."""
        self._rows_of(buckets)
        for name, array in arrays.items():
            setattr(self, name, array)
        self._require_fit(np.empty(0, dtype=np.int64))

    def clocks_ms(self) -> Iterator[tuple[Broker, int]]:
        """Yield the broker of each bucket, and its latest time that was applied."""
        for name, at_ms in zip(self.buckets, self._latest_ms.tolist(), strict=True):
            yield name[:2], at_ms

    def _in_order(self, pieces: Iterable[pa.Table]) -> list[NDArray[Any]]:
        """Return the columns of all charges with rows of this state, each row's by time."""
        parts = []
        for piece in pieces:
            own = self._rows_of(BucketName(*each) for each in json.loads(piece.schema.metadata[_BUCKETS]))
            places, *others = (column.to_numpy() for column in piece.columns)
            parts.append([own[places], *others])
        columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
        order = order_within_rows(columns[0].astype(np.int32), columns[1], row_count=len(self.buckets))
        return columns if order is None else [column[order] for column in columns]

    def _rows_of(self, buckets: Iterable[BucketName]) -> Int64s:
        """Return the row of each bucket, and add rows for new ones."""
        known, rows = len(self.buckets), []
        for name in buckets:
            rows.append(row := self.buckets.setdefault(name, len(self.buckets)))
            if row == len(self._limits):
                match = self._quotas.match((name.user, name.client_id))
                self._limits.append(None if match is None else match.limit)
        if added := len(self.buckets) - known:
            limits = [UNLIMITED if each is None else each for each in self._limits]
            self.rebound(np.array(limits, dtype=np.float64).reshape(-1, 1))
            self._latest_ms = np.append(self._latest_ms, np.full(added, LONG_AGO_MS))
            self._total_events = np.append(self._total_events, np.zeros(added, dtype=np.int64))
            self._total_amount = np.append(self._total_amount, np.zeros(added))
        return np.array(rows, dtype=np.int64)

    def _rates(self, rows: Int64s, times_ms: Int64s) -> NDArray[np.float64]:
        """Return Kafka's rate of each bucket at its own time, or for mutations the tokens left."""
        self._require_fit(rows, times_ms)
        window = self.rule.window
        if self.rule.tokens:
            return self._sums[rows]
        rates = np.zeros(rows.size)
        measure_rates(rows, times_ms, self._clocks, self._sums, window.samples, window.window_ms, rates)
        return rates

    def _report(self, rows: Int64s, before: Int64s) -> dict[str, Any]:
        """Return the names of some rows and what their limiters say after a batch, given the counts before it."""
        counts = self.counts[rows, 0, :]
        gained = counts - before[rows]
        latest_ms, end_ms = self._latest_ms[rows], counts[:, loop.END_MS]
        is_known = latest_ms > LONG_AGO_MS
        rates = np.zeros(rows.size)
        rates[is_known] = self._rates(rows[is_known], latest_ms[is_known])
        is_held = (counts[:, loop.THROTTLED] > 0) & (end_ms > latest_ms)
        buckets = list(self.buckets)
        names = bucket_columns([buckets[row] for row in rows.tolist()], self._type)
        return dict(zip(NAMES, names, strict=True)) | {
            "ts_ms": np.where(is_known, latest_ms, 0),
            "rate": rates,
            "quota": [self._limits[row] for row in rows.tolist()],
            "throttled_events": gained[:, loop.THROTTLED],
            "throttle_ms": gained[:, loop.THROTTLE_MS],
            "throttled_until_ms": pa.array(end_ms, mask=~is_held),
        }


class PartState:
    """The live state of the buckets in one part, of all quota types."""

    def __init__(self, quotas: Proposal, *, window: QuotaWindow = DEFAULT_WINDOW) -> None:
        self._types = {each.value: LiveType(each, ProposedQuotas(quotas, each), window) for each in QuotaType}

    def take(self, pieces: Iterable[bytes], horizons_ms: Mapping[Broker, int], *, batch_id: int) -> pa.Table:
        """Apply the pieces of a batch to the state and return its rows of `live`.

        `horizons_ms` is the time by broker before which a charge is late.
        """
        of_type: dict[str, list[pa.Table]] = {}
        for piece in map(unpacked, pieces):
            of_type.setdefault(piece.schema.metadata[_TYPE].decode(), []).append(piece)
        rows = [self._types[each].take(own, horizons_ms, batch_id=batch_id) for each, own in of_type.items()]
        return pa.concat_tables([LIVE.arrow_schema().empty_table(), *rows])

    def clocks_ms(self) -> dict[Broker, int]:
        """Return the latest time of each broker in this part."""
        latest: dict[Broker, int] = {}
        for live in self._types.values():
            for broker, at_ms in live.clocks_ms():
                latest[broker] = max(at_ms, latest.get(broker, LONG_AGO_MS))
        return latest

    def dump(self) -> bytes:
        """Return the state as bytes."""
        about = np.array(json.dumps({each: list(live.buckets) for each, live in self._types.items()}))
        arrays = {f"{each}{name}": getattr(live, name) for each, live in self._types.items() for name in _SAVED}
        file = BytesIO()
        np.savez(file, allow_pickle=False, about=about, **arrays)
        return file.getvalue()

    def load(self, content: bytes) -> None:
        """Restore a state of the same quota window from its bytes, under today's quotas."""
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            for each, buckets in json.loads(str(arrays["about"])).items():
                own = {name: arrays[f"{each}{name}"] for name in _SAVED}
                self._types[each].restore((BucketName(*bucket) for bucket in buckets), own)
