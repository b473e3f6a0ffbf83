"""What one process charges, for the other processes, and what they charge, recorded here.

Of a daemon in a fleet the parent is the member. What it does to a bucket for the other members, the workers do as well.

Invariants: every charge is recorded once in each process; what came from another process is not sent on from here; no
lock, for each process sends sums of its own and the data path takes no part in it.

`benchmarks/fleet/workers_simulation.py` shows why workers share what was charged and no limits: with reports every 10
ms the processes behave as one broker within a hundredth, while shares of a limit are up to 6 % off it.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.core.metrics.rate import EwmaMeter, ShareableRate
from kafka_quotas.core.model.quota_key import QuotaType, ResourceQuota
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.quotas.topic_thresholds import MAX_METERS
from kafka_quotas.enforcement.proxy.proxy_quotas import ProxyQuotas
from kafka_quotas.enforcement.quotas.quota_registry import BucketId
from kafka_quotas.enforcement.sharing.buckets import BucketRecorder, SharedBucket, recorded_since

SLICES: Final = 4
"""Slices of the pool that are looked through at a time, some 1,000 buckets in a fraction of a millisecond."""

_ROUNDING: Final = 1e-6
"""Difference of two sums of the same charges that is none."""


class ProcessCharge(NamedTuple):
    """What a process charged to one bucket, or took in for a topic at a broker."""

    of: BucketId
    amount: float
    past: tuple[int, int] | None = None
    """Start and end (ms) of the time in which it was charged evenly, None for now."""


class Reservation(NamedTuple):
    """What to leave of one bucket to a fleet's other members."""

    of: BucketId
    factor: float
    """Multiple of all later records by which the amount grows."""
    amount: float | None = None
    """The amount for every process, None if it goes by what is in the parent's window.

    Windows of two processes begin at other times, so an amount that fits what is in one is wrong for the other.
    """
    room: float = 0.0
    """Without an amount: what the parent's bucket has left until its limit."""


SharedCharge: TypeAlias = ProcessCharge | Reservation | float
"""A float is the part of its capacity that a bucket may use of which a fleet's other members know nothing yet."""


class _Known:
    """What the other processes know of one bucket."""

    __slots__ = ("alike", "bucket", "total", "unheard")

    def __init__(self, bucket: QuotaBucket) -> None:
        self.bucket = bucket
        self.total = 0.0
        """Its total, but for what no other process has heard of yet."""
        self.unheard = 0.0
        """What was sent to the parent, until it says that it has heard it."""
        self.alike: tuple[float, float] | None = None
        """The amount that all processes reserve, and the capacity: a bucket forgets it when its limit changes."""


