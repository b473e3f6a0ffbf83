"""Charges of a batch by quota bucket, cut into pieces for the parts of the state.

A piece has the charges of one quota type that one task found for one part, as an Arrow stream: a number of the bucket,
time, amount and throttle time per charge. The names of the buckets are in the stream's metadata.

Contract: no Spark. The part of a bucket follows from its names and the number of parts alone.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.charges import Charges, ClientNumbers, charges_of, numbers
from kafka_quotas.pipeline.buckets.proposal import BucketName, BucketRows, Proposal, ProposedQuotas
from kafka_quotas.pipeline.engine.event_pieces import packed, unpacked

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
