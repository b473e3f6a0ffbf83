"""The buckets of a daemon that its fleet may share: of all quota managers, of connections, and of topic thresholds."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, TypeAlias, cast

from kafka_quotas.core.metrics.ewma import EwmaMeter
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager
from kafka_quotas.enforcement.filters.thresholds import ThresholdRegistry
from kafka_quotas.enforcement.fleet.report import name_hash
from kafka_quotas.enforcement.fleet.usage import SharedBucket
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.quotas.quota_registry import CLUSTER, QuotaRegistry

SLICES: Final = 16
"""Slices of the pool that are looked through at a time: some 4,000 buckets."""
RECENT_MS: Final = 2_000
"""Time after its last record in which a bucket is looked at."""
METER_S: Final = 60.0
"""Seconds over which a topic's rate is averaged."""

Offer: TypeAlias = Callable[[int, SharedBucket, int], None]
"""Shares a bucket of a number at a time, where that is worth it."""
Carried: TypeAlias = Callable[[QuotaBucket, ClientQuotaManager], SharedBucket]
"""Returns a bucket of a manager as one to which all processes of a daemon do what is done here, always the same one."""


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

    def mean_age_ms(self, now_ms: int) -> float:  # noqa: ARG002 - an average has no samples
        """Return 0."""
        return 0.0

    def window_ms(self, now_ms: int) -> int:  # noqa: ARG002 - it refuses, and throttles nobody
        """Return 0."""
        return 0

    def record(self, value: float, now_ms: int) -> None:
        """Count bytes as taken in."""
        self.meter.record(value, now_ms)

    def record_past(self, value: float, since_ms: int, until_ms: int, now_ms: int) -> None:  # noqa: ARG002 - an average
        """Count bytes that were taken in before as taken in now."""
        self.meter.record(value, now_ms)

    def reserve(self, amount: float, factor: float = 0.0) -> None:
        """Reserve nothing: an average allows no burst that members could allow several times."""


class DaemonBuckets:
    """All buckets of one daemon, by the numbers that they have at every member."""

    def __init__(
        self,
        quotas: QuotaRegistry,
        connections: ConnectionQuotas,
        thresholds: ThresholdRegistry,
        *,
        carried: Carried | None = None,
    ) -> None:
        self._quotas = quotas
        self._carried = carried
        self.pool = quotas.pool
        self._connections = connections
        self._thresholds = thresholds
        self._walk = self.pool.walk()
        self._numbers: dict[QuotaBucket, int] = {}
        self._meters: dict[tuple[str, str], MeterBucket] = {}
        self.unnamed = 0
        """Used buckets that no member shares: their broker's node id is not known yet."""
        self._unnamed_so_far = 0

    def offer(self, offer: Offer, now_ms: int) -> None:
        """Offer all buckets that were used lately, of very many some at each call."""
        for number, bucket in self._recent(now_ms):
            offer(number, bucket, now_ms)
        for node_id, connections in list(self._connections.brokers.items()):
            if node_id is not None and node_id >= 0:
                for name, rate in connections.rates.shared(now_ms - RECENT_MS):
                    offer(name_hash(f"{node_id}\0connections\0{name}"), rate, now_ms)
        for (node, topic), meter in self._active_meters():
            offer(name_hash(f"{node}\0threshold\0{topic}"), meter, now_ms)

    def _recent(self, now_ms: int) -> Iterator[tuple[int, SharedBucket]]:
        sources = {
            manager: f"{name}\0{manager.quota_type.value}\0{mode.value}"
            for name, quotas in self._owners()
            for mode, manager in quotas.managers()
        }
        if len(self._numbers) > 2 * len(self.pool) + 1000:
            self._numbers.clear()
        slices = list(islice(self._walk, SLICES))
        if len(slices) < SLICES:
            self._walk = self.pool.walk()
        for buckets in slices:
            for bucket, owner in buckets:
                if bucket.recorded_ms is None or now_ms - bucket.recorded_ms > RECENT_MS:
                    continue
                manager = cast("ClientQuotaManager", owner)
                source = sources.get(manager)
                if source is None:
                    self._unnamed_so_far += 1
                    continue
                number = self._numbers.get(bucket)
                if number is None:
                    number = self._numbers[bucket] = name_hash("\0".join((source, *bucket.name)))
                owner.renewed(bucket)
                yield number, bucket if self._carried is None else self._carried(bucket, manager)
        if len(slices) < SLICES:
            self.unnamed, self._unnamed_so_far = self._unnamed_so_far, 0

    def _owners(self) -> Iterator[tuple[str, BrokerQuotas]]:
        yield CLUSTER, self._quotas.cluster
        for node_id, quotas in self._quotas.brokers.items():
            # A bootstrap server has one name here and another one at another member until its node id is known.
            if node_id is not None and node_id >= 0:
                yield str(node_id), quotas

    def _active_meters(self) -> Iterator[tuple[tuple[str, str], MeterBucket]]:
        for node_id, broker in list(self._thresholds.brokers.items()):
            if node_id is None or node_id < 0 or not broker.is_active:
                continue
            for topic, meter, threshold in broker.topics.meters():
                name = (str(node_id), topic)
                bucket = self._meters.get(name)
                if bucket is None or bucket.meter is not meter:
                    bucket = self._meters[name] = MeterBucket(meter, threshold)
                bucket.threshold = threshold
                yield name, bucket
