"""What one process charges, for the other processes, and what they charge, recorded here.

Of a daemon in a fleet the parent is the member. What it does to a bucket for the other members, the workers do as well.

Invariants: every charge is recorded once in each process; what came from another process is not sent on from here; no
lock, for each process sends sums of its own and the data path takes no part in it.

`benchmarks/fleet/workers_simulation.py` shows why workers share what was charged and no limits: with reports every 10
ms the processes behave as one broker within a hundredth, while shares of a limit are up to 6 % off it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from kafka_quotas.core.metrics.ewma import EwmaMeter
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager
from kafka_quotas.core.quotas.topic_thresholds import MAX_METERS
from kafka_quotas.enforcement.filters.thresholds import ThresholdRegistry
from kafka_quotas.enforcement.quotas.quota_registry import NodeId, QuotaRegistry
from kafka_quotas.enforcement.session.state import ThrottledChannel
from kafka_quotas.enforcement.sharing.buckets import BucketId, Buckets, SharedBucket, recorded_since
from kafka_quotas.enforcement.sharing.usage import SampledBucket

SLICES: Final = 4
"""Slices of the pool that are looked through at a time, some 1,000 buckets in a fraction of a millisecond."""

_ROUNDING: Final = 1e-6
"""Difference of two sums of the same charges that is none."""


class BucketCharge(NamedTuple):
    """What was charged to one bucket."""

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


class IdleShare(NamedTuple):
    """The part of its capacity that a bucket may use of which a fleet's other members know nothing yet."""

    share: float


class TopicCharge(NamedTuple):
    """What a broker took in for one topic, the empty one for all together."""

    broker: NodeId
    topic: str
    amount: float


SharedCharge = BucketCharge | TopicCharge | Reservation | IdleShare


class CarriedBucket:
    """A bucket of the parent that a fleet shares: what the fleet does to it, each worker does to its own."""

    __slots__ = ("_bucket", "_manager", "_shared")

    def __init__(self, bucket: QuotaBucket, manager: ClientQuotaManager, shared: "SharedCharges") -> None:
        self._bucket = bucket
        self._manager = manager
        self._shared = shared

    @property
    def capacity(self) -> float:
        """The most that a rested client may take without a throttle time."""
        return self._bucket.capacity

    @property
    def total(self) -> float:
        """The sum of all records since the start, of all processes and of other members."""
        return self._bucket.total

    def used(self, now_ms: int) -> float:
        """Return how much of the capacity the records take up now."""
        return self._bucket.used(now_ms)

    def record(self, value: float, now_ms: int) -> None:
        """Record a value in all processes."""
        self._shared.record_in_all(self._bucket, self._manager, value, now_ms)

    def reserve(self, amount: float, factor: float = 0.0) -> None:
        """Leave an amount of the capacity to others in all processes, and `factor` times all later records."""
        self._shared.reserve_in_all(self._bucket, self._manager, amount, factor)


class CarriedSamples(CarriedBucket):
    """A carried bucket that keeps samples of a window."""

    __slots__ = ("_samples",)

    def __init__(
        self, bucket: QuotaBucket, samples: SampledBucket, manager: ClientQuotaManager, shared: "SharedCharges"
    ) -> None:
        super().__init__(bucket, manager, shared)
        self._samples = samples

    def window_ms(self, now_ms: int) -> int:
        """Return the time whose limit is the capacity at present."""
        return self._samples.window_ms(now_ms)

    def mean_age_ms(self, now_ms: int) -> float:
        """Return how long ago what is used was recorded on average."""
        return self._samples.mean_age_ms(now_ms)

    def record_past(self, value: float, since_ms: int, until_ms: int, now_ms: int) -> None:
        """Record a value that came evenly over a past time in all processes."""
        self._shared.record_in_all(self._bucket, self._manager, value, now_ms, past=(since_ms, until_ms))


