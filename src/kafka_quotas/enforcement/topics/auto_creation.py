"""Topics that brokers make because a Metadata request named them: charged when that is seen, settled when they exist.

A broker answers for such a topic that it does not exist (yet), makes it, and tells its partitions when it is asked
again. Nothing tells a topic in the making from one that will never be, where brokers make none by themselves: what was
charged for a topic that does not appear within `WAIT_MS` is given back, and it is not charged again for `UNMADE_MS`.
Of internal topics of a streams group the broker says that it makes them: what was charged for one stays.
Invariants: one charge per topic, however many clients ask; at most `MAX_TOPICS` are remembered.
**Source:** `AutoTopicCreationManager`, `KafkaApis.getTopicMetadata`: charged permissively under ZooKeeper. Under KRaft
a broker creates them by a request in the client's name, which the controller charges strictly.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from kafka_quotas.core.quotas.mutation_quota import MutationQuota
from kafka_quotas.core.quotas.quota_manager import Limiter
from kafka_quotas.enforcement.session.request_filter import Charge
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.topics.topic_cache import UNKNOWN_TOPIC, TopicCache
from kafka_quotas.wire.passing.metadata import KnownTopic

LEADER_NOT_AVAILABLE: Final = 5
WAIT_MS: Final = 60_000
UNMADE_MS: Final = 3_600_000
MAX_TOPICS: Final = 10_000
MAX_ASKED: Final = 100
"""How many topics a broker is asked about before one request passes."""


class _Charge(NamedTuple):
    """Who was charged how many partitions for a topic, and when."""

    limiter: Limiter
    partitions: int
    charged_ms: int


class AutoCreations:
    """The topics of one cluster that are being made, and those that were not."""

    def __init__(self, directory: TopicCache, counters: Counters) -> None:
        self._directory = directory
        self._counters = counters
        self._making: dict[str, _Charge] = {}
        self._internal: dict[str, _Charge] = {}
        self._unmade: dict[str, int] = {}
        self._unsettled: dict[tuple[str, str], dict[str, None]] = {}
        """The names of `_internal` by user and client-id, as keys in the order of their charges."""
        self._charges: list[Charge] = []

    def told(
        self, topics: tuple[KnownTopic, ...], limiter: Limiter, now_ms: int
    ) -> tuple[MutationQuota | None, Sequence[Charge]]:
        """The quota that topics in the making were charged to, None where there are none, and all that was charged.

        `topics` are those of a response to a client that may make topics by asking.
        """
        self._charges = []
        self._give_up(now_ms)
        quota: MutationQuota | None = None
        for topic in topics:
            if topic.name is None:
                continue
            if topic.error_code not in (UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE) or topic.partitions:
                if topic.partitions and topic.name in self._making:
                    self._directory.default_partitions = topic.partitions
                self._settle(topic.name, topic.partitions, now_ms)
            elif not any(topic.name in known for known in (self._making, self._internal, self._unmade)):
                quota = quota or limiter.mutation_quota(strict=False)
                charge = _Charge(limiter, self._directory.default_partitions, now_ms)
                self._charge(topic.name, quota, charge, self._making)
        return quota, self._charges

    def internal(
        self, names: tuple[str, ...], limiter: Limiter, now_ms: int
    ) -> tuple[MutationQuota | None, Sequence[Charge]]:
        """Charge internal topics that a broker says it makes for a client: one partition each, until more is known.

        Returns:
            The quota that they were charged to, None where all of them have been before, and what was charged.
        """
        self._charges = []
        quota: MutationQuota | None = None
        for name in names:
            if name not in self._internal and name not in self._making:
                quota = quota or limiter.mutation_quota(strict=False)
                self._charge(name, quota, _Charge(limiter, 1, now_ms), self._internal)
                self._unsettled.setdefault((limiter.user, limiter.client_id), {})[name] = None
        return quota, self._charges

    def unsettled(self, limiter: Limiter) -> list[str]:
        """Return some internal topics that a client was charged for and of which nobody saw yet how large they are."""
        return list(islice(self._unsettled.get((limiter.user, limiter.client_id), ()), MAX_ASKED))

    def withdraw(self, name: str, now_ms: int) -> None:
        """Nothing; a topic was created by a request of its own, which was charged for it."""
        self._settle(name, 0, now_ms)

    def _charge(self, name: str, quota: MutationQuota, charge: _Charge, kind: dict[str, _Charge]) -> None:
        quota.record(charge.partitions, charge.charged_ms)
        self._charges.append((charge.limiter, charge.partitions))
        while len(kind) >= MAX_TOPICS:
            self._take(next(iter(kind)))
        kind[name] = charge

    def _take(self, name: str) -> _Charge | None:
        """Return the charge of a topic, which is forgotten then."""
        charge = self._internal.pop(name, None)
        if charge is None:
            return self._making.pop(name, None)
        client = (charge.limiter.user, charge.limiter.client_id)
        self._unsettled[client].pop(name)
        if not self._unsettled[client]:
            del self._unsettled[client]
        return charge

    def _settle(self, name: str, partitions: int, now_ms: int) -> None:
        """Nothing; a topic has so many partitions now, 0: it was refused."""
        self._unmade.pop(name, None)
        charge = self._take(name)
        if charge is None:
            return
        self._counters.mutation_partitions += partitions
        if charge.partitions != partitions:
            charge.limiter.record_without_throttle(partitions - charge.partitions, now_ms)
            self._charges.append((charge.limiter, partitions - charge.partitions))

    def _give_up(self, now_ms: int) -> None:
        """Nothing; what has waited too long is given back. Both maps are in the order of their times."""
        for name, charge in list(self._making.items()):
            if now_ms - charge.charged_ms < WAIT_MS:
                break
            self._settle(name, 0, now_ms)
            while len(self._unmade) >= MAX_TOPICS:
                self._unmade.pop(next(iter(self._unmade)))
            self._unmade[name] = now_ms
        for name, since_ms in list(self._unmade.items()):
            if now_ms - since_ms < UNMADE_MS:
                break
            del self._unmade[name]
