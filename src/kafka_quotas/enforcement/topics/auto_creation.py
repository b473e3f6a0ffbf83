"""Topics that brokers create because a Metadata request named them: charged on the response, settled when they exist.

A broker responds for such a topic that it does not exist (yet), creates it, and returns its partitions to a later
request. A topic that is being created can't be distinguished from one that the broker will never create because
auto-creation is off: the daemon gives the charge back for a topic that does not appear within `WAIT_MS`, and does not
charge it again for `UNMADE_MS`. For internal topics of a streams group the broker reports that it creates them: the
daemon keeps their charge.
Invariants: one charge per topic, however many clients ask for it; at most `MAX_TOPICS` are kept.

**Source:** `AutoTopicCreationManager`, `KafkaApis.getTopicMetadata`: charged permissively under ZooKeeper. Under KRaft
a broker creates them by a request in the client's name, which the controller charges strictly.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from kafka_quotas.core.quotas.quota_manager import Limiter, MutationQuota
from kafka_quotas.enforcement.session.request_filter import Charge
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.topics.topic_cache import TopicCache
from kafka_quotas.wire.passing.metadata import KnownTopic
from kafka_quotas.wire.protocol.error_code import ErrorCode

WAIT_MS: Final = 60_000
"""Longest time from the charge for a topic until it exists."""
UNMADE_MS: Final = 3_600_000
"""Time without a new charge for a topic that did not appear."""
MAX_TOPICS: Final = 10_000
MAX_ASKED: Final = 100
"""Most topics that the daemon asks a broker about before one request passes."""


class _Charge(NamedTuple):
    """The charge for one topic."""

    limiter: Limiter
    """The limiter of the client that was charged."""
    partitions: int
    charged_ms: int


class AutoCreations:
    """The charges for topics that the brokers of one cluster are creating."""

    def __init__(self, cache: TopicCache, counters: Counters) -> None:
        self._cache = cache
        self._counters = counters
        self._making: dict[str, _Charge] = {}
        self._internal: dict[str, _Charge] = {}
        self._unmade: dict[str, int] = {}
        self._unsettled: dict[tuple[str, str], dict[str, None]] = {}
        """(user, client-id) -> the names in `_internal`, as keys in the order of their charges."""
        self._charges: list[Charge] = []

    def take_topics(
        self, topics: tuple[KnownTopic, ...], limiter: Limiter, now_ms: int
    ) -> tuple[MutationQuota | None, Sequence[Charge]]:
        """Charge the missing topics of a Metadata response, and settle those that exist.

        Args:
            topics: The topics of a response to a client that may create topics by naming them.
            limiter: The limiter of that client's mutations.
            now_ms: The time of the charges.

        Returns:
            The quota that the missing topics were charged to, None without any, and all charges, settled ones included.
        """
        self._charges = []
        self._give_up(now_ms)
        quota: MutationQuota | None = None
        for topic in topics:
            if topic.name is None:
                continue
            if (
                topic.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
                or topic.partitions
            ):
                if topic.partitions and topic.name in self._making:
                    self._cache.default_partitions = topic.partitions
                self._settle(topic.name, topic.partitions, now_ms)
            elif not any(topic.name in known for known in (self._making, self._internal, self._unmade)):
                quota = quota or limiter.mutation_quota(strict=False)
                self._charge(topic.name, quota, _Charge(limiter, self._cache.default_partitions, now_ms), self._making)
        return quota, self._charges

    def internal(
        self, names: tuple[str, ...], limiter: Limiter, now_ms: int
    ) -> tuple[MutationQuota | None, Sequence[Charge]]:
        """Charge internal topics that a broker reports to create for a client, at first one partition each.

        Returns:
            The quota that they were charged to, None if each has its charge already, and the charges.
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
        """Return up to `MAX_ASKED` internal topics charged to a client whose partitions are not known yet."""
        return list(islice(self._unsettled.get((limiter.user, limiter.client_id), ()), MAX_ASKED))

    def withdraw(self, name: str, now_ms: int) -> Sequence[Charge]:
        """Give back the charge of a topic that a CreateTopics request has paid for, and return the correction."""
        self._charges = []
        self._settle(name, 0, now_ms)
        return self._charges

    def _charge(self, name: str, quota: MutationQuota, charge: _Charge, kind: dict[str, _Charge]) -> None:
        quota.record(charge.partitions, charge.charged_ms)
        self._charges.append((charge.limiter, charge.partitions))
        while len(kind) >= MAX_TOPICS:
            self._take(next(iter(kind)))
        kind[name] = charge

    def _take(self, name: str) -> _Charge | None:
        charge = self._internal.pop(name, None)
        if charge is None:
            return self._making.pop(name, None)
        client = (charge.limiter.user, charge.limiter.client_id)
        self._unsettled[client].pop(name)
        if not self._unsettled[client]:
            del self._unsettled[client]
        return charge

    def _settle(self, name: str, partitions: int, now_ms: int) -> None:
        """Correct the charge of a topic to the partitions that it has, 0 if the broker refused it."""
        self._unmade.pop(name, None)
        charge = self._take(name)
        if charge is None:
            return
        self._counters.mutation_partitions += partitions
        if charge.partitions != partitions:
            charge.limiter.record_without_throttle(partitions - charge.partitions, now_ms)
            self._charges.append((charge.limiter, partitions - charge.partitions))

    def _give_up(self, now_ms: int) -> None:
        """Give back the charges of topics that did not appear in time, and forget old ones of these."""
        # Both maps are in the order of their times, so that each loop ends at the first entry that is young enough.
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
