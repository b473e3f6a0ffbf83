"""The buckets of a daemon that its fleet may share, each with one number at every member."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from kafka_quotas.core.metrics.rate import EwmaMeter, ShareableRate
from kafka_quotas.core.model.quota_key import ResourceQuota
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionRate
from kafka_quotas.enforcement.proxy.proxy_quotas import ProxyQuotas
from kafka_quotas.enforcement.quotas.quota_registry import BucketId, QuotaRegistry
from kafka_quotas.enforcement.session.state import ThrottledChannel
from kafka_quotas.enforcement.sharing.report import name_hash

SLICES: Final = 16
"""Slices of the pool that are looked through at a time: some 4,000 buckets."""
RECENT_MS: Final = 2_000
"""Time after its last record in which a bucket is looked at."""
METER_S: Final = 60.0
"""Seconds over which a topic's rate is averaged."""


class MeterBucket:
    """A topic's moving average as a bucket: what others take in counts, and there is no burst to reserve."""

    def __init__(self, meter: EwmaMeter, threshold: float) -> None:
        self.meter = meter
        self.threshold = threshold

    @property
    def capacity(self) -> float:
        """The threshold over the time of the average."""
        return self.threshold * METER_S

    @property
    def total(self) -> float:
        """The bytes taken in since the start."""
        return self.meter.total

    def used(self, now_ms: int) -> float:
        """Return the average over its time."""
        return self.meter.rate(now_ms) * METER_S

    def record(self, value: float, now_ms: int) -> None:
        """Count bytes as taken in."""
        self.meter.record(value, now_ms)

    def reserve(self, amount: float, factor: float = 0.0) -> None:
        """Reserve nothing: an average allows no burst that members could allow several times."""


SharedBucket: TypeAlias = QuotaBucket | ConnectionRate | MeterBucket
"""What members of a fleet hold together."""


def recorded_since(slices: Iterable[list[QuotaBucket]], since_ms: int) -> Iterator[QuotaBucket]:
    """Yield the buckets of slices of a pool with a record at a time or later."""
    for buckets in slices:
        for bucket in buckets:
            if bucket.recorded_ms is not None and bucket.recorded_ms >= since_ms:
                yield bucket


def waiting_clients(registry: QuotaRegistry, channels: Iterable[ThrottledChannel], now_ms: int) -> Counter[BucketId]:
    """Return how many clients are throttled for each bucket at a time."""
    waiting: Counter[BucketId] = Counter()
    for limiter in [each.limiter for each in channels if each.until_ms > now_ms]:
        bucket = limiter.state
        if bucket is not None and (of := registry.id_of(bucket)) is not None:
            waiting[of] += 1
    return waiting


def bucket_number(of: BucketId) -> int:
    """Return the number of a bucket, the same at every member of a fleet."""
    words: tuple[str, ...] = (of.quota_type.value, of.mode.value, *of.name)
    if of.quota_type is ResourceQuota.CONNECTION:
        words = ("connections", *of.name)
    elif of.quota_type is ResourceQuota.TOPIC:
        words = ("threshold", of.name[0])
    return name_hash("\0".join((str(of.broker), *words)))


def _is_named(of: BucketId) -> bool:
    # A bootstrap server has one name here and another one at another member until its node id is known.
    return isinstance(of.broker, str) or (of.broker is not None and of.broker >= 0)


class BucketRecorder:
    """What is done to shared buckets for a fleet's other members, in this process alone."""

    def offered(self, bucket: QuotaBucket) -> None:
        """Take note of a bucket that may be shared, before anything is done to it."""

    def record_for_others(
        self, bucket: SharedBucket, amount: float, now_ms: int, past: tuple[int, int] | None = None
    ) -> None:
        """Record an amount, which came evenly over a past time or now."""
        if past is not None and isinstance(bucket, ShareableRate):
            bucket.record_past(amount, *past, now_ms)
        else:
            bucket.record(amount, now_ms)

    def reserve_for_others(
        self, bucket: SharedBucket, amount: float, factor: float = 0.0, *, is_shared: bool = True
    ) -> None:
        """Leave an amount of the capacity to others, and `factor` times all later records.

        Of a bucket that is not shared (yet) every process leaves the same.
        """
        del is_shared  # for other processes
        bucket.reserve(amount, factor)


class DaemonBuckets:
    """All buckets of one daemon, by the numbers that they have at every member."""

    def __init__(self, quotas: ProxyQuotas, *, recorder: BucketRecorder | None = None) -> None:
        self._quotas = quotas
        self.recorder = recorder or BucketRecorder()
        self.pool = quotas.registry.pool
        self._walk = self.pool.walk()
        self._numbers: dict[QuotaBucket, int] = {}
        self._meters: dict[BucketId, MeterBucket] = {}
        self.unnamed = 0
        """Used buckets that no member shares: their broker's node id is not known yet."""
        self._unnamed_so_far = 0

    def used(self, now_ms: int) -> Iterator[tuple[int, SharedBucket]]:
        """Yield all buckets that were used lately with their numbers, of very many some at each call."""
        yield from self._recent(now_ms)
        for of, rate in self._quotas.rates():
            if rate.last_ms >= now_ms - RECENT_MS and rate.limit is not None and _is_named(of):
                yield bucket_number(of), rate
        self._follow_meters()
        for of, meter in self._meters.items():
            yield bucket_number(of), meter

    def _recent(self, now_ms: int) -> Iterator[tuple[int, SharedBucket]]:
        if len(self._numbers) > 2 * len(self.pool) + 1000:
            self._numbers.clear()
        slices = list(islice(self._walk, SLICES))
        for bucket in recorded_since(slices, now_ms - RECENT_MS):
            of = self._quotas.registry.id_of(bucket)
            if of is None or not _is_named(of):
                self._unnamed_so_far += 1
                continue
            number = self._numbers.get(bucket)
            if number is None:
                number = self._numbers[bucket] = bucket_number(of)
            bucket.owner.renewed(bucket)
            self.recorder.offered(bucket)
            yield number, bucket
        if len(slices) < SLICES:
            self._walk = self.pool.walk()
            self.unnamed, self._unnamed_so_far = self._unnamed_so_far, 0

    def _follow_meters(self) -> None:
        active: dict[BucketId, MeterBucket] = {}
        for of, meter, threshold in self._quotas.meters():
            if _is_named(of):
                bucket = self._meters.get(of)
                if bucket is None or bucket.meter is not meter:
                    bucket = MeterBucket(meter, threshold)
                bucket.threshold = threshold
                active[of] = bucket
        self._meters = active  # as many as the brokers have, whatever names clients make up
