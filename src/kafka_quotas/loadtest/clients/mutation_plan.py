"""The topics of each request of a mutation flood, and the partitions charged for them.

A topic's name is `prefix` and a running number of six digits. Deletion and growth need topics that exist before the
run under the same names: `topics_before` returns them.

**Source:** KIP-599: a mutation costs the partitions that it creates or deletes.
"""

from collections.abc import Sequence
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.plan.workload import MutationFlood, MutationKind
from kafka_quotas.wire.client.topics import (
    CreatePartitions,
    NewTopic,
    StrictCreateTopics,
    StrictDeleteTopics,
    TopicMutation,
)

_BROKER_TIMEOUT_MS: Final = 30_000


class MutationPlan:
    """The requests of one flood, in order.

    Raises:
        UsageError: If the flood deletes or grows topics and their number is not given.
    """

    def __init__(self, flood: MutationFlood) -> None:
        if flood.kind is not MutationKind.CREATE and flood.total_topics is None:
            raise UsageError(
                f"a flood that is to {flood.kind.value} needs topics to be made first", hint="--topics 100"
            )
        self._flood = flood
        self._next = 0

    def topics_before(self) -> tuple[NewTopic, ...]:
        """Return the topics that must exist before the flood, with their partitions."""
        match self._flood.kind:
            case MutationKind.CREATE:
                return ()
            case MutationKind.DELETE:
                partitions = self._flood.partitions_per_topic
            case MutationKind.PARTITIONS:
                partitions = 1
        return tuple(self._topic(number, partitions) for number in range(self._flood.total_topics or 0))

    def following(self) -> tuple[NewTopic, ...]:
        """Return the topics of the next request, none once every one has been named, and advance past them."""
        flood, first = self._flood, self._next
        if flood.kind is MutationKind.PARTITIONS:
            return self._growing(flood.total_topics or 0)
        last = first + flood.topics_per_request
        if flood.total_topics is not None:
            last = min(last, flood.total_topics)
        self._next = max(last, first)
        partitions = 0 if flood.kind is MutationKind.DELETE else flood.partitions_per_topic
        return tuple(self._topic(number, partitions) for number in range(first, last))

    def request(self, topics: Sequence[NewTopic]) -> TopicMutation:
        """Return the request that creates, deletes or grows these topics."""
        flood = self._flood
        kinds: dict[MutationKind, type[TopicMutation]] = {
            MutationKind.CREATE: StrictCreateTopics,
            MutationKind.DELETE: StrictDeleteTopics,
            MutationKind.PARTITIONS: CreatePartitions,
        }
        return kinds[flood.kind](topics=topics, timeout_ms=_BROKER_TIMEOUT_MS, validate_only=flood.validate_only)

    @property
    def is_exhausted(self) -> bool:
        """Whether the requests have named every topic, which is never so where topics grow."""
        flood = self._flood
        return flood.kind is not MutationKind.PARTITIONS and self._next == flood.total_topics

    @property
    def cost_per_topic(self) -> int:
        """The partitions that a quota is charged with for each topic of a request."""
        return self._flood.partitions_per_topic

    def _growing(self, topics: int) -> tuple[NewTopic, ...]:
        """Return the next topics to grow, in rounds that each add the same number of partitions."""
        flood = self._flood
        numbers = range(self._next, self._next + min(flood.topics_per_request, topics))
        self._next = numbers.stop
        return tuple(
            self._topic(number % topics, 1 + flood.partitions_per_topic * (number // topics + 1)) for number in numbers
        )

    def _topic(self, number: int, partitions: int) -> NewTopic:
        return NewTopic(f"{self._flood.prefix}{number:06d}", partitions, self._flood.replication_factor)