class SharedCharges:
    """The charges of one process that others share, and what a fleet does to the buckets of all."""

    def __init__(self, policy: QuotaRegistry, thresholds: ThresholdRegistry, *, is_worker: bool = False) -> None:
        """Make the charges of a process that shares nothing yet.

        Args:
            policy: The quotas of this process.
            thresholds: The meters of topics.
            is_worker: Whether the parent confirms by `echoed` what it has heard from here.
        """
        self._buckets = Buckets(policy)
        self._pool = policy.pool
        self._thresholds = thresholds
        self._totals: dict[QuotaBucket, float] = {}
        self._meters: dict[EwmaMeter, float] = {}
        self._walk = self._pool.walk()
        self._round_ms = self._since_ms = 0
        self._carried: dict[QuotaBucket, CarriedBucket] = {}
        self._alike: dict[QuotaBucket, tuple[float, float]] = {}  # amount that all processes reserve, and the capacity
        self._to_reserve: dict[QuotaBucket, tuple[ClientQuotaManager, float | None, float]] = {}
        self._is_worker = is_worker
        self._unheard: dict[QuotaBucket, float] = {}  # what was sent to the parent, until it says that it has heard it
        self._idle_share = 1.0
        self._done: list[SharedCharge] = []
        self.begin()

    def begin(self) -> None:
        """Begin with what is measured by now, which no other process has to hear of."""
        self._done.clear()
        for pairs in self._pool.walk():
            self._totals.update((bucket, bucket.total) for bucket, _ in pairs)

    def take(self, now_ms: int, *, whole: bool = False) -> list[SharedCharge]:
        """Return what was charged here since the last call.

        Looks at a part of very many buckets, unless `whole`.
        """
        slices = list(self._pool.walk()) if whole else list(islice(self._walk, SLICES))
        found, self._done = self._done, []
        if self._idle_share != self._pool.idle_share:
            self._idle_share = self._pool.idle_share
            found.insert(0, IdleShare(self._idle_share))
        # A charge within the millisecond of the last look may have come after it.
        for bucket, manager in recorded_since(slices, self._since_ms):
            total = bucket.total
            amount = total - self._totals.get(bucket, 0.0)
            if abs(amount) > _ROUNDING and (of := self._buckets.id_of(bucket, manager)) is not None:
                self._totals[bucket] = total
                found.append(BucketCharge(of, amount))
                if self._is_worker:
                    self._unheard[bucket] = self._unheard.get(bucket, 0.0) + amount
        if whole or len(slices) < SLICES:
            self._begin_round(now_ms)
        found.extend(self._topic_charges())
        found.extend(self._taken_reservations(now_ms))
        return found

    def record(self, charges: Iterable[SharedCharge], now_ms: int) -> None:
        """Record what another process charged."""
        for charge in charges:
            if isinstance(charge, BucketCharge):
                bucket = self._buckets.bucket(charge.of)
                self._record(bucket, charge.amount, now_ms, charge.past)
            elif isinstance(charge, Reservation):
                self._reserve(charge, now_ms)
            elif isinstance(charge, IdleShare):
                self._pool.idle_share = self._idle_share = charge.share
            else:
                self._record_topic(charge, now_ms)

    def echoed(self, charges: Iterable[SharedCharge]) -> None:
        """Take note that the parent has heard charges of this worker."""
        for charge in charges:
            if isinstance(charge, BucketCharge):
                bucket = self._buckets.bucket(charge.of)
                unheard = self._unheard.pop(bucket, 0.0) - charge.amount
                if abs(unheard) > _ROUNDING:
                    self._unheard[bucket] = unheard

    def _reserve(self, row: Reservation, now_ms: int) -> None:
        """Leave to others what the parent does, and have as much left as it has."""
        manager = self._buckets.manager(row.of)
        bucket = manager.bucket_of(row.of.name)
        if row.amount is not None:
            bucket.reserve(row.amount, row.factor)
            return
        # The parent's room doesn't know yet what was charged here since.
        unheard = bucket.total - self._totals.get(bucket, 0.0) + self._unheard.get(bucket, 0.0)
        free = _allowed(bucket, manager, now_ms) - bucket.used(now_ms)
        bucket.reserve(free - row.room + (1.0 + row.factor) * unheard, row.factor)

    def _record(self, bucket: QuotaBucket, amount: float, now_ms: int, past: tuple[int, int] | None) -> None:
        """Record what other processes hear of otherwise."""
        own = bucket.total - self._totals.get(bucket, 0.0)
        if past is not None and isinstance(bucket, SampledBucket):
            bucket.record_past(amount, *past, now_ms)
        else:
            bucket.record(amount, now_ms)
        self._totals[bucket] = bucket.total - own

    # What a fleet does in the parent.

    def carried(self, bucket: QuotaBucket, manager: ClientQuotaManager) -> CarriedBucket:
        """Return a bucket as one to which all processes do what is done here, always the same one."""
        found = self._carried.get(bucket)
        if found is None:
            if isinstance(bucket, SampledBucket):
                found = CarriedSamples(bucket, bucket, manager, self)
            else:
                found = CarriedBucket(bucket, manager, self)
            self._carried[bucket] = found
        return found

    def record_in_all(
        self,
        bucket: QuotaBucket,
        manager: ClientQuotaManager,
        amount: float,
        now_ms: int,
        *,
        past: tuple[int, int] | None = None,
    ) -> None:
        """Record an amount of a fleet's other members, here and by the next `take` in the other processes."""
        self._record(bucket, amount, now_ms, past)
        of = self._buckets.id_of(bucket, manager)
        if of is not None:
            self._done.append(BucketCharge(of, amount, past))

    def reserve_in_all(self, bucket: QuotaBucket, manager: ClientQuotaManager, amount: float, factor: float) -> None:
        """Leave an amount to a fleet's other members, here and by the next `take` in the other processes."""
        bucket.reserve(amount, factor)
        # A bucket that is free, or that the fleet does not share yet, has the same in every process.
        if factor or amount not in (0.0, bucket.capacity * (1.0 - self._pool.idle_share)):
            self._alike.pop(bucket, None)
            self._to_reserve[bucket] = (manager, None, factor)
            return
        # With the capacity, for a bucket forgets what it reserves when its limit changes.
        alike = (amount, bucket.capacity)
        if self._alike.get(bucket) != alike:
            self._alike[bucket] = alike
            self._to_reserve[bucket] = (manager, amount, factor)

    def _taken_reservations(self, now_ms: int) -> Iterator[Reservation]:
        """Yield what to reserve in the other processes, by what all processes have charged until now."""
        for bucket, (manager, amount, factor) in self._to_reserve.items():
            if (of := self._buckets.id_of(bucket, manager)) is not None:
                room = _allowed(bucket, manager, now_ms) - bucket.used(now_ms) - bucket.reserved
                yield Reservation(of, factor, amount, room)
        self._to_reserve.clear()

    def repeat_reservations(self) -> None:
        """Have all that is reserved sent once more, for a process that has just started."""
        self._alike.clear()
        self._idle_share = 1.0

    def waiting(self, channels: Iterable[ThrottledChannel], now_ms: int) -> Counter[BucketId]:
        """Return how many clients are throttled for each bucket."""
        counts: Counter[BucketId] = Counter()
        for limiter in [each.limiter for each in channels if each.until_ms > now_ms]:
            bucket = limiter.state
            if bucket is not None and (of := self._buckets.id_of(bucket, limiter.manager)) is not None:
                counts[of] += 1
        return counts

    def waiting_for(self, counts: Iterable[Mapping[BucketId, int]]) -> Counter[SharedBucket]:
        """Return how many clients wait for each carried bucket, by the counts of some processes."""
        waiting: Counter[SharedBucket] = Counter()
        for each in counts:
            for of, clients in each.items():
                manager = self._buckets.manager(of)
                waiting[self.carried(manager.bucket_of(of.name), manager)] += clients
        return waiting

    def _begin_round(self, now_ms: int) -> None:
        """Begin to look through the pool from its start, at what was charged since the last round began."""
        self._since_ms, self._round_ms = self._round_ms, now_ms
        self._walk = self._pool.walk()
        if len(self._totals) > 2 * len(self._pool) + 1000:
            kept = {bucket for pairs in self._pool.walk() for bucket, _ in pairs}
            self._totals = {bucket: total for bucket, total in self._totals.items() if bucket in kept}
            self._carried = {bucket: each for bucket, each in self._carried.items() if bucket in kept}
            self._unheard = {bucket: each for bucket, each in self._unheard.items() if bucket in kept}
            self._alike = {bucket: each for bucket, each in self._alike.items() if bucket in kept}
        brokers = self._thresholds.brokers.values()
        if len(self._meters) > 2 * MAX_METERS * max(len(brokers), 1):
            kept_meters = {meter for broker in brokers for _, meter, _ in broker.topics.meters()}
            self._meters = {meter: total for meter, total in self._meters.items() if meter in kept_meters}

    def _topic_charges(self) -> Iterator[TopicCharge]:
        if not self._thresholds.is_active:
            return
        for node_id, broker in self._thresholds.brokers.items():
            if broker.is_active:
                for topic, meter, _ in broker.topics.meters():
                    amount = meter.total - self._meters.get(meter, 0.0)
                    if amount:
                        self._meters[meter] = meter.total
                        yield TopicCharge(node_id, topic, amount)

    def _record_topic(self, charge: TopicCharge, now_ms: int) -> None:
        meter = self._thresholds.broker(charge.broker).topics.meter(charge.topic, now_ms)
        meter.record(charge.amount, now_ms)
        self._meters[meter] = self._meters.get(meter, 0.0) + charge.amount


def _allowed(bucket: QuotaBucket, manager: ClientQuotaManager, now_ms: int) -> float:
    """Return what a bucket's window may hold now."""
    whole_ms = (manager.window.samples - 1) * manager.window.window_ms
    if not whole_ms or not isinstance(bucket, SampledBucket):
        return bucket.capacity
    return bucket.capacity * bucket.window_ms(now_ms) / whole_ms