class SharedCharges(BucketRecorder):
    """The charges of one process that others share, and what a fleet does to the buckets of all.

    Of a worker the parent confirms by `echoed` what it has heard from here.
    """

    def __init__(self, quotas: ProxyQuotas) -> None:
        self._quotas = quotas
        self._policy = quotas.registry
        self._pool = quotas.registry.pool
        self._known: dict[SharedBucket, _Known] = {}
        self._meters: dict[EwmaMeter, float] = {}
        self._walk = self._pool.walk()
        self._round_ms = self._since_ms = 0
        self._to_reserve: dict[SharedBucket, tuple[float | None, float]] = {}
        self._idle_share = 1.0
        self._done: list[SharedCharge] = []
        self.begin()

    def begin(self) -> None:
        """Begin with what is measured by now, which no other process has to hear of."""
        self._done.clear()
        for bucket in recorded_since(self._pool.walk(), 0):
            self._known_of(bucket).total = bucket.total

    def _known_of(self, bucket: QuotaBucket) -> _Known:
        known = self._known.get(bucket)
        if known is None:
            known = self._known[bucket] = _Known(bucket)
        return known

    def take(self, now_ms: int, *, whole: bool = False) -> list[SharedCharge]:
        """Return what was charged here since the last call.

        Looks at a part of very many buckets, unless `whole`.
        """
        slices = list(self._pool.walk()) if whole else list(islice(self._walk, SLICES))
        found, self._done = self._done, []
        if self._idle_share != self._pool.idle_share:
            self._idle_share = self._pool.idle_share
            found.insert(0, self._idle_share)
        # A charge within the millisecond of the last look may have come after it.
        for bucket in recorded_since(slices, self._since_ms):
            known, total = self._known_of(bucket), bucket.total
            amount = total - known.total
            if abs(amount) > _ROUNDING and (of := self._policy.id_of(bucket)) is not None:
                known.total = total
                found.append(ProcessCharge(of, amount))
                known.unheard += amount
        if whole or len(slices) < SLICES:
            self._begin_round(now_ms)
        found.extend(self._topic_charges())
        found.extend(self._taken_reservations(now_ms))
        return found

    def record(self, charges: Iterable[SharedCharge], now_ms: int) -> None:
        """Record what another process charged."""
        for charge in charges:
            match charge:
                case Reservation():
                    self._reserve(charge, now_ms)
                case ProcessCharge(of=BucketId(quota_type=ResourceQuota.TOPIC) as of):
                    assert not isinstance(of.broker, str)
                    meter = self._quotas.topics.thresholds.broker(of.broker).topics.meter(of.name[0], now_ms)
                    meter.record(charge.amount, now_ms)
                    self._meters[meter] = self._meters.get(meter, 0.0) + charge.amount
                case ProcessCharge(of=of):
                    self._record(self._named(of), charge.amount, now_ms, charge.past)
                case float():
                    self._pool.idle_share = self._idle_share = charge

    def echoed(self, charges: Iterable[SharedCharge]) -> None:
        """Take note that the parent has heard charges of this worker."""
        for charge in charges:
            if isinstance(charge, ProcessCharge) and isinstance(charge.of.quota_type, QuotaType):
                known = self._named(charge.of)
                unheard = known.unheard - charge.amount
                known.unheard = unheard if abs(unheard) > _ROUNDING else 0.0

    def _named(self, of: BucketId) -> _Known:
        return self._known_of(self._policy.manager(of).bucket_of(of.name))

    def _reserve(self, row: Reservation, now_ms: int) -> None:
        """Leave to others what the parent does, and have as much left as it has."""
        known = self._named(row.of)
        bucket, amount = known.bucket, row.amount
        if amount is None:
            # The parent's room doesn't know yet what was charged here since.
            unheard = bucket.total - known.total + known.unheard
            free = _allowed(known, now_ms) - bucket.used(now_ms)
            amount = free - row.room + (1.0 + row.factor) * unheard
        bucket.reserve(amount, row.factor)

    def _record(self, known: _Known, amount: float, now_ms: int, past: tuple[int, int] | None) -> None:
        """Record what other processes hear of otherwise."""
        own = known.bucket.total - known.total
        super().record_for_others(known.bucket, amount, now_ms, past)
        known.total = known.bucket.total - own

    # What a fleet does in the parent, here and by the next `take` in the other processes.

    def offered(self, bucket: QuotaBucket) -> None:
        """Take note of a bucket that may be shared."""
        self._known_of(bucket)

    def record_for_others(
        self, bucket: SharedBucket, amount: float, now_ms: int, past: tuple[int, int] | None = None
    ) -> None:
        """Record an amount in every process."""
        known = self._known.get(bucket)
        if known is None:
            super().record_for_others(bucket, amount, now_ms, past)
            return
        self._record(known, amount, now_ms, past)
        if (of := self._policy.id_of(known.bucket)) is not None:
            self._done.append(ProcessCharge(of, amount, past))

    def reserve_for_others(
        self, bucket: SharedBucket, amount: float, factor: float = 0.0, *, is_shared: bool = True
    ) -> None:
        """Leave an amount to others in every process."""
        bucket.reserve(amount, factor)
        known = self._known.get(bucket)
        if known is None:
            return
        # A free bucket too has the same in every process.
        if factor or (is_shared and amount):
            known.alike = None
            self._to_reserve[bucket] = (None, factor)
        elif known.alike != (alike := (amount, bucket.capacity)):
            known.alike = alike
            self._to_reserve[bucket] = (amount, factor)

    def _taken_reservations(self, now_ms: int) -> Iterator[Reservation]:
        for shared, (amount, factor) in self._to_reserve.items():
            known = self._known.get(shared)
            if known is not None and (of := self._policy.id_of(known.bucket)) is not None:
                room = _allowed(known, now_ms) - known.bucket.used(now_ms) - known.bucket.reserved
                yield Reservation(of, factor, amount, room)
        self._to_reserve.clear()

    def repeat_reservations(self) -> None:
        """Have all that is reserved sent once more, for a process that has just started."""
        for known in self._known.values():
            known.alike = None
        self._idle_share = 1.0

    def _begin_round(self, now_ms: int) -> None:
        self._since_ms, self._round_ms = self._round_ms, now_ms
        self._walk = self._pool.walk()
        if len(self._known) > 2 * len(self._pool) + 1000:
            kept = {bucket for buckets in self._pool.walk() for bucket in buckets}
            self._known = {bucket: known for bucket, known in self._known.items() if bucket in kept}
        if len(self._meters) > 2 * MAX_METERS * max(len(self._quotas.topics.thresholds.brokers), 1):
            kept_meters = {meter for _, meter, _ in self._quotas.meters()}
            self._meters = {meter: total for meter, total in self._meters.items() if meter in kept_meters}

    def _topic_charges(self) -> Iterator[ProcessCharge]:
        for of, meter, _ in self._quotas.meters():
            amount = meter.total - self._meters.get(meter, 0.0)
            if amount:
                self._meters[meter] = meter.total
                yield ProcessCharge(of, amount)


def _allowed(known: _Known, now_ms: int) -> float:
    bucket, window = known.bucket, known.bucket.owner.window
    whole_ms = (window.samples - 1) * window.window_ms
    if not whole_ms or not isinstance(bucket, ShareableRate):
        return bucket.capacity
    return bucket.capacity * bucket.window_ms(now_ms) / whole_ms
