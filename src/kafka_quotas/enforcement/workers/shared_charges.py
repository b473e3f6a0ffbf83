"""What one process charges, for the other processes, and what they charge, recorded here.

Invariants: every charge is recorded once in each process; what came from another process is not sent on from here; no
lock, for each process sends sums of its own and the data path takes no part in it.

`benchmarks/fleet/workers_simulation.py` shows why nothing but what was charged passes: with reports every 10 ms the
processes behave as one broker within a hundredth, while shares of a limit, which a fleet needs, are up to 6 % off it.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple, cast

from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas
from kafka_quotas.enforcement.quotas.quota_registry import CLUSTER, NodeId, QuotaRegistry
from kafka_quotas.enforcement.topics.thresholds import ThresholdRegistry

SLICES: Final = 4
"""Slices of the pool that are looked through at a time, some 1,000 buckets in a fraction of a millisecond."""

_ROUNDING: Final = 1e-6
"""Difference of two sums of the same charges that is none."""


class BucketCharge(NamedTuple):
    """What was charged to one bucket."""

    broker: NodeId | str
    """Node id, or `CLUSTER`."""
    mode: Mode
    quota_type: QuotaType
    name: tuple[str, str]
    amount: float


class TopicCharge(NamedTuple):
    """What a broker took in for one topic, the empty one for all together."""

    broker: NodeId
    topic: str
    amount: float


SharedCharge = BucketCharge | TopicCharge


class SharedCharges:
    """The charges of one process that others share."""

    def __init__(self, policy: QuotaRegistry, thresholds: ThresholdRegistry) -> None:
        """Start with what is measured already, which no other process has to hear of."""
        self._policy = policy
        self._thresholds = thresholds
        self._totals: dict[QuotaBucket, float] = {}
        self._meters: dict[tuple[NodeId, str], float] = {}
        self._sources: dict[ClientQuotaManager, tuple[NodeId | str, Mode]] = {}
        self._brokers: tuple[NodeId, ...] = ()
        self._walk = policy.pool.walk()
        self._round_ms = self._since_ms = 0
        for pairs in policy.pool.walk():
            self._totals.update((bucket, bucket.total) for bucket, _ in pairs)

    def take(self, now_ms: int) -> list[SharedCharge]:
        """Return what was charged here since the last call, looking at a part of very many buckets."""
        slices = list(islice(self._walk, SLICES))
        found: list[SharedCharge] = []
        for pairs in slices:
            for bucket, owner in pairs:
                # A charge within the millisecond of the last look may have come after it.
                if bucket.recorded_ms is None or bucket.recorded_ms < self._since_ms:
                    continue
                total = bucket.total
                amount = total - self._totals.get(bucket, 0.0)
                manager = cast("ClientQuotaManager", owner)
                if abs(amount) > _ROUNDING and (source := self._source(manager)) is not None:
                    self._totals[bucket] = total
                    found.append(BucketCharge(source[0], source[1], manager.quota_type, bucket.name, amount))
        if len(slices) < SLICES:
            self._begin_round(now_ms)
        found.extend(self._topic_charges())
        return found

    def record(self, charges: Iterable[SharedCharge], now_ms: int) -> None:
        """Record what another process charged."""
        for charge in charges:
            if isinstance(charge, BucketCharge):
                broker = charge.broker
                quotas = self._policy.cluster if isinstance(broker, str) else self._policy.broker(broker)
                bucket = quotas.manager(charge.quota_type, charge.mode).bucket_of(charge.name)
                own = bucket.total - self._totals.get(bucket, 0.0)
                bucket.record(charge.amount, now_ms)
                self._totals[bucket] = bucket.total - own
            else:
                self._record_topic(charge, now_ms)

    def _begin_round(self, now_ms: int) -> None:
        """Begin to look through the pool from its start, at what was charged since the last round began."""
        self._since_ms, self._round_ms = self._round_ms, now_ms
        self._walk = self._policy.pool.walk()
        if len(self._totals) > 2 * len(self._policy.pool) + 1000:
            kept = {bucket for pairs in self._policy.pool.walk() for bucket, _ in pairs}
            self._totals = {bucket: total for bucket, total in self._totals.items() if bucket in kept}

    def _source(self, manager: ClientQuotaManager) -> tuple[NodeId | str, Mode] | None:
        """Return the broker and mode of a manager, None for one that is no broker's any more."""
        brokers = tuple(self._policy.brokers)
        if manager not in self._sources or brokers != self._brokers:  # a bootstrap server may have its node id now
            self._brokers = brokers
            self._sources = {each: (name, mode) for name, quotas in self._owners() for mode, each in quotas.managers()}
        return self._sources.get(manager)

    def _owners(self) -> Iterator[tuple[NodeId | str, BrokerQuotas]]:
        yield CLUSTER, self._policy.cluster
        yield from self._policy.brokers.items()

    def _topic_charges(self) -> Iterator[TopicCharge]:
        if not self._thresholds.is_active:
            return
        for node_id, broker in self._thresholds.brokers.items():
            if broker.is_active:
                for topic, meter, _ in broker.topics.meters():
                    amount = meter.total - self._meters.get((node_id, topic), 0.0)
                    if amount:
                        self._meters[node_id, topic] = meter.total
                        yield TopicCharge(node_id, topic, amount)

    def _record_topic(self, charge: TopicCharge, now_ms: int) -> None:
        topics = self._thresholds.broker(charge.broker).topics
        if charge.topic:
            topics.record(charge.topic, 0, now_ms)  # no client here may have named it yet
        for topic, meter, _ in topics.meters():
            if topic == charge.topic:
                meter.record(charge.amount, now_ms)
                name = (charge.broker, topic)
                self._meters[name] = self._meters.get(name, 0.0) + charge.amount
